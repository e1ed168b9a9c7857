// SPDX-License-Identifier: Apache-2.0
// Does every choice compute what its original computes?
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rewrite/capture.h"
#include "runtime/interpreter.h"

namespace hloenv {

// How far one choice was from its original, over all elements, sites and, in
// loops, iterations.
struct ChoiceError {
  // Largest |choice - original| where the original is a number; inf if the
  // choice is NaN there.
  double absolute = 0;
  double relative = 0;  // the same over the largest |original| of that array
  // Elements that are NaN in the original alone. XLA takes 0 * x for 0,
  // whatever x is.
  int64_t num_nans_lost = 0;
  int64_t num_evaluations = 0;  // 0: nothing reached the alternative
};

// Runs the alternative graph once, all choices beside their originals, the
// originals going on. By alternative and choice, choice 0 left out. An
// alternative of kind "pass" has no value of its own: its outputs are compared.
// Errors: those of Interpret.
absl::StatusOr<std::vector<std::vector<ChoiceError>>> VerifyAlternatives(
    const Capture& capture, absl::Span<const Bytes> inputs);

// The same for an alternative graph by itself, as where it was upcast to
// another type; `num_choices` as in the capture. Alternatives of kind "pass"
// have no value there: nothing is evaluated for them.
absl::StatusOr<std::vector<std::vector<ChoiceError>>> VerifyGraph(
    const Module& graph, absl::Span<const int64_t> num_choices,
    absl::Span<const Bytes> inputs);

// How far the originals of some alternatives move when every rounding does
// (perturb.h): the worst of `num_runs` runs, by the order of `alternatives`. No
// choice that only rounds differently need be nearer. `num_evaluations` as
// above. Errors: those of Interpret.
absl::StatusOr<std::vector<ChoiceError>> MeasureRounding(
    const Capture& capture, absl::Span<const Bytes> inputs,
    const std::vector<int64_t>& alternatives, int num_runs);

}  // namespace hloenv
