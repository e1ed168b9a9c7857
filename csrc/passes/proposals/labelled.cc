// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/labelled.h"

#include <algorithm>
#include <numeric>

#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::PrimitiveType;

namespace {

using Sizes = std::vector<int64_t>;

Sizes SizesOf(const Labelled& array) {
  const auto dimensions = array.value->shape().dimensions();
  return Sizes(dimensions.begin(), dimensions.end());
}

xla::Shape ShapeWith(const Labelled& array, absl::Span<const int64_t> sizes) {
  return xla::ShapeUtil::MakeShape(array.value->shape().element_type(), sizes);
}

HloInstruction* Add(const Labelled& beside,
                    std::unique_ptr<HloInstruction> instruction) {
  return beside.value->parent()->AddInstruction(std::move(instruction));
}

Labelled Reshaped(const Labelled& array, std::string labels,
                  absl::Span<const int64_t> sizes) {
  return {Add(array, HloInstruction::CreateReshape(ShapeWith(array, sizes),
                                                   array.value)),
          std::move(labels)};
}

HloInstruction* ZeroOf(xla::HloComputation* computation, PrimitiveType type) {
  return computation->AddInstruction(
      HloInstruction::CreateConstant(xla::LiteralUtil::Zero(type)));
}

// Broadcast to `labels`, which contains all labels of the array.
Labelled BroadcastTo(const Labelled& array, absl::string_view labels,
                     absl::Span<const int64_t> sizes) {
  std::string kept;
  for (char label : labels) {
    if (array.Has(label)) kept.push_back(label);
  }
  const Labelled ordered = Ordered(array, kept);
  if (kept == labels) return ordered;
  Sizes dimensions;
  for (char label : kept) {
    dimensions.push_back(static_cast<int64_t>(labels.find(label)));
  }
  return {Add(array, HloInstruction::CreateBroadcast(
                         ShapeWith(array, sizes), ordered.value, dimensions)),
          std::string(labels)};
}

}  // namespace

Accumulation WithOperandsSwapped(Accumulation accumulation) {
  auto* precision = accumulation.precision.mutable_operand_precision();
  if (precision->size() == 2) precision->SwapElements(0, 1);
  return accumulation;
}

Labelled Converted(const Labelled& array, PrimitiveType type) {
  if (array.value->shape().element_type() == type) return array;
  const xla::Shape shape =
      xla::ShapeUtil::MakeShape(type, array.value->shape().dimensions());
  return {Add(array, HloInstruction::CreateConvert(shape, array.value)),
          array.labels};
}

Labelled Ordered(const Labelled& array, absl::string_view labels) {
  if (array.labels == labels) return array;
  Sizes order;
  Sizes sizes;
  for (char label : labels) {
    order.push_back(array.At(label));
    sizes.push_back(array.SizeOf(label));
  }
  return {Add(array, HloInstruction::CreateTranspose(ShapeWith(array, sizes),
                                                     array.value, order)),
          std::string(labels)};
}

Labelled SplitLabel(const Labelled& array, char label,
                    absl::string_view new_labels,
                    absl::Span<const int64_t> sizes) {
  const int64_t at = array.At(label);
  Sizes all = SizesOf(array);
  all.erase(all.begin() + at);
  all.insert(all.begin() + at, sizes.begin(), sizes.end());
  std::string labels = array.labels;
  labels.replace(at, 1, std::string(new_labels));
  return Reshaped(array, std::move(labels), all);
}

Labelled MergeLabels(const Labelled& array, absl::string_view adjacent,
                     char new_label) {
  const int64_t at = array.At(adjacent.front());
  std::string labels = array.labels;
  labels.replace(at, adjacent.size(), 1, new_label);
  if (adjacent.size() == 1) return {array.value, std::move(labels)};
  Sizes sizes = SizesOf(array);
  for (size_t i = 1; i < adjacent.size(); ++i) {
    sizes[at] *= sizes[at + 1];
    sizes.erase(sizes.begin() + at + 1);
  }
  return Reshaped(array, std::move(labels), sizes);
}

Labelled WithoutUnits(const Labelled& array, absl::string_view labels) {
  std::string kept;
  Sizes sizes;
  for (char label : array.labels) {
    const int64_t size = array.SizeOf(label);
    if (size == 1 && labels.find(label) != absl::string_view::npos) continue;
    kept.push_back(label);
    sizes.push_back(size);
  }
  return kept == array.labels ? array : Reshaped(array, kept, sizes);
}

Labelled WithUnit(const Labelled& array, int64_t at, char label) {
  Sizes sizes = SizesOf(array);
  sizes.insert(sizes.begin() + at, 1);
  std::string labels = array.labels;
  labels.insert(at, 1, label);
  return Reshaped(array, std::move(labels), sizes);
}

std::string LabelsOf(int64_t rank) {
  std::string labels(rank, '\0');
  std::iota(labels.begin(), labels.end(), '\1');
  return labels;
}

Labelled Sliced(const Labelled& array, absl::Span<const Cut> cuts) {
  Sizes starts(array.labels.size(), 0);
  Sizes limits = SizesOf(array);
  Sizes strides(array.labels.size(), 1);
  Sizes sizes = limits;
  for (const Cut& cut : cuts) {
    const int64_t at = array.At(cut.label);
    starts[at] = cut.start;
    limits[at] = cut.start + (cut.size - 1) * cut.stride + 1;
    strides[at] = cut.size == 1 ? 1 : cut.stride;
    sizes[at] = cut.size;
  }
  if (sizes == SizesOf(array)) return array;
  return {Add(array,
              HloInstruction::CreateSlice(ShapeWith(array, sizes), array.value,
                                          starts, limits, strides)),
          array.labels};
}

Labelled Padded(const Labelled& array, absl::Span<const Padding> paddings) {
  xla::PaddingConfig config = xla::MakeNoPaddingConfig(array.labels.size());
  Sizes sizes = SizesOf(array);
  bool changes = false;
  for (const Padding& padding : paddings) {
    const int64_t at = array.At(padding.label);
    const int64_t interior = sizes[at] > 1 ? padding.interior : 0;
    auto* dimension = config.mutable_dimensions(at);
    dimension->set_edge_padding_low(padding.low);
    dimension->set_edge_padding_high(padding.high);
    dimension->set_interior_padding(interior);
    sizes[at] += padding.low + padding.high + (sizes[at] - 1) * interior;
    changes |= padding.low != 0 || padding.high != 0 || interior != 0;
  }
  if (!changes) return array;
  HloInstruction* zero =
      ZeroOf(array.value->parent(), array.value->shape().element_type());
  return {Add(array, HloInstruction::CreatePad(ShapeWith(array, sizes),
                                               array.value, zero, config)),
          array.labels};
}

Labelled Reversed(const Labelled& array, absl::string_view labels) {
  Sizes dimensions;
  for (char label : labels) {
    if (array.Has(label) && array.SizeOf(label) > 1) {
      dimensions.push_back(array.At(label));
    }
  }
  if (dimensions.empty()) return array;
  std::sort(dimensions.begin(), dimensions.end());
  return {
      Add(array, HloInstruction::CreateReverse(ShapeWith(array, SizesOf(array)),
                                               array.value, dimensions)),
      array.labels};
}

Labelled Concatenated(absl::Span<const Labelled> arrays, char label) {
  const Labelled& first = arrays.front();
  if (arrays.size() == 1) return first;
  Sizes sizes = SizesOf(first);
  std::vector<HloInstruction*> values;
  sizes[first.At(label)] = 0;
  for (const Labelled& array : arrays) {
    values.push_back(array.value);
    sizes[first.At(label)] += array.SizeOf(label);
  }
  return {Add(first, HloInstruction::CreateConcatenate(
                         ShapeWith(first, sizes), values, first.At(label))),
          first.labels};
}

Labelled Stacked(absl::Span<const Labelled> arrays, char label,
                 absl::string_view labels) {
  std::vector<Labelled> units;
  for (const Labelled& array : arrays) {
    units.push_back(WithUnit(array, 0, label));
  }
  return Ordered(Concatenated(units, label), labels);
}

Labelled SumOf(absl::Span<const Labelled> arrays) {
  if (arrays.size() == 1) return arrays.front();
  const size_t half = arrays.size() / 2;
  const Labelled left = SumOf(arrays.subspan(0, half));
  const Labelled right = SumOf(arrays.subspan(half));
  return {Add(left, HloInstruction::CreateBinary(ShapeWith(left, SizesOf(left)),
                                                 HloOpcode::kAdd, left.value,
                                                 right.value)),
          left.labels};
}

HloInstruction* BarrierOf(HloInstruction* value) {
  return value->AddInstruction(HloInstruction::CreateUnary(
      value->shape(), HloOpcode::kOptimizationBarrier, value));
}

Labelled SumFromZero(absl::Span<const Labelled> arrays) {
  const Labelled sum = SumOf(arrays);
  const xla::PrimitiveType type = sum.value->shape().element_type();
  if (xla::primitive_util::IsIntegralType(type)) return sum;
  HloInstruction* zero = BarrierOf(ZeroOf(sum.value->parent(), type));
  if (!sum.labels.empty()) {
    zero =
        Add(sum, HloInstruction::CreateBroadcast(sum.value->shape(), zero, {}));
  }
  return {Add(sum, HloInstruction::CreateBinary(
                       sum.value->shape(), HloOpcode::kAdd, sum.value, zero)),
          sum.labels};
}

Labelled SumOfProducts(absl::Span<const Labelled> products) {
  return products.front().value->opcode() == HloOpcode::kMultiply
             ? SumFromZero(products)
             : SumOf(products);
}

Labelled Zeros(xla::HloComputation* computation, PrimitiveType type,
               absl::string_view labels, absl::Span<const int64_t> sizes) {
  HloInstruction* zero = ZeroOf(computation, type);
  if (sizes.empty()) return {zero, ""};
  return {computation->AddInstruction(HloInstruction::CreateBroadcast(
              xla::ShapeUtil::MakeShape(type, sizes), zero, {})),
          std::string(labels)};
}

std::string DotLabels(const Labelled& left, const Labelled& right,
                      absl::string_view result) {
  std::string batch;
  std::string free;
  for (char label : left.labels) {
    if (!right.Has(label)) {
      free.push_back(label);
    } else if (result.find(label) != absl::string_view::npos) {
      batch.push_back(label);
    }
  }
  for (char label : right.labels) {
    if (!left.Has(label)) free.push_back(label);
  }
  return batch + free;
}

Labelled DotOf(const Labelled& left, const Labelled& right,
               absl::string_view result, const Accumulation& accumulation) {
  xla::DotDimensionNumbers numbers;
  for (char label : left.labels) {
    if (!right.Has(label)) continue;
    if (result.find(label) != absl::string_view::npos) {
      numbers.add_lhs_batch_dimensions(left.At(label));
      numbers.add_rhs_batch_dimensions(right.At(label));
    } else {
      numbers.add_lhs_contracting_dimensions(left.At(label));
      numbers.add_rhs_contracting_dimensions(right.At(label));
    }
  }
  const std::string labels = DotLabels(left, right, result);
  Sizes sizes;
  for (char label : labels) {
    sizes.push_back(left.Has(label) ? left.SizeOf(label) : right.SizeOf(label));
  }
  return {
      Add(left, HloInstruction::CreateDot(
                    xla::ShapeUtil::MakeShape(accumulation.type, sizes),
                    left.value, right.value, numbers, accumulation.precision)),
      labels};
}

absl::StatusOr<Labelled> MultiplyOf(const Labelled& left, const Labelled& right,
                                    absl::string_view result,
                                    const Accumulation& accumulation) {
  std::string all(result);
  Sizes reduced;
  for (char label : left.labels) {
    if (all.find(label) == std::string::npos) {
      reduced.push_back(static_cast<int64_t>(all.size()));
      all.push_back(label);
    }
  }
  // In the order of the larger operand, so that it is not transposed.
  if (!reduced.empty() && left.labels.size() == all.size()) {
    all = left.labels;
    reduced.clear();
    for (size_t d = 0; d < all.size(); ++d) {
      if (result.find(all[d]) == absl::string_view::npos) {
        reduced.push_back(static_cast<int64_t>(d));
      }
    }
  }
  Sizes sizes;
  for (char label : all) {
    sizes.push_back(left.Has(label) ? left.SizeOf(label) : right.SizeOf(label));
  }
  const Labelled a =
      BroadcastTo(Converted(left, accumulation.type), all, sizes);
  const Labelled b =
      BroadcastTo(Converted(right, accumulation.type), all, sizes);
  Labelled product = {
      Add(a, HloInstruction::CreateBinary(
                 ShapeWith(a, sizes), HloOpcode::kMultiply, a.value, b.value)),
      all};
  if (reduced.empty()) return product;
  HLOENV_ASSIGN_OR_RETURN(
      product.value,
      xla::MakeReduceHlo(product.value,
                         ZeroOf(product.value->parent(), accumulation.type),
                         reduced, HloOpcode::kAdd));
  product.labels.clear();
  for (char label : all) {
    if (result.find(label) != absl::string_view::npos) {
      product.labels.push_back(label);
    }
  }
  return Ordered(product, result);
}

PrimitiveType AccumulationType(PrimitiveType type) {
  return type == xla::F16 || type == xla::BF16 ? xla::F32 : type;
}

bool HasExactTypes(const xla::Shape& left, const xla::Shape& right,
                   const xla::Shape& result) {
  const PrimitiveType from = left.element_type();
  const PrimitiveType to = result.element_type();
  if (from != right.element_type()) return false;
  switch (to) {
    case xla::F16:
    case xla::BF16:
    case xla::F64:
    case xla::S32:
    case xla::U32:
    case xla::S64:
    case xla::U64:
    case xla::C64:
    case xla::C128:
      return from == to;
    case xla::F32:
      return from == xla::F32 || from == xla::F16 || from == xla::BF16;
    default:
      return false;
  }
}

}  // namespace hloenv
