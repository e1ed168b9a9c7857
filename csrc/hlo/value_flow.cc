// SPDX-License-Identifier: Apache-2.0
#include "hlo/value_flow.h"

#include <utility>

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::ShapeIndex;

namespace {

using Place = ValuePlace;

ShapeIndex WithoutFirst(const ShapeIndex& index) {
  return ShapeIndex(index.begin() + 1, index.end());
}

ShapeIndex Behind(int64_t first, const ShapeIndex& index) {
  ShapeIndex result = {first};
  result.insert(result.end(), index.begin(), index.end());
  return result;
}

// What a parameter of a called computation may hold. Empty for parameters of
// the entry, of reducers and the like, whose values come from outside.
void AddArguments(const HloInstruction& parameter, const ShapeIndex& index,
                  std::vector<Place>* places) {
  const HloComputation* computation = parameter.parent();
  // Text may call it all the same, from computations that nothing needs.
  if (computation->IsEntryComputation()) return;
  const int64_t number = parameter.parameter_number();
  for (const HloInstruction* caller : computation->caller_instructions()) {
    switch (caller->opcode()) {
      case HloOpcode::kCall:
      case HloOpcode::kFusion:
        places->push_back({caller->operand(number), index});
        break;
      case HloOpcode::kWhile:
        places->push_back({caller->operand(0), index});
        places->push_back({caller->while_body()->root_instruction(), index});
        break;
      case HloOpcode::kConditional:
        for (int64_t i = 0; i < caller->branch_count(); ++i) {
          if (caller->branch_computation(i) == computation) {
            places->push_back({caller->operand(i + 1), index});
          }
        }
        break;
      default:
        break;
    }
  }
}

// The places that `place` takes its value from unchanged; none where it
// computes the value itself.
std::vector<Place> PassedFrom(const Place& place) {
  const HloInstruction& instruction = *place.instruction;
  const ShapeIndex& index = place.index;
  std::vector<Place> from;
  switch (instruction.opcode()) {
    case HloOpcode::kTuple:
      if (!index.empty()) {
        from.push_back(
            {instruction.operand(index.front()), WithoutFirst(index)});
      }
      break;
    case HloOpcode::kGetTupleElement:
      from.push_back(
          {instruction.operand(0), Behind(instruction.tuple_index(), index)});
      break;
    case HloOpcode::kParameter:
      AddArguments(instruction, index, &from);
      break;
    case HloOpcode::kCall:
      from.push_back({instruction.to_apply()->root_instruction(), index});
      break;
    case HloOpcode::kFusion:
      from.push_back({instruction.fused_expression_root(), index});
      break;
    case HloOpcode::kWhile:
      from.push_back({instruction.operand(0), index});
      from.push_back({instruction.while_body()->root_instruction(), index});
      break;
    case HloOpcode::kConditional:
      for (const HloComputation* branch : instruction.branch_computations()) {
        from.push_back({branch->root_instruction(), index});
      }
      break;
    case HloOpcode::kAddDependency:
    case HloOpcode::kDomain:
    case HloOpcode::kOptimizationBarrier:
      from.push_back({instruction.operand(0), index});
      break;
    default:
      break;
  }
  return from;
}

// A result, or (from 0 on) an element of its tuple.
using Part = std::pair<const HloInstruction*, int64_t>;

// Appends what reads a part, and to `passed` the parts that it is passed on as.
void AddReaders(const Part& part, std::vector<const HloInstruction*>* readers,
                std::vector<Part>* passed) {
  const auto& [instruction, element] = part;
  const HloComputation& computation = *instruction->parent();
  for (const HloInstruction* user : instruction->users()) {
    if (element >= 0) {
      if (user->opcode() == HloOpcode::kGetTupleElement &&
          user->tuple_index() == element) {
        passed->push_back({user, -1});
      }
    } else if (user->opcode() == HloOpcode::kFusion) {
      for (int64_t i : user->OperandIndices(instruction)) {
        passed->push_back({user->fused_parameter(i), -1});
      }
    } else if (user->opcode() == HloOpcode::kTuple && user->IsRoot() &&
               computation.IsFusionComputation()) {
      for (int64_t i : user->OperandIndices(instruction)) {
        passed->push_back({computation.FusionInstruction(), i});
      }
    } else {
      readers->push_back(user);
    }
  }
  if (!instruction->IsRoot()) return;
  if (computation.IsFusionComputation()) {
    passed->push_back({computation.FusionInstruction(), element});
  } else {
    readers->push_back(instruction);
  }
}

}  // namespace

std::vector<const HloInstruction*> SourcesOf(const HloInstruction& instruction,
                                             const ShapeIndex& index) {
  std::vector<const HloInstruction*> sources;
  absl::flat_hash_set<const HloInstruction*> is_source;
  absl::flat_hash_set<Place> seen;
  std::vector<Place> left = {{&instruction, index}};
  while (!left.empty()) {
    const Place place = std::move(left.back());
    left.pop_back();
    if (!seen.insert(place).second) continue;
    std::vector<Place> from = PassedFrom(place);
    if (from.empty() && is_source.insert(place.instruction).second) {
      sources.push_back(place.instruction);
    }
    std::move(from.rbegin(), from.rend(), std::back_inserter(left));
  }
  return sources;
}

const std::vector<const HloInstruction*>& SourceFinder::Of(
    const HloInstruction& instruction) {
  std::vector<Place> path;
  Place place = {&instruction, {}};
  // Along chains in which each place has the sources of the next.
  while (!known_.contains(place)) {
    path.push_back(place);
    std::vector<Place> from = PassedFrom(place);
    if (from.size() != 1) break;
    place = std::move(from.front());
  }
  std::shared_ptr<const Sources> sources;
  const auto found = known_.find(place);
  if (found != known_.end()) {
    sources = found->second;
  } else {
    sources = std::make_shared<const Sources>(
        SourcesOf(*place.instruction, place.index));
  }
  for (Place& each : path) known_.try_emplace(std::move(each), sources);
  return *sources;
}

bool OnlyForwards(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAddDependency:
    case HloOpcode::kCall:
    case HloOpcode::kConditional:
    case HloOpcode::kDomain:
    case HloOpcode::kFusion:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kOptimizationBarrier:
    case HloOpcode::kParameter:
    case HloOpcode::kTuple:
    case HloOpcode::kWhile:
      return true;
    default:
      return false;
  }
}

bool IsOfFusion(const HloInstruction& instruction) {
  const HloInstruction& made =
      instruction.opcode() == HloOpcode::kGetTupleElement
          ? *instruction.operand(0)
          : instruction;
  return made.opcode() == HloOpcode::kFusion;
}

const HloInstruction* PassedOnFrom(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kFusion:
      return instruction.fused_expression_root();
    case HloOpcode::kParameter:
      if (!instruction.parent()->IsFusionComputation()) return nullptr;
      return instruction.parent()->FusionInstruction()->operand(
          instruction.parameter_number());
    case HloOpcode::kGetTupleElement: {
      const HloInstruction* tuple = instruction.operand(0);
      if (tuple->opcode() == HloOpcode::kFusion) {
        tuple = tuple->fused_expression_root();
      }
      // Otherwise one operation has several results.
      if (tuple->opcode() != HloOpcode::kTuple) return nullptr;
      return tuple->operand(instruction.tuple_index());
    }
    default:
      return nullptr;
  }
}

const HloInstruction& ComputedBy(const HloInstruction& instruction) {
  const HloInstruction* result = &instruction;
  while (const HloInstruction* from = PassedOnFrom(*result)) result = from;
  return *result;
}

std::vector<const HloInstruction*> ResultsOf(
    const HloInstruction& instruction) {
  const HloInstruction& result = ComputedBy(instruction);
  if (result.opcode() != HloOpcode::kTuple) return {&result};
  std::vector<const HloInstruction*> results;
  for (const HloInstruction* element : result.operands()) {
    results.push_back(&ComputedBy(*element));
  }
  return results;
}

std::vector<const HloInstruction*> ReadersOf(
    const HloInstruction& instruction) {
  std::vector<const HloInstruction*> readers;
  // Each part is passed on along one way only: users form no cycle.
  std::vector<Part> left = {{&instruction, -1}};
  while (!left.empty()) {
    const Part part = left.back();
    left.pop_back();
    AddReaders(part, &readers, &left);
  }
  return readers;
}

}  // namespace hloenv
