// SPDX-License-Identifier: Apache-2.0
// Sources and users of values, across tuples, fusions, calls, loops and
// conditionals.
#pragma once

#include <vector>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape_util.h"

namespace hloenv {

// The instructions that may compute the value of `instruction` at `index`,
// found through instructions that only forward values: tuples, parameters of
// called computations, calls, fusions, loops and conditionals. Each once. A
// superset: includes values on paths that the program never takes.
std::vector<const xla::HloInstruction*> SourcesOf(
    const xla::HloInstruction& instruction, const xla::ShapeIndex& index = {});

// Whether the values of `instruction` are those of others, which `SourcesOf`
// finds.
bool OnlyForwards(const xla::HloInstruction& instruction);

// Whether `instruction` is a fusion, or an element of its result.
bool IsOfFusion(const xla::HloInstruction& instruction);

// The instruction that `instruction`, a fusion, an element of a tuple or a
// parameter of a fusion, passes the value of on; null for all others.
const xla::HloInstruction* PassedOnFrom(const xla::HloInstruction& instruction);

// What computes the value of `instruction`, inside its fusion if it has one:
// the last that `PassedOnFrom` leads to.
const xla::HloInstruction& ComputedBy(const xla::HloInstruction& instruction);

// What computes each result of `instruction`: one, or those of the elements of
// a fusion's tuple.
std::vector<const xla::HloInstruction*> ResultsOf(
    const xla::HloInstruction& instruction);

// The instructions that read the array that `instruction` computes, inside
// fusions where one reads it there. Each once for each fusion operand that it
// reads it through. A computation's root that is no fusion's counts as a user
// of itself.
std::vector<const xla::HloInstruction*> ReadersOf(
    const xla::HloInstruction& instruction);

}  // namespace hloenv
