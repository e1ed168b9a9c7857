// SPDX-License-Identifier: Apache-2.0
// What a kernel of its own computes for an array.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Whether an element of the result is an element of an operand, or a constant.
bool MovesElements(const xla::HloInstruction& instruction);

// An array and what nothing else needs that it is computed of, as far as XLA
// would fuse that with it.
struct KernelCone {
  // In post order; the array is the last. Constants, and what they and iotas
  // are broadcast to, may have other readers, too.
  std::vector<const xla::HloInstruction*> inside;
  // What these read that is not inside, each once.
  std::vector<const xla::HloInstruction*> reads;
};

// `is_kept` says what is not inside, as it is in memory.
KernelCone ConeOf(const xla::HloInstruction& array, RuleContext& context,
                  absl::FunctionRef<bool(const xla::HloInstruction&)> is_kept);

// Whether XLA's simplifier may find that the array is one that it is computed
// of, as of `x / 1`: elements of it are the same where they are computed.
bool MayReturnItsOperand(const KernelCone& cone);

// Adds a call, which XLA does not inline, of a computation of the array from
// the images of `cone.reads`; not empty.
absl::StatusOr<xla::HloInstruction*> CallOf(
    const KernelCone& cone, absl::Span<xla::HloInstruction* const> images);

}  // namespace hloenv
