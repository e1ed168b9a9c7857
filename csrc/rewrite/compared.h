// SPDX-License-Identifier: Apache-2.0
// Finds comparisons of a value with one that is picked from it, by maximum,
// say, and of a function of one with that function of the other.
//
// Both sides rely on having the same bits of the value (hlo/self_comparison.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace xla {
class HloComputation;
class HloInstruction;
}  // namespace xla

namespace hloenv {

// Instructions with the numbers of the operands that they pick elements from,
// or compare.
using Picks =
    std::vector<std::pair<const xla::HloInstruction*, std::vector<int64_t>>>;

// For each comparison of floats in `computation`, and for each value with
// `is_base` from which both of its sides pick: calls `visit` with the value and
// with what picks from it for the comparison, each after what it picks from,
// the comparison last. Of values that pick themselves, or have no operands,
// `is_base` is not asked.
void VisitSelfComparisons(
    const xla::HloComputation& computation,
    absl::FunctionRef<bool(const xla::HloInstruction&)> is_base,
    absl::FunctionRef<void(const xla::HloInstruction&, const Picks&)> visit);

}  // namespace hloenv
