// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/two_reductions.h"

#include <functional>
#include <numeric>

#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

int64_t ProductOf(absl::Span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

size_t Reduced::FirstBefore(size_t end, bool reduced) const {
  while (end > 0 && is_reduced[end - 1] == reduced) --end;
  return end;
}

std::optional<Reduced> ReducedOf(const HloInstruction& reduce,
                                 RuleContext& context) {
  if (reduce.opcode() != HloOpcode::kReduce || reduce.operand_count() != 2) {
    return std::nullopt;
  }
  const std::optional<HloOpcode> operation = ReductionOf(reduce, context);
  if (!operation.has_value() || !IsNeutral(*reduce.operand(1), *operation)) {
    return std::nullopt;
  }
  Reduced found = {*operation, {}, {}};
  for (int64_t d = 0; d < RankOf(reduce.operand(0)->shape()); ++d) {
    const int64_t size = reduce.operand(0)->shape().dimensions(d);
    if (size == 1) continue;
    found.sizes.push_back(size);
    found.is_reduced.push_back(absl::c_linear_search(reduce.dimensions(), d));
  }
  return found;
}

absl::StatusOr<HloInstruction*> BuildTwo(const TwoReductions& two,
                                         const HloInstruction& root,
                                         HloInstruction* merged,
                                         HloInstruction* initial) {
  const xla::PrimitiveType type = AccumulationType(root.shape().element_type());
  initial = Converted({initial, ""}, type).value;
  merged = Converted({merged, ""}, type).value;
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * first,
      xla::MakeReduceHlo(merged, initial, two.first, two.operation));
  return InOwnKernel(
      {first, initial},
      [&](absl::Span<HloInstruction* const> parameters)
          -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * split,
                                xla::MakeReshapeHlo(two.split, parameters[0]));
        HLOENV_ASSIGN_OR_RETURN(
            HloInstruction * second,
            xla::MakeReduceHlo(split, parameters[1], {two.second},
                               two.operation));
        second = Converted({second, ""}, root.shape().element_type()).value;
        return xla::MakeReshapeHlo(root.shape(), second);
      });
}

}  // namespace hloenv
