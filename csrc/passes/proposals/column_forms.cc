// SPDX-License-Identifier: Apache-2.0
// Proposes two reductions for one over the last dimension and over earlier ones
// around dimensions that are kept, as a group normalization has them: the
// backend makes vectors of the last dimension alone, which is short there.
//
// Before:  s = f32[8,8] reduce(x: f32[8,3136,8,16], 0), dimensions={1,3}, add
// After:   c = f32[8,128] reduce(reshape(x), 0), dimensions={1}, add
//          s = reduce(reshape(c): f32[8,8,16], 0), dimensions={2}, add
#include <vector>

#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/two_reductions.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

std::optional<TwoReductions> ColumnsFirstOf(const Reduced& reduced) {
  const Sizes& sizes = reduced.sizes;
  // From here on it is reduced, and from there up to here kept.
  const size_t rows = reduced.FirstBefore(sizes.size(), true);
  const size_t columns = reduced.FirstBefore(rows, false);
  // What is before them ends with a dimension that is reduced.
  if (rows == sizes.size() || columns == rows || columns == 0) {
    return std::nullopt;
  }
  const auto all = absl::MakeConstSpan(sizes);
  TwoReductions found = {reduced.operation, {}, {}, {}, 0};
  for (size_t d = 0; d < columns; ++d) {
    found.merged.push_back(sizes[d]);
    if (reduced.is_reduced[d]) {
      found.first.push_back(static_cast<int64_t>(d));
    } else {
      found.split.push_back(sizes[d]);
    }
  }
  found.merged.push_back(ProductOf(all.subspan(columns)));
  found.split.push_back(ProductOf(all.subspan(columns, rows - columns)));
  found.split.push_back(ProductOf(all.subspan(rows)));
  found.second = static_cast<int64_t>(found.split.size()) - 1;
  return found;
}

void ProposeColumns(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const std::optional<Reduced> reduced = ReducedOf(root, context);
  if (!reduced.has_value()) return;
  const std::optional<TwoReductions> two = ColumnsFirstOf(*reduced);
  if (!two.has_value()) return;
  Propose(
      ColumnsRule(), root, {root.operand(0), root.operand(1)},
      [two = *two, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * merged,
                                xla::MakeReshapeHlo(two.merged, x[0]));
        return BuildTwo(two, root, merged, x[1]);
      },
      proposals);
}

}  // namespace

const Rule& ColumnsRule() {
  static constexpr Rule rule = {
      "columns",
      "Rewrites a reduction, by one operation, over the last dimension and "
      "over others before dimensions that are kept as two: first over those, "
      "of vectors of all that follow them, then over the last, in a call that "
      "XLA does not inline. Floats may round differently.",
      &ProposeColumns};
  return rule;
}

}  // namespace hloenv
