// SPDX-License-Identifier: Apache-2.0
// How much of a module's values is rounding? Runs it with every rounding off by
// one unit in the last place, up or down by chance: what differs between such
// runs is not determined by the program, whatever the inputs. That sees
// cancellation, chaos, narrow types on the way, and comparisons that hang on
// the last bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"
#include "runtime/interpreter.h"

namespace hloenv {

// A clone of `module` with a custom call behind each instruction that rounds,
// in all computations but those that are applied to single elements.
absl::StatusOr<Module> WithRoundings(const Module& module);

// What those custom calls give: their operand, perturbed as the seed decides,
// or as it is. All other calls go to `other`.
OnCustomCall PerturbRoundings(uint64_t seed, OnCustomCall other = nullptr);
OnCustomCall KeepRoundings(OnCustomCall other);

// Interpret, with every rounding perturbed.
absl::StatusOr<std::vector<std::string>> InterpretPerturbed(
    const Module& module, absl::Span<const Bytes> inputs, uint64_t seed);

}  // namespace hloenv
