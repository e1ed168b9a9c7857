// SPDX-License-Identifier: Apache-2.0
// Sizes of unverified shapes; nothing here is fatal.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "xla/shape.h"

namespace hloenv {

// Limits a product or sum of sizes to what an int64 holds.
int64_t SaturatingProduct(int64_t a, int64_t b);
int64_t SaturatingSum(int64_t a, int64_t b);

// Elements of an array with these dimensions; an unbounded one counts as 1.
int64_t ElementCount(absl::Span<const int64_t> dims);

// Bytes of the elements of an array, packed as its layout says.
int64_t ArrayBytes(const xla::Shape& array, int64_t element_count);

// Adds the elements and bytes of all leaves to the two sums.
void SumLeaves(const xla::Shape& shape, int64_t* element_count, int64_t* bytes);

// Size of a dimension; 1 when there is none of that number.
int64_t DimensionOf(const xla::Shape& shape, int64_t dimension);
bool HasDimension(const xla::Shape& shape, int64_t dimension);

}  // namespace hloenv
