// SPDX-License-Identifier: Apache-2.0
// Loops over the rows of arrays whose prefixes jax.lax.associative_scan
// computes, one in each iteration.
#pragma once

#include <cstdint>

#include "passes/proposals/prefix_tree.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Whether rows are fast to read and write, one at a time.
bool HasFastRows(const PrefixTree& tree);
// Whether floats are joined as float64.
bool IsWide(const PrefixTree& tree);

// The type of arrays in a loop: the backend would convert whole arrays of 16
// bits in each iteration.
xla::PrimitiveType StoredType(const xla::Shape& shape);
// The type in which numbers are joined.
xla::PrimitiveType JoinedType(const xla::Shape& shape, bool is_wide);
// A row in that type.
xla::HloInstruction* Widened(xla::HloInstruction* row, bool is_wide);

// Zero in the type that arrays of this shape have in a loop.
xla::HloInstruction* ZeroBeside(xla::HloInstruction* beside,
                                const xla::Shape& shape);
// `results` with a row, to which trees add `zero`.
xla::HloInstruction* WithRow(xla::HloInstruction* results, int64_t dimension,
                             xla::HloInstruction* at, xla::HloInstruction* row,
                             xla::HloInstruction* zero);

}  // namespace hloenv
