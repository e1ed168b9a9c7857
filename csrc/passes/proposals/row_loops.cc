// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/row_loops.h"

#include "absl/algorithm/container.h"
#include "passes/proposals/counted_loop.h"
#include "passes/proposals/labelled.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// A row consists of parts that are apart in memory. It is read and written
// slowly if they are more than this, and of fewer bytes each.
constexpr int64_t kFewParts = 8;
constexpr int64_t kLongPart = 16;
// Bytes of a row from which on a loop of a single operation was faster, and
// where its results are wider than its numbers.
constexpr int64_t kLongRow = 8;
constexpr int64_t kLongWideRow = 512;
// Rows from which floats are added up as float64; products always are, as they
// overflow elsewhere in another order.
constexpr int64_t kLongLoop = 256;

bool Has(const PrefixTree& tree, HloOpcode opcode) {
  return absl::c_any_of(tree.row_dimensions, [opcode](const auto& each) {
    return each.first->opcode() == opcode;
  });
}

}  // namespace

bool HasFastRows(const PrefixTree& tree) {
  const xla::Shape& shape = tree.elements[0]->shape();
  int64_t parts = 1;
  for (int64_t d = 0; d < tree.dimensions[0]; ++d) parts *= shape.dimensions(d);
  const int64_t bytes = xla::ShapeUtil::ByteSizeOf(shape) / tree.size;
  if (parts > kFewParts && bytes < parts * kLongPart) return false;
  // Two operands and an operation.
  if (tree.row_dimensions.size() > 3) return true;
  const bool is_wide =
      IsWide(tree) && !xla::ShapeUtil::ElementIsIntegral(shape);
  return bytes >= (is_wide ? kLongWideRow : kLongRow);
}

bool IsWide(const PrefixTree& tree) {
  return Has(tree, HloOpcode::kMultiply) ||
         (tree.size >= kLongLoop &&
          (Has(tree, HloOpcode::kAdd) || Has(tree, HloOpcode::kSubtract)));
}

xla::PrimitiveType StoredType(const xla::Shape& shape) {
  return AccumulationType(shape.element_type());
}

xla::PrimitiveType JoinedType(const xla::Shape& shape, bool is_wide) {
  const xla::PrimitiveType type = StoredType(shape);
  if (is_wide && type == xla::F32) return xla::F64;
  return is_wide && type == xla::C64 ? xla::C128 : type;
}

HloInstruction* Widened(HloInstruction* row, bool is_wide) {
  return Converted({row, ""}, JoinedType(row->shape(), is_wide)).value;
}

HloInstruction* ZeroBeside(HloInstruction* beside, const xla::Shape& shape) {
  HloInstruction* zero = beside->AddInstruction(HloInstruction::CreateConstant(
      xla::LiteralUtil::Zero(StoredType(shape))));
  // XLA takes `0 + x` for `x`, which is another number of negative zeros.
  const bool is_signed = !xla::ShapeUtil::ElementIsIntegral(shape) &&
                         shape.element_type() != xla::PRED;
  return is_signed ? BarrierOf(zero) : zero;
}

HloInstruction* WithRow(HloInstruction* results, int64_t dimension,
                        HloInstruction* at, HloInstruction* row,
                        HloInstruction* zero) {
  row = Converted({row, ""}, results->shape().element_type()).value;
  if (xla::ShapeUtil::ElementIsFloating(row->shape()) ||
      xla::ShapeUtil::ElementIsComplex(row->shape())) {
    HloInstruction* zeros = row->AddInstruction(
        HloInstruction::CreateBroadcast(row->shape(), zero, {}));
    row = row->AddInstruction(HloInstruction::CreateBinary(
        row->shape(), HloOpcode::kAdd, row, zeros));
  }
  return DynamicUpdateAlong(results, dimension, at, row);
}

}  // namespace hloenv
