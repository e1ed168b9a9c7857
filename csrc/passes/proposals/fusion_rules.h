// SPDX-License-Identifier: Apache-2.0
// What the CPU backend can compile inside one fusion, gain or not.
//
// XLA's own fusion passes mix these rules with estimates of profit. Here are
// the rules alone, as CpuInstructionFusion, CpuMultiOutputFusion and the loop
// emitter behind them have them.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// A constant of one element, which a fusion takes in instead of reading it.
bool IsScalarConstant(const xla::HloInstruction& instruction);

// Whether the loop emitter can compute one element of `instruction` at a time
// from elements of its operands: a plain operation of an opcode that it knows,
// or a loop fusion, on static arrays of whole bytes, without side effects,
// control dependencies or a backend config.
bool IsLoopFusible(const xla::HloInstruction& instruction);

// Whether a loop fusion may end in `consumer` and compute its operand
// `producer` inside, which stays for its other users.
bool CanFuseIntoLoop(const xla::HloInstruction& producer,
                     const xla::HloInstruction& consumer);

// Whether `consumer` adds something to the matrix-vector product `producer`,
// which the backend computes as one output fusion of exactly these two.
bool CanFuseIntoOutput(const xla::HloInstruction& producer,
                       const xla::HloInstruction& consumer);

// Whether one loop can compute both as its results. Paths between the two are
// the caller's business.
bool CanShareLoop(const xla::HloInstruction& first,
                  const xla::HloInstruction& second);

// Whether two of the operands that a fusion would have can be views of one
// buffer, now or after later simplification. XLA's buffer assignment looks at
// one operand at a time: where the fusion reads one elementwise, it may write
// the result over it, though it still reads the other in another order.
bool MayReadOneBufferTwice(
    absl::Span<const xla::HloInstruction* const> operands);

// Instructions that a fusion holds for `instruction`, without parameters and
// constants: 1 unless it is a fusion itself.
int64_t FusedSize(const xla::HloInstruction& instruction);

// Reductions among them.
int64_t FusedReductions(const xla::HloInstruction& instruction);

}  // namespace hloenv
