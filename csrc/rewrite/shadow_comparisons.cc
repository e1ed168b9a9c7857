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
#include "rewrite/compared.h"
#include "rewrite/shadow.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

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
    VisitSelfComparisons(
        *image,
        [this](const HloInstruction& value) { return OriginOf(&value) < 0; },
        [&](const HloInstruction&, const Picks& picks) {
          changed |= DetachSplit(picks, rewired);
        });
  }
  return changed;
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
