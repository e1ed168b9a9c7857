// SPDX-License-Identifier: Apache-2.0
// Runs a module in XLA's evaluator: without passes and code generation, so
// nothing repeats or undoes a decision. Slow.
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

// Called for every custom call with its operands; returns its value. Called
// many times for an instruction inside a loop.
using OnCustomCall = std::function<absl::StatusOr<xla::Literal>(
    const xla::HloInstruction*, absl::Span<const xla::Literal*>)>;

// Takes one array for each flat leaf of the inputs and returns one for each of
// the outputs. ArgumentError when the number or a size is wrong, ExecuteError
// when the evaluator does not support an instruction (custom calls need
// `on_custom_call`). `on_attempt` is called before each of several ways to
// evaluate the module, of which the first may fail after some custom calls.
absl::StatusOr<std::vector<std::string>> Interpret(
    const Module& module, absl::Span<const Bytes> inputs,
    OnCustomCall on_custom_call = nullptr,
    const std::function<void()>& on_attempt = nullptr);

// Expands instructions of `module` that XLA's evaluator does not support:
// batching dimensions of gather and scatter, which the evaluator silently
// ignores, Cholesky decompositions and triangular solves; and adds copies where
// a fusion's body has other layouts. Interpret calls this itself; call it to
// get the instructions that Interpret runs.
absl::StatusOr<Module> ForEvaluator(const Module& module);

}  // namespace hloenv
