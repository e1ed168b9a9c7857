// SPDX-License-Identifier: Apache-2.0
// Measures the sensitivity of a module's values to rounding: runs it with every
// rounded value moved up or down by 1 ulp at random. Differences between such
// runs come from rounding alone, and reveal cancellation, chaotic dynamics,
// narrow intermediate types and comparisons that are sensitive to 1 ulp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"
#include "runtime/interpreter.h"

namespace hloenv {

// A clone of `module` with a custom call after each instruction that rounds,
// except in computations that are applied to single elements.
absl::StatusOr<Module> WithRoundings(const Module& module);

// Handlers for these custom calls, which return the operand perturbed (by
// `seed`) or unchanged. All other calls go to `other`.
OnCustomCall PerturbRoundings(uint64_t seed, OnCustomCall other = nullptr);
OnCustomCall KeepRoundings(OnCustomCall other);

// Interpret, with every rounding perturbed.
absl::StatusOr<std::vector<std::string>> InterpretPerturbed(
    const Module& module, absl::Span<const Bytes> inputs, uint64_t seed);

}  // namespace hloenv
