// SPDX-License-Identifier: Apache-2.0
// How long executables take, whole and kernel by kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/executable.h"

namespace hloenv {

struct TimingPlan {
  int64_t warmup = 1;    // rounds before the first that counts
  int64_t rounds = 100;  // each executable is timed once in a round
  uint64_t seed = 0;     // of the order within each round
  // For each executable how often it runs for one duration: several runs where
  // one is too short for the clock.
  std::vector<int64_t> batch;
};

// Runs several executables in rounds, in a random order in each, and returns
// for each executable the duration in ns of one run in every round, rounded.
// `inputs[i]` are those of executable i. Outputs stay where they are from run
// to run and are dropped at the end.
absl::StatusOr<std::vector<std::vector<int64_t>>> TimeRuns(
    absl::Span<Executable* const> executables,
    absl::Span<const std::vector<const void*>> inputs, const TimingPlan& plan);

// What XLA's executor starts, one by one and in order.
struct StepTimes {
  std::vector<std::string> names;    // the instruction behind each step
  std::vector<double> durations_ns;  // [rounds, steps], row by row
  std::vector<double> totals_ns;     // [rounds], when XLA itself starts them
};

// Runs an executable one step after the other, none beside another, and times
// each; then lets XLA run all of them as it does, and times that. A step that
// XLA itself cuts into parallel pieces keeps them. `is_warm`: kernels run
// twice from the same memory, and the second run counts, which finds its inputs
// in the caches.
// Errors: ExecuteError.
absl::StatusOr<StepTimes> TimeSteps(Executable& executable,
                                    absl::Span<const void* const> inputs,
                                    int64_t warmup, int64_t rounds,
                                    bool is_warm);

}  // namespace hloenv
