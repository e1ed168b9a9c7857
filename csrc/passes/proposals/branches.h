// SPDX-License-Identifier: Apache-2.0
// Functions of which one is chosen when the module runs.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Whether all elements are true; a scalar.
absl::StatusOr<xla::HloInstruction*> AllOf(xla::HloInstruction* truths);

// One of two functions of `arrays`, with results of `shape`. XLA makes a
// selection of small branches, and computes both, unless the second function
// has a barrier.
absl::StatusOr<xla::HloInstruction*> IfElse(
    xla::HloInstruction* condition,
    absl::Span<xla::HloInstruction* const> arrays, const xla::Shape& shape,
    const BuildFn& then, const BuildFn& otherwise);

}  // namespace hloenv
