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

// Whether two computations without dead code are the same graph: the same
// instructions, with the same operands. `HloComputation::Equal` also takes two
// instructions with equal operands for one that is used twice:
//
//   c = constant(0); add(c, c)      c = constant(0); d = constant(0); add(c, d)
bool SameGraph(const xla::HloComputation& a, const xla::HloComputation& b,
               absl::FunctionRef<bool(const xla::HloComputation*,
                                      const xla::HloComputation*)>
                   same_computation);

}  // namespace hloenv
