// SPDX-License-Identifier: Apache-2.0
// Arrays whose dimensions have labels, for rules that rewrite dots and
// convolutions.
//
// The functions add instructions with row-major layouts to the computation of
// their operands. They leave out what would change nothing: a slice of
// everything, a transpose that keeps the order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/xla_data.pb.h"

namespace hloenv {

// Labels of one operation: characters other than '\0'.
inline constexpr int64_t kMaxLabels = 128;

// `labels[d]` names dimension d. Labels are unique.
struct Labelled {
  xla::HloInstruction* value;
  std::string labels;

  bool Has(char label) const { return labels.find(label) != std::string::npos; }
  // Those of `order` that it has.
  std::string Those(absl::string_view order) const {
    std::string found;
    for (char label : order) {
      if (Has(label)) found += label;
    }
    return found;
  }
  // The dimension with this label, which must exist.
  int64_t At(char label) const {
    return static_cast<int64_t>(labels.find(label));
  }
  int64_t SizeOf(char label) const {
    return value->shape().dimensions(At(label));
  }
};

// Labels of the dimensions of an array of so many, at most kMaxLabels.
std::string LabelsOf(int64_t rank);
// Two labels next to each other.
inline std::string Pair(char first, char second) { return {first, second}; }

// Elements start, start + stride, ... of one dimension.
struct Cut {
  char label;
  int64_t start;
  int64_t size;
  int64_t stride = 1;
};

// Zeros around one dimension; negative numbers remove elements.
struct Padding {
  char label;
  int64_t low;
  int64_t high;
  int64_t interior = 0;
};

// How products are added up: the type of the result, and the precision of dots.
struct Accumulation {
  xla::PrimitiveType type;
  xla::PrecisionConfig precision;
};
// For the same product with its operands in the other order.
Accumulation WithOperandsSwapped(Accumulation accumulation);

Labelled Converted(const Labelled& array, xla::PrimitiveType type);
// Transposed to this order of the same labels.
Labelled Ordered(const Labelled& array, absl::string_view labels);
// Gives one dimension several labels, of these sizes.
Labelled SplitLabel(const Labelled& array, char label,
                    absl::string_view new_labels,
                    absl::Span<const int64_t> sizes);
// Merges adjacent dimensions, in order, into one.
Labelled MergeLabels(const Labelled& array, absl::string_view adjacent,
                     char new_label);
// Removes those of these labels that the array has with size 1.
Labelled WithoutUnits(const Labelled& array, absl::string_view labels);
// Inserts a dimension of size 1 in front of dimension `at`.
Labelled WithUnit(const Labelled& array, int64_t at, char label);
Labelled Sliced(const Labelled& array, absl::Span<const Cut> cuts);
Labelled Padded(const Labelled& array, absl::Span<const Padding> paddings);
Labelled Reversed(const Labelled& array, absl::string_view labels);
// Along an existing dimension; not empty.
Labelled Concatenated(absl::Span<const Labelled> arrays, char label);
// As a further dimension, in this order of the labels; not empty, with equal
// labels.
Labelled Stacked(absl::Span<const Labelled> arrays, char label,
                 absl::string_view labels);
// Elementwise, as a balanced tree; not empty, with equal labels.
Labelled SumOf(absl::Span<const Labelled> arrays);
// The same, plus zero: the sum of nothing but negative zeros is a positive one,
// as in a dot. Behind a barrier, as XLA takes `x + 0` for `x`.
Labelled SumFromZero(absl::Span<const Labelled> arrays);
// Of dots, or of multiplications from zero.
Labelled SumOfProducts(absl::Span<const Labelled> products);
// `value` behind a barrier, over which XLA moves nothing.
xla::HloInstruction* BarrierOf(xla::HloInstruction* value);
Labelled Zeros(xla::HloComputation* computation, xla::PrimitiveType type,
               absl::string_view labels, absl::Span<const int64_t> sizes);

// The labels of a dot of two operands in the order of its result: those that
// both and the result have, then the others of the left one and the right one.
std::string DotLabels(const Labelled& left, const Labelled& right,
                      absl::string_view result);

// Sums the products over the common labels that are not in `result`, as one
// dot. The dimensions of the dot: those that both have and `result` too, then
// the rest of the left and of the right operand. Each label that only one
// operand has must be in `result`.
Labelled DotOf(const Labelled& left, const Labelled& right,
               absl::string_view result, const Accumulation& accumulation);
// The same as broadcasts, a multiplication and, if needed, a reduction; the
// dimensions of the result are in the order of `result`.
absl::StatusOr<Labelled> MultiplyOf(const Labelled& left, const Labelled& right,
                                    absl::string_view result,
                                    const Accumulation& accumulation);

// The type in which sums of products of this type are accumulated: float32 for
// shorter floats, else the type itself.
xla::PrimitiveType AccumulationType(xla::PrimitiveType type);
// Whether products and sums of operands of these types, with a result of the
// third, can be written as multiplications and additions: floats of 16 bits or
// more, integers of 32 bits or more and complex numbers, where the operands are
// of one type that the result's type contains.
bool HasExactTypes(const xla::Shape& left, const xla::Shape& right,
                   const xla::Shape& result);

}  // namespace hloenv
