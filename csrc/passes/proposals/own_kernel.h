// SPDX-License-Identifier: Apache-2.0
// Computations of their own that instructions call.
#pragma once

#include <functional>
#include <vector>

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

using KernelsBody =
    std::function<absl::StatusOr<std::vector<xla::HloInstruction*>>(
        absl::Span<xla::HloInstruction* const> parameters)>;
// The same for several results, which are arrays.
absl::StatusOr<std::vector<xla::HloInstruction*>> AllInOwnKernels(
    absl::Span<xla::HloInstruction* const> operands, const KernelsBody& body);
// The same as a call that XLA inlines, for proposals that read what others make
// (Proposal::reads_decided), which are calls.
absl::StatusOr<std::vector<xla::HloInstruction*>> AllInCall(
    absl::Span<xla::HloInstruction* const> operands, const KernelsBody& body);

}  // namespace hloenv
