// SPDX-License-Identifier: Apache-2.0
// The fusions that the CPU backend can compile, profitable or not.
//
// These are the legality rules of CpuInstructionFusion, CpuMultiOutputFusion
// and the loop emitter, without their profitability estimates.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// A constant with one element, which is moved into fusions.
bool IsScalarConstant(const xla::HloInstruction& instruction);
// Whether it is one without dimensions, or a broadcast of it.
bool IsOfConstant(const xla::HloInstruction& instruction);

// Whether the loop emitter can compute one element of `instruction` at a time
// from elements of its operands: a plain operation of an opcode that it knows,
// or a loop fusion, on static arrays of whole bytes, without side effects,
// control dependencies or a backend config.
bool IsLoopFusible(const xla::HloInstruction& instruction);

// Whether a loop fusion may have the root `consumer` and compute its operand
// `producer` inside. `producer` remains for its other users.
bool CanFuseIntoLoop(const xla::HloInstruction& producer,
                     const xla::HloInstruction& consumer);

// Whether `consumer` adds something to the matrix-vector product `producer`,
// which the backend computes as one output fusion of exactly these two.
bool CanFuseIntoOutput(const xla::HloInstruction& producer,
                       const xla::HloInstruction& consumer);

// Whether one loop can compute both as its results. The caller must check that
// neither depends on the other.
bool CanShareLoop(const xla::HloInstruction& first,
                  const xla::HloInstruction& second);

// Whether two operands of a fusion can be views of one buffer, now or after
// later simplification. Workaround for an XLA bug: buffer assignment checks one
// operand at a time, so if the fusion reads one of them elementwise, it may
// overwrite that with the result while it still reads the other in another
// order.
bool MayReadOneBufferTwice(
    absl::Span<const xla::HloInstruction* const> operands);

// The number of instructions in `instruction` if it is a fusion, without
// parameters and constants; else 1.
int64_t FusedSize(const xla::HloInstruction& instruction);

// The number of reductions among them.
int64_t FusedReductions(const xla::HloInstruction& instruction);

}  // namespace hloenv
