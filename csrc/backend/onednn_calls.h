// SPDX-License-Identifier: Apache-2.0
// Calls of oneDNN in the place of single convolutions and dots.
//
// XLA's CPU backend has them as custom calls, which its own passes no longer
// make. These calls let oneDNN allocate its scratch memory: XLA's pass
// OneDnnContractionRewriter allocates it for a number of threads, and a process
// with more of them fails a CHECK.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Convolutions of f32 in row-major order that oneDNN may run: of one to three
// spatial dimensions, without groups of the batch, dilation of the input and
// negative padding. Not empty ones.
bool MayConvolveByOneDnn(const xla::HloInstruction& instruction);

// Adds a call for such a convolution. The kernel of one whose window is
// reversed must be reversed: see ReversedKernel.
xla::HloInstruction* OneDnnConvolution(const xla::HloInstruction& convolution,
                                       xla::HloInstruction* image,
                                       xla::HloInstruction* kernel);

// A dot as a product of batches of matrices.
struct OneDnnProduct {
  struct Operand {
    // What is read: a transpose's operand in place of it.
    const xla::HloInstruction* array;
    // Its dimensions in the order of the matrices, of which those of the batch
    // come first.
    std::vector<int64_t> order = {};
    int64_t batch = 1, own = 1, terms = 1;  // sizes
    bool is_transposed = false;  // whether rows are columns in that order
  };
  Operand lhs, rhs;

  // Of f32, and of bf16 where the processor multiplies that; not empty, in
  // row-major order, and with dimensions that are contracted.
  static std::optional<OneDnnProduct> Of(const xla::HloInstruction& dot);
  // Adds a call for the dot. `x` and `y` are the arrays.
  xla::HloInstruction* Build(const xla::HloInstruction& dot,
                             xla::HloInstruction* x,
                             xla::HloInstruction* y) const;
};

// `kernel`, reversed where the window of `convolution` is.
xla::HloInstruction* ReversedKernel(const xla::HloInstruction& convolution,
                                    xla::HloInstruction* kernel);

}  // namespace hloenv
