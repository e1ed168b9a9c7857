// SPDX-License-Identifier: Apache-2.0
#include "rewrite/compared.h"

#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "hlo/self_comparison.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

namespace {

bool IsOfTuple(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kOptimizationBarrier:
    case HloOpcode::kTuple:
      return true;
    default:
      return false;
  }
}

// Whether the instruction computes what is not in its operands.
bool Computes(const HloInstruction& instruction) {
  return instruction.operand_count() > 0 && !IsOfTuple(instruction) &&
         PickedOperands(instruction).empty();
}

// Numbers of the operands to follow: of tuples all elements, and what one
// function of one value reads, as it gives equal bits for equal bits.
std::vector<int64_t> Followed(const HloInstruction& instruction) {
  const bool is_function =
      instruction.operand_count() == 1 && instruction.IsElementwise();
  if (!is_function && !IsOfTuple(instruction)) {
    return PickedOperands(instruction);
  }
  std::vector<int64_t> all(instruction.operand_count());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool RoundsFloats(const HloInstruction& value) {
  return xla::ShapeUtil::ElementIsFloating(value.shape()) ||
         xla::ShapeUtil::ElementIsComplex(value.shape());
}

std::vector<const HloInstruction*> Comparisons(
    const HloComputation& computation) {
  std::vector<const HloInstruction*> comparisons;
  for (const HloInstruction* instruction : computation.instructions()) {
    if (instruction->opcode() == HloOpcode::kCompare &&
        RoundsFloats(*instruction->operand(0))) {
      comparisons.push_back(instruction);
    }
  }
  return comparisons;
}

// What one comparison compares: the instructions that pick for it, each after
// those that it picks from, and those that they pick from in the end.
class Compared {
 public:
  // `worth_a_visit` as PickingFrom gives it.
  Compared(const HloInstruction& comparison,
           const absl::flat_hash_set<const HloInstruction*>& worth_a_visit)
      : worth_a_visit_(worth_a_visit) {
    for (int64_t side : {0, 1}) {
      absl::flat_hash_set<const HloInstruction*> seen;
      Visit(*comparison.operand(side), &seen, &bases_[side]);
    }
    picks_.push_back({&comparison, {0, 1}});
  }

  // The values that both sides pick from.
  std::vector<const HloInstruction*> Common() const {
    std::vector<const HloInstruction*> common;
    const absl::flat_hash_set<const HloInstruction*> others(bases_[1].begin(),
                                                            bases_[1].end());
    for (const HloInstruction* base : bases_[0]) {
      if (others.contains(base)) common.push_back(base);
    }
    return common;
  }

  // What picks from `base`, with the operands that lead there, the comparison
  // included.
  Picks Above(const HloInstruction& base) const {
    absl::flat_hash_set<const HloInstruction*> above = {&base};
    Picks picks;
    for (const auto& [value, operands] : picks_) {
      std::vector<int64_t> leading;
      for (int64_t k : operands) {
        if (above.contains(value->operand(k))) leading.push_back(k);
      }
      if (leading.empty()) continue;
      above.insert(value);
      picks.push_back({value, std::move(leading)});
    }
    return picks;
  }

 private:
  void Visit(const HloInstruction& start,
             absl::flat_hash_set<const HloInstruction*>* seen,
             std::vector<const HloInstruction*>* bases) {
    std::vector<std::pair<const HloInstruction*, bool>> left = {
        {&start, false}};
    while (!left.empty()) {
      const auto [value, is_done] = left.back();
      left.pop_back();
      if (is_done) {
        if (known_.insert(value).second) {
          picks_.push_back({value, Followed(*value)});
        }
        continue;
      }
      if (!worth_a_visit_.contains(value) || !seen->insert(value).second) {
        continue;
      }
      const std::vector<int64_t> operands = Followed(*value);
      if (Computes(*value)) bases->push_back(value);
      if (operands.empty()) continue;
      left.push_back({value, true});
      for (int64_t k : operands) left.push_back({value->operand(k), false});
    }
  }

  const absl::flat_hash_set<const HloInstruction*>& worth_a_visit_;
  absl::flat_hash_set<const HloInstruction*> known_;
  Picks picks_;
  std::vector<const HloInstruction*> bases_[2];
};

// The values with `is_base`, and what picks from them.
absl::flat_hash_set<const HloInstruction*> PickingFrom(
    const HloComputation& computation,
    absl::FunctionRef<bool(const HloInstruction&)> is_base) {
  absl::flat_hash_set<const HloInstruction*> found;
  for (const HloInstruction* value : computation.MakeInstructionPostOrder()) {
    const std::vector<int64_t> operands = Followed(*value);
    if ((Computes(*value) && is_base(*value)) ||
        absl::c_any_of(operands, [&found, value = value](int64_t k) {
          return found.contains(value->operand(k));
        })) {
      found.insert(value);
    }
  }
  return found;
}

}  // namespace

void VisitSelfComparisons(
    const HloComputation& computation,
    absl::FunctionRef<bool(const HloInstruction&)> is_base,
    absl::FunctionRef<void(const HloInstruction&, const Picks&)> visit) {
  const std::vector<const HloInstruction*> comparisons =
      Comparisons(computation);
  if (comparisons.empty()) return;
  const absl::flat_hash_set<const HloInstruction*> picking =
      PickingFrom(computation, is_base);
  for (const HloInstruction* comparison : comparisons) {
    if (!picking.contains(comparison->operand(0)) ||
        !picking.contains(comparison->operand(1))) {
      continue;
    }
    const Compared compared(*comparison, picking);
    for (const HloInstruction* base : compared.Common()) {
      // Others are functions that only lead to one.
      if (!is_base(*base)) continue;
      visit(*base, compared.Above(*base));
    }
  }
}

}  // namespace hloenv
