// SPDX-License-Identifier: Apache-2.0
// Two reductions in place of one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/proposals/rules.h"

namespace hloenv {

using Sizes = std::vector<int64_t>;
int64_t ProductOf(absl::Span<const int64_t> sizes);

// A reduction by one operation from its neutral element: the sizes of what is
// reduced, without those of 1, and which of these dimensions are.
struct Reduced {
  xla::HloOpcode operation;
  Sizes sizes;
  std::vector<bool> is_reduced;

  // The first of the dimensions up to `end` that are all reduced, or all kept.
  size_t FirstBefore(size_t end, bool reduced) const;
};
std::optional<Reduced> ReducedOf(const xla::HloInstruction& reduce,
                                 RuleContext& context);

// The shapes between the two.
struct TwoReductions {
  xla::HloOpcode operation;
  Sizes merged;    // the operand, the last dimensions as one
  Sizes first;     // dimensions of that
  Sizes split;     // its result, the last dimension as two
  int64_t second;  // the dimension of that
};
// The two for `root`, from what is reduced, [merged], and the initial value.
// The second is in a computation of its own: XLA would make one of the two
// again, and compute it in each reader.
absl::StatusOr<xla::HloInstruction*> BuildTwo(const TwoReductions& two,
                                              const xla::HloInstruction& root,
                                              xla::HloInstruction* merged,
                                              xla::HloInstruction* initial);

}  // namespace hloenv
