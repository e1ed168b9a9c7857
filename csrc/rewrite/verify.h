// SPDX-License-Identifier: Apache-2.0
// Checks that every choice computes the same value as its original.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rewrite/capture.h"
#include "runtime/interpreter.h"

namespace hloenv {

// Error of one choice relative to its original, over all elements, sites and
// loop iterations.
struct ChoiceError {
  // Largest |choice - original| where the original is a number; inf if the
  // choice is NaN there.
  double absolute = 0;
  double relative = 0;  // the same over the largest |original| of that array
  // Elements that are NaN in the original only. (XLA rewrites 0 * x to 0 for
  // every x.)
  int64_t num_nans_lost = 0;
  int64_t num_compared = 0;     // elements that are numbers in the original
  int64_t num_evaluations = 0;  // 0: the alternative was not evaluated
};

// Runs the alternative graph once, evaluates all choices of each alternative
// and continues with the original. The result is by alternative and choice,
// without choice 0. For an alternative of kind "pass", the module's outputs are
// compared. Errors: those of Interpret.
absl::StatusOr<std::vector<std::vector<ChoiceError>>> VerifyAlternatives(
    const Capture& capture, absl::Span<const Bytes> inputs);

// As VerifyAlternatives, for an alternative graph without its capture, such as
// one upcast to another type; `num_choices` as in the capture. Does not
// evaluate alternatives of kind "pass".
absl::StatusOr<std::vector<std::vector<ChoiceError>>> VerifyGraph(
    const Module& graph, absl::Span<const int64_t> num_choices,
    absl::Span<const Bytes> inputs);

// The largest change of the originals of `alternatives` of the alternative
// graph `graph` when every rounding is perturbed (perturb.h), over `num_runs`
// runs. A choice that differs from its
// original only in rounding may have an error of this size. `num_evaluations`
// as above. Errors: those of Interpret.
absl::StatusOr<std::vector<ChoiceError>> MeasureRounding(
    const Module& graph, absl::Span<const Bytes> inputs,
    const std::vector<int64_t>& alternatives, int num_runs);

}  // namespace hloenv
