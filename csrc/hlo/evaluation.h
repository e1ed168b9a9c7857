// SPDX-License-Identifier: Apache-2.0
// Single operations on known values, by XLA's evaluator.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/literal.h"

namespace hloenv {

// What `instruction` would compute from `operands` in place of its own, in this
// shape, which must be theirs where it is elementwise.
absl::StatusOr<xla::Literal> EvaluatedOn(
    const xla::HloInstruction& instruction, const xla::Shape& shape,
    absl::Span<const xla::Literal* const> operands);

}  // namespace hloenv
