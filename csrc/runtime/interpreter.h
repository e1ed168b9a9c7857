// SPDX-License-Identifier: Apache-2.0
// Runs a module in XLA's evaluator, exactly as written: no pass and no code
// generation, so nothing repeats or undoes a decision. Slow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"

namespace xla {
class HloInstruction;
class Literal;
}  // namespace xla

namespace hloenv {

// The bytes of one array, row-major.
using Bytes = absl::Span<const uint8_t>;

// Called for every custom call with its operands; returns its value. May be
// called many times for one instruction, inside loops.
using OnCustomCall = std::function<absl::StatusOr<xla::Literal>(
    const xla::HloInstruction*, absl::Span<const xla::Literal*>)>;

// One array for each flat leaf of the inputs; one for each of the outputs.
// ArgumentError when the number or a size is wrong, ExecuteError when the
// evaluator does not know an instruction, custom calls without `on_custom_call`
// among them.
absl::StatusOr<std::vector<std::string>> Interpret(
    const Module& module, absl::Span<const Bytes> inputs,
    OnCustomCall on_custom_call = nullptr);

// `module` as XLA's evaluator can run it, or itself. The evaluator ignores the
// batching dimensions of gather and scatter and gives wrong values without a
// word, and knows no Cholesky decompositions and triangular solves, so all of
// those are written out first. Interpret does so too; a caller needs this where
// it has to know the instructions that are run.
absl::StatusOr<Module> ForEvaluator(const Module& module);

}  // namespace hloenv
