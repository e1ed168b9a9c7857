// SPDX-License-Identifier: Apache-2.0
// Passes in order, once or to a fixed point, as one XLA pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/module.h"
#include "passes/registry.h"

namespace xla {
class HloModule;
class HloPassInterface;
}  // namespace xla

namespace hloenv {

// A pass alone is a pipeline of one.
struct PipelineSpec {
  std::string name;  // what provenance and traces call it
  std::vector<std::variant<PassSpec, PipelineSpec>> steps;
  // Run the steps again until one round changes nothing, at most
  // `max_iterations` rounds.
  bool fixed_point = false;
  int max_iterations = 25;
};

using PipelineStep = std::variant<PassSpec, PipelineSpec>;

// A pipeline of one pass, with the pass's name.
PipelineSpec SinglePass(PassSpec pass);

// Names of the passes in `spec`, those of inner pipelines too, in order.
std::vector<std::string> PassNamesIn(const PipelineSpec& spec);

// Every pass exists, every option fits, no pipeline is empty or has
// `max_iterations` below 1. Errors: UnknownPassError, PassOptionError.
absl::Status CheckPipeline(const PipelineSpec& spec);

// PassError for a scheduled module: passes remove and add instructions without
// keeping the schedule, which then points at freed memory.
absl::Status CheckUnscheduled(const xla::HloModule& module);

// Whether `spec` is one candidate pass (candidate.h) and nothing else.
bool IsCandidatePipeline(const PipelineSpec& spec);

enum class StopReason {
  kRanOnce,         // not a fixed point: every step ran once
  kConverged,       // the last round changed nothing
  kIterationLimit,  // the last allowed round still changed the module
};

// "ran-once", "converged" or "iteration-limit".
absl::string_view StopReasonName(StopReason reason);

// One run of one step; nested pipelines show as their own step followed by
// theirs.
struct StepResult {
  std::string path;   // "simplify/algsimp": the pipelines that hold it,
                      // outermost first, without the whole pipeline's own name
  int iteration = 0;  // of the pipeline that holds the step, from 0
  bool changed = false;  // as the pass reported
  int64_t duration_ns = 0;
};

struct PipelineResult {
  bool changed = false;
  int iterations = 0;  // rounds of the outermost pipeline
  StopReason stop_reason = StopReason::kRanOnce;
  int64_t duration_ns = 0;
  std::vector<StepResult> steps;  // in the order in which they started
};

// An XLA pass, or a pipeline of them, as one XLA pass named `spec.name`. For
// SinglePass(p) it is XLA's own object. One object serves one run. The errors
// of CheckPipeline, and PassError for a candidate pass, which has no XLA pass
// object.
absl::StatusOr<std::unique_ptr<xla::HloPassInterface>> MakeRunnable(
    const PipelineSpec& spec);

// Runs `spec` on `module`, with new pass objects. After an error the module is
// in whatever state the failing pass left: run on a clone. The errors of
// MakeRunnable, and PassError, naming the step, when a pass fails.
absl::StatusOr<PipelineResult> RunPasses(const PipelineSpec& spec,
                                         xla::HloModule* module);

// RunPasses on a clone. `module` stays as it is.
absl::StatusOr<std::pair<Module, PipelineResult>> RunPassesOnClone(
    const PipelineSpec& spec, const Module& module);

}  // namespace hloenv
