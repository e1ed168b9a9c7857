// SPDX-License-Identifier: Apache-2.0
#include "hlo/value_flow.h"

#include <utility>

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::ShapeIndex;

namespace {

struct Place {
  const HloInstruction* instruction;
  ShapeIndex index;

  template <typename H>
  friend H AbslHashValue(H h, const Place& place) {
    return H::combine(std::move(h), place.instruction, place.index);
  }
  friend bool operator==(const Place& a, const Place& b) {
    return a.instruction == b.instruction && a.index == b.index;
  }
};

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

// Appends the readers of `instruction`'s result, or of the element of its
// tuple.
void AddReaders(const HloInstruction& instruction, int64_t element,
                std::vector<const HloInstruction*>* readers) {
  const HloComputation& computation = *instruction.parent();
  for (const HloInstruction* user : instruction.users()) {
    if (element >= 0) {
      if (user->opcode() == HloOpcode::kGetTupleElement &&
          user->tuple_index() == element) {
        AddReaders(*user, /*element=*/-1, readers);
      }
      continue;
    }
    if (user->opcode() == HloOpcode::kFusion) {
      for (int64_t i : user->OperandIndices(&instruction)) {
        AddReaders(*user->fused_parameter(i), /*element=*/-1, readers);
      }
      continue;
    }
    if (user->opcode() == HloOpcode::kTuple && user->IsRoot() &&
        computation.IsFusionComputation()) {
      for (int64_t i : user->OperandIndices(&instruction)) {
        AddReaders(*computation.FusionInstruction(), i, readers);
      }
      continue;
    }
    readers->push_back(user);
  }
  if (!instruction.IsRoot()) return;
  if (computation.IsFusionComputation()) {
    AddReaders(*computation.FusionInstruction(), element, readers);
  } else {
    readers->push_back(&instruction);
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
  AddReaders(instruction, /*element=*/-1, &readers);
  return readers;
}

}  // namespace hloenv
