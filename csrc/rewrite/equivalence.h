// SPDX-License-Identifier: Apache-2.0
// Compares instructions with their images. Fast for unchanged instructions,
// because a capture compares every instruction of the module.
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

// Compares opcode, number of operands, shape, all attributes and called
// computations, but not the operands, control dependencies, names or metadata.
// `a_has_extras`: see HasExtras in hlo/analysis.h.
bool SameInstruction(const xla::HloInstruction& a, bool a_has_extras,
                     const xla::HloInstruction& b,
                     absl::FunctionRef<bool(const xla::HloComputation*,
                                            const xla::HloComputation*)>
                         same_computation);

// Whether two computations without dead code are isomorphic graphs.
// `HloComputation::Equal` does not distinguish two equal instructions from one
// that is used twice:
//
//   c = constant(0); add(c, c)      c = constant(0); d = constant(0); add(c, d)
bool SameGraph(const xla::HloComputation& a, const xla::HloComputation& b,
               absl::FunctionRef<bool(const xla::HloComputation*,
                                      const xla::HloComputation*)>
                   same_computation);

}  // namespace hloenv
