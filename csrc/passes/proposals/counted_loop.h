// SPDX-License-Identifier: Apache-2.0
// Loops with a known number of iterations.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

// A number of s32, a constant in the computation of `beside`.
xla::HloInstruction* IntegerBeside(xla::HloInstruction* beside, int64_t number);
// An operation on a number of s32 and a constant.
xla::HloInstruction* WithInteger(xla::HloOpcode opcode,
                                 xla::HloInstruction* left, int64_t right);

// Adds the `size` elements of `array` along `dimension` from `start` on, a
// number of s32; all elements along the other dimensions.
xla::HloInstruction* DynamicSliceAlong(xla::HloInstruction* array,
                                       int64_t dimension,
                                       xla::HloInstruction* start,
                                       int64_t size);
// Adds `array` with `part` in place of these elements.
xla::HloInstruction* DynamicUpdateAlong(xla::HloInstruction* array,
                                        int64_t dimension,
                                        xla::HloInstruction* start,
                                        xla::HloInstruction* part);

// Adds the instructions of one iteration to the computation of `index`, an s32
// number from 0 on, and returns the next state, of the same shapes.
using LoopBody = std::function<std::vector<xla::HloInstruction*>(
    xla::HloInstruction* index, absl::Span<xla::HloInstruction* const> state)>;
// Adds a loop to the computation of `state`, arrays, at least one; returns the
// state after `trips` iterations.
std::vector<xla::HloInstruction*> CountedLoop(
    int32_t trips, absl::Span<xla::HloInstruction* const> state,
    const LoopBody& body);

}  // namespace hloenv
