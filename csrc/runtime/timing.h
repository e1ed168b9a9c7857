// SPDX-License-Identifier: Apache-2.0
// Measures the durations of executables and of their kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/executable.h"

namespace hloenv {

struct TimingPlan {
  int64_t warmup = 1;    // discarded rounds
  int64_t rounds = 100;  // each executable is timed once in a round
  uint64_t seed = 0;     // of the order within each round
  // For each executable, the number of runs per measurement: several if one run
  // is too short for the clock.
  std::vector<int64_t> batch;
};

// Runs several executables in rounds, in a random order in each, and returns
// for each executable the duration of one run in every round, in ns, rounded.
// `inputs[i]` are those of executable i. All runs of an executable write to the
// same output memory, which is freed at the end.
absl::StatusOr<std::vector<std::vector<int64_t>>> TimeRuns(
    absl::Span<Executable* const> executables,
    absl::Span<const std::vector<const void*>> inputs, const TimingPlan& plan);

// Durations of the thunks of an executable, in sequence order.
struct StepTimes {
  std::vector<std::string> names;    // the instruction of each thunk
  std::vector<double> durations_ns;  // [rounds, thunks], row-major
  std::vector<double> totals_ns;     // [rounds], of XLA's own execution
};

// In each round, runs and times the thunks of an executable one after another,
// then runs and times XLA's own execution of all of them. A thunk that XLA
// splits among threads stays split. `is_warm`: runs kernels twice on the same
// memory and times the second run, whose inputs are in the caches. Errors:
// ExecuteError.
absl::StatusOr<StepTimes> TimeSteps(Executable& executable,
                                    absl::Span<const void* const> inputs,
                                    int64_t warmup, int64_t rounds,
                                    bool is_warm);

}  // namespace hloenv
