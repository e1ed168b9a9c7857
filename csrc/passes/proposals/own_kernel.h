// SPDX-License-Identifier: Apache-2.0
// Computations that the backend does not fuse with what reads them.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Adds instructions to the computation of `parameters` and returns the result.
using KernelBody = std::function<absl::StatusOr<xla::HloInstruction*>(
    absl::Span<xla::HloInstruction* const> parameters)>;
// Adds a call of a new computation of arrays to theirs; XLA does not inline it,
// so that its kernels are its own.
absl::StatusOr<xla::HloInstruction*> InOwnKernel(
    absl::Span<xla::HloInstruction* const> operands, const KernelBody& body);

}  // namespace hloenv
