// SPDX-License-Identifier: Apache-2.0
// Bytes as XLA's cost analysis counts them. A shape without a layout has none.
#pragma once

#include <cstdint>

namespace xla {
class HloInstruction;
class Shape;
}  // namespace xla

namespace hloenv {

inline constexpr int64_t kPointerBytes = sizeof(void*);

// What an instruction reads of an operand by default: all of an array, and of a
// tuple the table of pointers.
int64_t SizeOf(const xla::Shape& shape);

// What an instruction writes by default: the leaves of a tuple too.
int64_t LeafSizeOf(const xla::Shape& shape);

// What a fusion without tuple parameters reads and writes.
int64_t BytesAccessedByFusion(const xla::HloInstruction& fusion);

}  // namespace hloenv
