// SPDX-License-Identifier: Apache-2.0
// Proposes reductions of several rows side by side for one over dimensions
// before few columns, as the statistics of colours and of features are: the
// backend makes vectors of the last dimension alone, which is short there.
//
// Before:  s = f32[3] reduce(x: f32[65536,3], 0), dimensions={0}, add
// After:   c = f32[48] reduce(reshape(x): f32[4096,48], 0), dimensions={0}, add
//          s = f32[3] reduce(reshape(c): f32[16,3], 0), dimensions={0}, add
//
// What a sum is computed of, elementwise, is side by side, too, and numbers of
// the columns are repeated: `reshape(x - broadcast(m))` would be computed
// element by element.
#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/computed_terms.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/two_reductions.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Of columns that are few, and of the rows that are made of them.
constexpr int64_t kMaxColumns = 16;
constexpr int64_t kWidest = 64;

// The dimensions of what is reduced: groups and columns, which are kept, around
// rows, of which some are together.
struct SideBySide {
  int64_t groups, rows, columns, together;
  // Of the operand, with those of size 1: where rows begin and where they end.
  int64_t first_row, first_column;

  Sizes merged() const { return {groups, rows / together, together * columns}; }
  TwoReductions two(HloOpcode operation) const {
    return {operation, merged(), {1}, {groups, together, columns}, 1};
  }
};

std::optional<SideBySide> SideBySideOf(const HloInstruction& reduce,
                                       const Reduced& reduced) {
  const size_t end = reduced.sizes.size();
  const size_t columns = reduced.FirstBefore(end, false);
  const size_t rows = reduced.FirstBefore(columns, true);
  if (columns == end || rows == columns || reduced.FirstBefore(rows, false)) {
    return std::nullopt;
  }
  const auto all = absl::MakeConstSpan(reduced.sizes);
  SideBySide found = {};
  found.groups = ProductOf(all.first(rows));
  found.rows = ProductOf(all.subspan(rows, columns - rows));
  found.columns = ProductOf(all.subspan(columns));
  if (found.groups == 0 || found.columns == 0 || found.columns > kMaxColumns) {
    return std::nullopt;
  }
  int64_t together = std::min(kWidest / found.columns, found.rows / 2);
  while (together > 1 && found.rows % together != 0) --together;
  if (together <= 1) return std::nullopt;
  found.together = together;
  const auto is_reduced = [&](int64_t d) {
    return reduce.operand(0)->shape().dimensions(d) > 1 &&
           absl::c_linear_search(reduce.dimensions(), d);
  };
  while (!is_reduced(found.first_row)) ++found.first_row;
  found.first_column = RankOf(reduce.operand(0)->shape());
  while (!is_reduced(found.first_column - 1)) --found.first_column;
  return found;
}

// Whether a broadcast repeats numbers of groups and columns for each row.
bool IsRepeated(const HloInstruction& broadcast, const SideBySide& sizes) {
  return absl::c_all_of(broadcast.dimensions(), [&](int64_t d) {
    return d < sizes.first_row || d >= sizes.first_column ||
           broadcast.shape().dimensions(d) == 1;
  });
}

// The same for several rows side by side.
absl::StatusOr<HloInstruction*> Repeated(const HloInstruction& broadcast,
                                         HloInstruction* numbers,
                                         const SideBySide& side_by_side) {
  if (xla::ShapeUtil::ElementsIn(numbers->shape()) == 1) {
    HLOENV_ASSIGN_OR_RETURN(numbers, xla::MakeReshapeHlo(Sizes{}, numbers));
    return xla::MakeBroadcastHlo(numbers, {}, side_by_side.merged());
  }
  const absl::Span<const int64_t> all = broadcast.shape().dimensions();
  const bool is_by_group =
      absl::c_any_of(broadcast.dimensions(),
                     [&](int64_t d) { return d < side_by_side.first_row; });
  // In memory, as what repeats in a row is not a vector.
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * row,
      InOwnKernel(
          {numbers},
          [&](absl::Span<HloInstruction* const> parameters)
              -> absl::StatusOr<HloInstruction*> {
            // [groups of each dimension, rows together, columns likewise]
            Sizes sizes;
            Sizes places(all.size(), -1);
            for (int64_t d = 0; is_by_group && d < side_by_side.first_row;
                 ++d) {
              places[d] = static_cast<int64_t>(sizes.size());
              sizes.push_back(all[d]);
            }
            sizes.push_back(side_by_side.together);
            Sizes of_parameter;
            for (size_t d = side_by_side.first_column; d < all.size(); ++d) {
              places[d] = static_cast<int64_t>(sizes.size());
              sizes.push_back(all[d]);
            }
            Sizes kept;
            for (size_t i = 0; i < broadcast.dimensions().size(); ++i) {
              const int64_t place = places[broadcast.dimensions(i)];
              if (place < 0) continue;  // of size 1
              of_parameter.push_back(place);
              kept.push_back(parameters[0]->shape().dimensions(i));
            }
            HLOENV_ASSIGN_OR_RETURN(HloInstruction * needed,
                                    xla::MakeReshapeHlo(kept, parameters[0]));
            const int64_t width = side_by_side.merged()[2];
            return xla::MakeReshapeHlo(
                is_by_group ? Sizes{side_by_side.groups, width} : Sizes{width},
                xla::MakeBroadcastHlo(needed, of_parameter, sizes));
          }));
  return xla::MakeBroadcastHlo(row, is_by_group ? Sizes{0, 2} : Sizes{2},
                               side_by_side.merged());
}

void ProposeSideBySide(const HloInstruction& root, RuleContext& context,
                       std::vector<Proposal>& proposals) {
  const std::optional<Reduced> reduced = ReducedOf(root, context);
  if (!reduced.has_value()) return;
  const std::optional<SideBySide> sizes = SideBySideOf(root, *reduced);
  if (!sizes.has_value()) return;
  ComputedTerms terms(*root.operand(0), [&](const HloInstruction& broadcast) {
    return IsRepeated(broadcast, *sizes);
  });
  // jaxlib's library, which gets the first reduction, is slow at others.
  if (!terms.are_in_memory() || !terms.IsStatistic()) return;
  // Others of a value may be compared with the largest of them.
  if (reduced->operation != HloOpcode::kAdd) {
    if (terms.repeats_arrays()) return;
    terms.TakeWhole();
  }
  const size_t initial = terms.Place(*root.operand(1));
  Propose(
      SideBySideRule(), root, terms.leaves(),
      [terms, initial, sizes = *sizes, operation = reduced->operation,
       &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(
            HloInstruction * merged,
            terms.Build(
                sizes.merged(), x,
                [&](const HloInstruction& broadcast, HloInstruction* numbers) {
                  return Repeated(broadcast, numbers, sizes);
                }));
        return BuildTwo(sizes.two(operation), root, merged, x[initial]);
      },
      proposals);
}

}  // namespace

const Rule& SideBySideRule() {
  static constexpr Rule rule = {
      "side_by_side",
      "Rewrites a reduction, by one operation, over dimensions before few "
      "columns as two: first of several rows side by side, as vectors, then "
      "of their parts, in a call that XLA does not inline. Floats may round "
      "differently.",
      &ProposeSideBySide};
  return rule;
}

}  // namespace hloenv
