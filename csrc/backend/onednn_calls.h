// SPDX-License-Identifier: Apache-2.0
// Calls of oneDNN in the place of single convolutions and dots.
//
// XLA's CPU backend has them as custom calls, which its own passes no longer
// make. These calls let oneDNN allocate its scratch memory: XLA's pass
// OneDnnContractionRewriter allocates it for a number of threads, and a process
// with more of them fails a CHECK.
#pragma once

#include <array>
#include <memory>

#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Convolutions and dots of f32 in row-major order that oneDNN may run:
// convolutions of one to three spatial dimensions, without groups of the batch,
// dilation of the input and negative padding; dots of matrices and of batches
// of them, also of bf16 where the processor multiplies that. Not empty ones.
bool MayCallOneDnn(const xla::HloInstruction& instruction);

// What the call for such an instruction reads: a matrix in place of its
// transpose.
std::array<const xla::HloInstruction*, 2> OneDnnOperands(
    const xla::HloInstruction& instruction);

// For such an instruction, a call with these operands, copies of
// OneDnnOperands. The kernel of a convolution whose window is reversed must be
// reversed: see ReversedKernel.
std::unique_ptr<xla::HloInstruction> OneDnnCall(
    const xla::HloInstruction& instruction,
    absl::Span<xla::HloInstruction* const> operands);

// `kernel`, reversed where the window of `convolution` is.
xla::HloInstruction* ReversedKernel(const xla::HloInstruction& convolution,
                                    xla::HloInstruction* kernel);

}  // namespace hloenv
