// SPDX-License-Identifier: Apache-2.0
// Comparing an instruction with its image, fast where nothing changed: a
// capture asks for every instruction of the module.
#pragma once

#include "absl/functional/function_ref.h"

namespace xla {
class HloComputation;
class HloInstruction;
class Shape;
}  // namespace xla

namespace hloenv {

// Shapes with their layouts.
bool SameShape(const xla::Shape& a, const xla::Shape& b);

// Opcode, number of operands, shape, every attribute and called computations;
// not what the operands are, not control dependencies, names or metadata.
// `a_has_extras`: see HasExtras in hlo/analysis.h.
bool SameInstruction(const xla::HloInstruction& a, bool a_has_extras,
                     const xla::HloInstruction& b,
                     absl::FunctionRef<bool(const xla::HloComputation*,
                                            const xla::HloComputation*)>
                         same_computation);

}  // namespace hloenv
