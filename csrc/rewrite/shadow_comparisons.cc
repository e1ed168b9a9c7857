// SPDX-License-Identifier: Apache-2.0
//
// Keeps the comparisons of a value with one that is picked from it whole.
//
//   module                          shadow of algsimp
//   q = f32[8] divide(x, y)         q = divide(x, y), read by others
//   d = f32[8] divide(q, z)         d = divide(x, yz)  // yz = y * z
//   m = f32[8] maximum(d, low)      m = maximum(d, low)
//   n = f32[8] minimum(m, high)     n = clamp(low, d, high)
//   e = pred[8] compare(m, n), EQ   e = compare(m, n)
//
// The derivative of a clamp contains e: whether the upper bound was reached. It
// relies on m and n having the same bits. But d rounds differently than before.
// If m reads the old d and n the new one, because the two uses are different
// decisions, e is false nearly everywhere, although all values that the pass
// declared equal are equal up to rounding.
//
// So if both sides of a comparison pick from one new value, the comparison and
// what picks for it are either all originals or all new: those that survive
// count as new (Detach), so that the readers of the comparison are rewired and
// not it and its operands. Uses that one decision rewires together need not.
#include "hlo/self_comparison.h"
#include "rewrite/shadow.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// Values with the numbers of the operands that they pick elements from.
using Picks =
    std::vector<std::pair<const HloInstruction*, std::vector<int64_t>>>;

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
  // `worth_a_visit`: what picks, perhaps by others, from a new value, and new
  // values themselves.
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
    for (const HloInstruction* base : bases_[0]) {
      if (absl::c_linear_search(bases_[1], base)) common.push_back(base);
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
          picks_.push_back({value, PickedOperands(*value)});
        }
        continue;
      }
      if (!worth_a_visit_.contains(value) || !seen->insert(value).second) {
        continue;
      }
      const std::vector<int64_t> operands = PickedOperands(*value);
      if (operands.empty()) {
        bases->push_back(value);
        continue;
      }
      left.push_back({value, true});
      for (int64_t k : operands) left.push_back({value->operand(k), false});
    }
  }

  const absl::flat_hash_set<const HloInstruction*>& worth_a_visit_;
  absl::flat_hash_set<const HloInstruction*> known_;
  Picks picks_;
  std::vector<const HloInstruction*> bases_[2];
};

}  // namespace

bool Shadow::KeepComparisonsWhole() {
  if (rewired_uses_.empty()) return false;
  RewiredOperands rewired;
  for (const RewiredUse& each : rewired_uses_) {
    if (each.use.user != Use::kRoot) {
      rewired[{each.use.user, each.use.operand}] = &each;
    }
  }
  bool changed = false;
  for (const HloComputation* image : computation_image_) {
    if (image == nullptr) continue;
    const std::vector<const HloInstruction*> comparisons = Comparisons(*image);
    if (comparisons.empty()) continue;
    const auto from_new = PickingFromNew(*image);
    for (const HloInstruction* comparison : comparisons) {
      if (!from_new.contains(comparison->operand(0)) ||
          !from_new.contains(comparison->operand(1))) {
        continue;
      }
      const Compared compared(*comparison, from_new);
      for (const HloInstruction* base : compared.Common()) {
        changed |= DetachSplit(compared.Above(*base), rewired);
      }
    }
  }
  return changed;
}

// New values that are computed from others and not picked, and what picks from
// them.
absl::flat_hash_set<const HloInstruction*> Shadow::PickingFromNew(
    const HloComputation& image) const {
  absl::flat_hash_set<const HloInstruction*> found;
  for (const HloInstruction* value : image.MakeInstructionPostOrder()) {
    const std::vector<int64_t> operands = PickedOperands(*value);
    const bool is_new =
        operands.empty() && value->operand_count() > 0 && OriginOf(value) < 0;
    if (is_new || absl::c_any_of(operands, [&](int64_t k) {
          return found.contains(value->operand(k));
        })) {
      found.insert(value);
    }
  }
  return found;
}

// Whether `picks`, which pick from one new value for one comparison, were
// detached, because different decisions would rewire them.
bool Shadow::DetachSplit(const Picks& picks, const RewiredOperands& rewired) {
  bool is_split = false;
  const RewiredUse* first = nullptr;
  std::vector<int32_t> survivors;
  for (const auto& [value, operands] : picks) {
    const int32_t origin = OriginOf(value);
    if (origin < 0) {
      is_split = true;
      continue;
    }
    survivors.push_back(origin);
    for (int64_t k : operands) {
      const auto found = rewired.find({origin, k});
      if (found == rewired.end()) continue;
      if (first == nullptr) first = found->second;
      is_split |= found->second->original != first->original ||
                  found->second->replacement != first->replacement;
    }
  }
  if (!is_split) return false;
  for (int32_t survivor : survivors) Detach(survivor);
  return !survivors.empty();
}

}  // namespace hloenv
