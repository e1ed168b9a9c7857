// SPDX-License-Identifier: Apache-2.0
// The elements that a window reads, one array for each of its positions.
#pragma once

#include <cstdint>
#include <vector>

#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/xla_data.pb.h"

namespace hloenv {

// Number of positions in a window.
int64_t TapsOf(const xla::Window& window);
// Whether the window reads elements that its operand does not have.
bool HasPadding(const xla::Window& window);
// Whether a rule may write the padding of the window's operand: it is not much
// larger than that and a result of `elements`.
bool FitsWithPadding(const xla::Shape& operand, const xla::Window& window,
                     int64_t elements);
// Offsets of the window's positions in each dimension of the padded operand, in
// row-major order.
std::vector<std::vector<int64_t>> OffsetsOf(const xla::Window& window);
// The operand with the padding and the base dilation of the window.
xla::HloInstruction* WithPadding(xla::HloInstruction* operand,
                                 const xla::Window& window,
                                 xla::HloInstruction* value);
// What all windows of a result with these dimensions read at one position.
xla::HloInstruction* TapOf(xla::HloInstruction* padded,
                           const xla::Window& window,
                           const std::vector<int64_t>& offsets,
                           absl::Span<const int64_t> result);

}  // namespace hloenv
