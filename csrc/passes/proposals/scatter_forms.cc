// SPDX-License-Identifier: Apache-2.0
// Proposes scatters into columns as ones into rows: the gradient of `x[:, i]`
// writes to a column of memory for each index, which is as many lines of the
// cache as there are rows; where their distance is a power of two, or a
// multiple of a large one, they have few places there.
#include <iterator>
#include <numeric>

#include "absl/algorithm/container.h"
#include "passes/proposals/counted_loop.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::HloScatterInstruction;

// Bytes after which a line of memory has the same place in the cache, lines
// that have a place together, and the least distance of the rows, in bytes,
// that leaves most places unused: others were as fast by columns.
constexpr int64_t kPeriod = 4096;
constexpr int64_t kWays = 8;
constexpr int64_t kMinDistance = 256;
// How many times as many columns as updates of each row.
constexpr int64_t kMaxSpared = 4;

// Rows that are updated together: the most, up to those that have places
// together, that leave no rest; 0 for none.
int64_t BlockOf(int64_t rows) {
  for (int64_t block = kWays; 2 * block >= kWays; --block) {
    if (rows % block == 0) return block;
  }
  return 0;
}

// The scatter, if it takes updates of whole columns.
const HloScatterInstruction* ColumnsOf(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kScatter || !IsPlain(instruction)) {
    return nullptr;
  }
  const auto& scatter = *xla::Cast<HloScatterInstruction>(&instruction);
  if (scatter.scatter_operand_count() != 1) return nullptr;
  const xla::ScatterDimensionNumbers& dims =
      scatter.scatter_dimension_numbers();
  const xla::Shape& shape = scatter.shape();
  const int64_t last = RankOf(shape) - 1;
  if (last < 1 || dims.scatter_dims_to_operand_dims_size() != 1 ||
      dims.scatter_dims_to_operand_dims(0) != last ||
      dims.inserted_window_dims_size() != 1 ||
      dims.inserted_window_dims(0) != last ||
      dims.input_batching_dims_size() != 0 ||
      dims.update_window_dims_size() != last) {
    return nullptr;
  }
  const xla::Shape& updates = scatter.scatter_updates()[0]->shape();
  for (int64_t i = 0; i < last; ++i) {
    if (updates.dimensions(dims.update_window_dims(i)) != shape.dimensions(i)) {
      return nullptr;
    }
  }
  const int64_t columns = shape.dimensions(last);
  const int64_t elements = xla::ShapeUtil::ElementsIn(shape);
  if (elements == 0 || BlockOf(elements / columns) == 0) return nullptr;
  const int64_t distance = std::gcd(
      columns * xla::ShapeUtil::ByteSizeOfPrimitiveType(shape.element_type()),
      kPeriod);
  if (distance < kMinDistance ||
      elements / columns <= kPeriod / distance * kWays) {
    return nullptr;
  }
  // At the least distance there is little to gain: not for few updates, or
  // those that have to be transposed.
  const int64_t num_updates = xla::ShapeUtil::ElementsIn(updates);
  if (distance == kMinDistance) {
    const bool are_rows = dims.update_window_dims(last - 1) == last - 1 &&
                          IsPlain(*scatter.scatter_updates()[0]);
    return are_rows && num_updates >= elements ? &scatter : nullptr;
  }
  if (num_updates * kMaxSpared < elements) return nullptr;
  return &scatter;
}

absl::StatusOr<HloInstruction*> BuildBlocks(
    const HloScatterInstruction& scatter, absl::Span<HloInstruction* const> x) {
  const xla::ScatterDimensionNumbers& dims =
      scatter.scatter_dimension_numbers();
  const xla::Shape& shape = scatter.shape();
  const xla::Shape& updates_shape = x[2]->shape();
  const int64_t columns = shape.dimensions(RankOf(shape) - 1);
  const int64_t rows = xla::ShapeUtil::ElementsIn(shape) / columns;
  const int64_t count = xla::ShapeUtil::ElementsIn(updates_shape) / rows;
  const int64_t block = BlockOf(rows);

  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * operand,
      xla::MakeReshapeHlo(std::vector<int64_t>{rows, columns}, x[0]));
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * indices,
      xla::MakeReshapeHlo(std::vector<int64_t>{count, 1}, x[1]));
  // Those of one row after the other.
  std::vector<int64_t> order(dims.update_window_dims().begin(),
                             dims.update_window_dims().end());
  for (int64_t i = 0; i < RankOf(updates_shape); ++i) {
    if (!absl::c_linear_search(dims.update_window_dims(), i)) {
      order.push_back(i);
    }
  }
  HloInstruction* updates = x[2];
  if (!absl::c_is_sorted(order)) {
    HLOENV_ASSIGN_OR_RETURN(updates, xla::MakeTransposeHlo(updates, order));
  }
  HLOENV_ASSIGN_OR_RETURN(
      updates, xla::MakeReshapeHlo(std::vector<int64_t>{rows, count}, updates));

  xla::ScatterDimensionNumbers by_block;
  by_block.add_update_window_dims(0);
  by_block.add_inserted_window_dims(1);
  by_block.add_scatter_dims_to_operand_dims(1);
  by_block.set_index_vector_dim(1);
  HLOENV_ASSIGN_OR_RETURN(xla::HloComputation * combiner,
                          CalledBeside(scatter, x));
  const auto body = [&](HloInstruction* index,
                        absl::Span<HloInstruction* const> state)
      -> std::vector<HloInstruction*> {
    HloInstruction* row = WithInteger(HloOpcode::kMultiply, index, block);
    HloInstruction* part = DynamicSliceAlong(state[0], 0, row, block);
    HloInstruction* updated =
        index->AddInstruction(HloInstruction::CreateScatter(
            part->shape(), part, state[1],
            DynamicSliceAlong(state[2], 0, row, block), combiner, by_block,
            scatter.indices_are_sorted(), scatter.unique_indices()));
    return {DynamicUpdateAlong(state[0], 0, row, updated), state[1], state[2]};
  };
  HloInstruction* result = CountedLoop(static_cast<int32_t>(rows / block),
                                       {operand, indices, updates}, body)
                               .front();
  return xla::MakeReshapeHlo(shape.dimensions(), result);
}

}  // namespace

const Rule& ScatterRowsRule() {
  static constexpr Rule rule = {
      "scatter_rows",
      "Rewrites a scatter into columns of an array, whose many rows are a "
      "multiple of 256 bytes apart, as a loop over eight rows at a time. "
      "Exact.",
      [](const HloInstruction& instruction, RuleContext& /*context*/,
         std::vector<Proposal>& proposals) {
        const HloScatterInstruction* scatter = ColumnsOf(instruction);
        if (scatter == nullptr) return;
        Propose(
            ScatterRowsRule(), instruction,
            {scatter->operand(0), scatter->operand(1), scatter->operand(2)},
            [scatter](absl::Span<HloInstruction* const> x) {
              return BuildBlocks(*scatter, x);
            },
            proposals);
      }};
  return rule;
}

}  // namespace hloenv
