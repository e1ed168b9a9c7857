// SPDX-License-Identifier: Apache-2.0
#include "hlo/self_comparison.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "hlo/value_flow.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

namespace {

using Instructions = SelfComparisons::Instructions;

bool IsFloat(const HloInstruction& instruction) {
  const xla::Shape& shape = instruction.shape();
  return shape.IsArray() && (xla::ShapeUtil::ElementIsFloating(shape) ||
                             xla::ShapeUtil::ElementIsComplex(shape));
}

// Whether a reducer returns one of its arguments, or several.
bool PicksArgument(const HloInstruction& root) {
  switch (root.opcode()) {
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kParameter:
    case HloOpcode::kSelect:
      return true;
    case HloOpcode::kTuple:
      return std::all_of(root.operands().begin(), root.operands().end(),
                         [](const HloInstruction* element) {
                           return PicksArgument(*element);
                         });
    default:
      return false;
  }
}

std::vector<int64_t> Numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

}  // namespace

std::vector<int64_t> PickedOperands(const HloInstruction& instruction) {
  const int64_t count = instruction.operand_count();
  switch (instruction.opcode()) {
    case HloOpcode::kAbs:
    case HloOpcode::kBitcast:
    case HloOpcode::kBitcastConvert:
    case HloOpcode::kBroadcast:
    case HloOpcode::kClamp:
    case HloOpcode::kConcatenate:
    case HloOpcode::kCopy:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kNegate:
    case HloOpcode::kPad:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
    case HloOpcode::kSort:
    case HloOpcode::kTranspose:
      return Numbers(0, count);
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kGather:
    case HloOpcode::kTopK:
      return Numbers(0, 1);
    case HloOpcode::kDynamicUpdateSlice:
      return Numbers(0, 2);
    case HloOpcode::kSelect:
      return Numbers(1, 3);
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kScatter:
      if (!PicksArgument(*instruction.to_apply()->root_instruction()))
        return {};
      return Numbers(0, count);
    case HloOpcode::kConvert:
      // To a type that holds every value of the other.
      if (xla::primitive_util::CastPreservesValues(
              instruction.operand(0)->shape().element_type(),
              instruction.shape().element_type())) {
        return Numbers(0, 1);
      }
      return {};
    default:
      return {};
  }
}

namespace {

std::vector<const HloInstruction*> PickedFrom(
    const HloInstruction& instruction) {
  std::vector<const HloInstruction*> from;
  for (int64_t k : PickedOperands(instruction)) {
    from.push_back(instruction.operand(k));
  }
  return from;
}

// Whether element i of the result is picked from elements i of the operands.
bool PicksElementwise(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kReshape:
      return true;
    default:
      return instruction.IsElementwise();
  }
}

// From each rounding instruction that `side` picks from to whether it does so
// elementwise all the way.
absl::flat_hash_map<const HloInstruction*, bool> RoundedBelow(
    const HloInstruction& side) {
  absl::flat_hash_map<const HloInstruction*, bool> below;
  // Elementwise ways first: those that are left then are others.
  absl::flat_hash_set<std::pair<const HloInstruction*, bool>> seen;
  std::vector<std::pair<const HloInstruction*, bool>> left;
  const auto add = [&](const HloInstruction& value, bool elementwise) {
    for (const HloInstruction* source : SourcesOf(value)) {
      if (seen.insert({source, elementwise}).second) {
        left.push_back({source, elementwise});
      }
    }
  };
  add(side, /*elementwise=*/true);
  while (!left.empty()) {
    const auto [value, elementwise] = left.back();
    left.pop_back();
    if (!IsFloat(*value) && !value->shape().IsTuple()) continue;
    const std::vector<const HloInstruction*> from = PickedFrom(*value);
    for (const HloInstruction* operand : from) {
      add(*operand, elementwise && PicksElementwise(*value));
    }
    if (!from.empty() || value->operand_count() == 0) continue;
    const auto [entry, is_new] = below.try_emplace(value, elementwise);
    entry->second &= elementwise;
  }
  return below;
}

// Whether what reads `instruction`, which rounds nothing, may come to be
// several kernels, each with a copy of it.
bool MayBeCopied(const HloInstruction& instruction) {
  const HloInstruction* value = &instruction;
  while (!PickedFrom(*value).empty()) {
    const std::vector<const HloInstruction*> readers = ReadersOf(*value);
    if (readers.size() > 1) return true;
    if (readers.empty() || readers.front() == value) return false;
    value = readers.front();
  }
  return false;
}

bool IsEntryRoot(const HloInstruction& instruction) {
  return instruction.IsRoot() && instruction.parent()->IsEntryComputation();
}

// Whether a search from an instruction along its readers finds something; what
// was found out before is kept. Modules may be deeper than a stack.
template <typename Look>
class Finder {
 public:
  // `look(instruction, &next)` says whether it is found there, or else appends
  // where to look next.
  explicit Finder(Look look) : look_(std::move(look)) {}

  bool Finds(const HloInstruction& start) {
    // What was looked at, and from where.
    absl::flat_hash_map<const HloInstruction*, const HloInstruction*> from = {
        {&start, nullptr}};
    std::vector<const HloInstruction*> left = {&start};
    std::vector<const HloInstruction*> next;
    while (!left.empty()) {
      const HloInstruction* at = left.back();
      left.pop_back();
      const auto known = known_.find(at);
      next.clear();
      if (known != known_.end() ? known->second : look_(*at, &next)) {
        for (; at != nullptr; at = from.at(at)) known_[at] = true;
        return true;
      }
      for (const HloInstruction* instruction : next) {
        if (from.try_emplace(instruction, at).second) {
          left.push_back(instruction);
        }
      }
    }
    for (const auto& [instruction, _] : from) known_[instruction] = false;
    return false;
  }

 private:
  Look look_;
  absl::flat_hash_map<const HloInstruction*, bool> known_;
};

using Next = std::vector<const HloInstruction*>;

// Whether a value is needed where its copy is not.
auto Staying(const Instructions& copied, const Instructions& replaced) {
  return Finder([&copied, &replaced](const HloInstruction& value, Next* next) {
    if (replaced.contains(&value)) return MayBeCopied(value);
    for (const HloInstruction* reader : ReadersOf(value)) {
      if (reader == &value || !copied.contains(reader)) return true;
      next->push_back(reader);
    }
    return false;
  });
}

// Which readers of a value take it, unrounded, to a comparison with itself.
auto Feeding(const HloInstruction& value) {
  return Finder([&value](const HloInstruction& reader, Next* next) {
    switch (reader.opcode()) {
      case HloOpcode::kCompare:
        return RoundedBelow(*reader.operand(0)).contains(&value) &&
               RoundedBelow(*reader.operand(1)).contains(&value);
      // Where it goes from there is not followed.
      case HloOpcode::kCall:
      case HloOpcode::kConditional:
      case HloOpcode::kOptimizationBarrier:
      case HloOpcode::kTuple:
      case HloOpcode::kWhile:
        return true;
      default:
        break;
    }
    if (PickedFrom(reader).empty()) return false;
    for (const HloInstruction* further : ReadersOf(reader)) {
      if (further == &reader) {
        if (!IsEntryRoot(reader)) return true;
      } else {
        next->push_back(further);
      }
    }
    return false;
  });
}

}  // namespace

SelfComparisons::SelfComparisons(const xla::HloModule& module) {
  for (const HloComputation* computation : module.computations()) {
    for (const HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() == HloOpcode::kCompare &&
          IsFloat(*instruction->operand(0))) {
        AddComparison(*instruction);
      }
    }
  }
}

void SelfComparisons::AddComparison(const HloInstruction& comparison) {
  const auto left = RoundedBelow(*comparison.operand(0));
  if (left.empty()) return;
  for (const auto& [value, elementwise] :
       RoundedBelow(*comparison.operand(1))) {
    const auto other = left.find(value);
    if (other == left.end()) continue;
    compared_[value] |= !elementwise || !other->second;
  }
}

bool SelfComparisons::MaySplit(const Instructions& copied,
                               const Instructions& replaced) const {
  if (empty()) return false;
  auto staying = Staying(copied, replaced);
  for (const HloInstruction* value : copied) {
    const auto found = compared_.find(value);
    if (found == compared_.end()) continue;
    auto feeding = Feeding(*value);
    int64_t num_inside = 0;
    bool stays = false;
    for (const HloInstruction* reader : ReadersOf(*value)) {
      const bool is_root = reader == value;
      if (is_root ? IsEntryRoot(*value) : !feeding.Finds(*reader)) continue;
      const bool is_inside = !is_root && copied.contains(reader);
      num_inside += is_inside ? 1 : 0;
      stays |= !is_inside || staying.Finds(*reader);
    }
    const bool reads_other_elements = found->second;
    if (reads_other_elements && num_inside > 1) return true;
    // A replacement of a reader, which another decision may choose, reads the
    // original and not the copy that stands for it here.
    const bool is_computed_anew = num_inside > 0 || replaced.contains(value);
    if (is_computed_anew && stays) return true;
  }
  return false;
}

}  // namespace hloenv
