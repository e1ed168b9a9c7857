// SPDX-License-Identifier: Apache-2.0
// Proposes two reductions for one over the last dimension and over earlier ones
// around dimensions that are kept, as a group normalization has them: the
// backend makes vectors of the last dimension alone, which is short there.
//
// Before:  s = f32[8,8] reduce(x: f32[8,3136,8,16], 0), dimensions={1,3}, add
// After:   c = f32[8,128] reduce(reshape(x), 0), dimensions={1}, add
//          s = reduce(reshape(c): f32[8,8,16], 0), dimensions={2}, add
//
// The second is in a computation of its own: XLA would make one of the two
// again, and compute it in each reader.
#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using Sizes = std::vector<int64_t>;

int64_t ProductOf(absl::Span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

// The two reductions, without dimensions of size 1.
struct ColumnsFirst {
  HloOpcode operation;
  Sizes merged;  // the operand, the last dimensions as one
  Sizes first;   // dimensions of that
  Sizes split;   // its result, the last dimension as two: kept, reduced
  int64_t last() const { return static_cast<int64_t>(split.size()) - 1; }
};

std::optional<ColumnsFirst> ColumnsFirstOf(const HloInstruction& reduce,
                                           RuleContext& context) {
  if (reduce.opcode() != HloOpcode::kReduce || reduce.operand_count() != 2) {
    return std::nullopt;
  }
  Sizes sizes;
  std::vector<bool> is_reduced;
  for (int64_t d = 0; d < RankOf(reduce.operand(0)->shape()); ++d) {
    const int64_t size = reduce.operand(0)->shape().dimensions(d);
    if (size == 1) continue;
    sizes.push_back(size);
    is_reduced.push_back(absl::c_linear_search(reduce.dimensions(), d));
  }
  size_t rows = sizes.size();  // from here on it is reduced
  while (rows > 0 && is_reduced[rows - 1]) --rows;
  size_t columns = rows;  // and from here on up to there kept
  while (columns > 0 && !is_reduced[columns - 1]) --columns;
  // What is before them ends with a dimension that is reduced.
  if (rows == sizes.size() || columns == rows || columns == 0) {
    return std::nullopt;
  }
  const std::optional<HloOpcode> operation = ReductionOf(reduce, context);
  if (!operation.has_value() || !IsNeutral(*reduce.operand(1), *operation)) {
    return std::nullopt;
  }
  const auto all = absl::MakeConstSpan(sizes);
  ColumnsFirst found = {*operation, {}, {}, {}};
  for (size_t d = 0; d < columns; ++d) {
    found.merged.push_back(sizes[d]);
    if (is_reduced[d]) {
      found.first.push_back(static_cast<int64_t>(d));
    } else {
      found.split.push_back(sizes[d]);
    }
  }
  found.merged.push_back(ProductOf(all.subspan(columns)));
  found.split.push_back(ProductOf(all.subspan(columns, rows - columns)));
  found.split.push_back(ProductOf(all.subspan(rows)));
  return found;
}

absl::StatusOr<HloInstruction*> BuildColumns(
    const ColumnsFirst& columns, const HloInstruction& root,
    absl::Span<HloInstruction* const> x) {
  const xla::PrimitiveType type = AccumulationType(root.shape().element_type());
  HloInstruction* initial = Converted({x[1], ""}, type).value;
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * merged,
      xla::MakeReshapeHlo(columns.merged, Converted({x[0], ""}, type).value));
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * first,
      xla::MakeReduceHlo(merged, initial, columns.first, columns.operation));
  return InOwnKernel(
      {first, initial},
      [&](absl::Span<HloInstruction* const> parameters)
          -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(
            HloInstruction * split,
            xla::MakeReshapeHlo(columns.split, parameters[0]));
        HLOENV_ASSIGN_OR_RETURN(
            HloInstruction * last,
            xla::MakeReduceHlo(split, parameters[1], {columns.last()},
                               columns.operation));
        last = Converted({last, ""}, root.shape().element_type()).value;
        return xla::MakeReshapeHlo(root.shape(), last);
      });
}

void ProposeColumns(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const std::optional<ColumnsFirst> columns = ColumnsFirstOf(root, context);
  if (!columns.has_value()) return;
  Propose(
      ColumnsRule(), root, {root.operand(0), root.operand(1)},
      [columns = *columns, &root](absl::Span<HloInstruction* const> x) {
        return BuildColumns(columns, root, x);
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
