// SPDX-License-Identifier: Apache-2.0
#include "graph/shapes.h"

#include <limits>

#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::Shape;

namespace {

// Bytes of one element by dtype; 0 for what is no array.
const int8_t* ElementBytes() {
  static const int8_t* const table = [] {
    auto* bytes = new int8_t[xla::PrimitiveType_ARRAYSIZE]();
    for (int i = 0; i < xla::PrimitiveType_ARRAYSIZE; ++i) {
      const auto type = static_cast<xla::PrimitiveType>(i);
      if (xla::PrimitiveType_IsValid(i) &&
          xla::primitive_util::IsArrayType(type)) {
        bytes[i] =
            static_cast<int8_t>(xla::ShapeUtil::ByteSizeOfPrimitiveType(type));
      }
    }
    return bytes;
  }();
  return table;
}

}  // namespace

int64_t SaturatingProduct(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<int64_t>::max()
             : product;
}

int64_t SaturatingSum(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum)
             ? std::numeric_limits<int64_t>::max()
             : sum;
}

int64_t ElementCount(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims) {
    count = SaturatingProduct(count, dim == Shape::kUnboundedSize ? 1 : dim);
  }
  return count;
}

int64_t ArrayBytes(const Shape& shape, int64_t element_count) {
  if (shape.has_layout() && shape.layout().element_size_in_bits() != 0) {
    const int64_t bits =
        SaturatingProduct(element_count, shape.layout().element_size_in_bits());
    return bits / 8 + (bits % 8 != 0);
  }
  return SaturatingProduct(element_count, ElementBytes()[shape.element_type()]);
}

void SumLeaves(const Shape& shape, int64_t* element_count, int64_t* bytes) {
  if (shape.IsTuple()) {
    for (const Shape& element : shape.tuple_shapes()) {
      SumLeaves(element, element_count, bytes);
    }
  } else if (shape.IsArray()) {
    const int64_t count = ElementCount(shape.dimensions());
    *element_count = SaturatingSum(*element_count, count);
    *bytes = SaturatingSum(*bytes, ArrayBytes(shape, count));
  }
}

bool HasDimension(const Shape& shape, int64_t dimension) {
  return shape.IsArray() && dimension >= 0 &&
         dimension < static_cast<int64_t>(shape.dimensions().size());
}

int64_t DimensionOf(const Shape& shape, int64_t dimension) {
  return HasDimension(shape, dimension)
             ? ElementCount(shape.dimensions().subspan(dimension, 1))
             : 1;
}

}  // namespace hloenv
