// SPDX-License-Identifier: Apache-2.0
// Pipelines of passes, run once or to a fixed point, as one XLA pass.
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

class CandidatePass;

// A single pass is a pipeline with one step.
struct PipelineSpec {
  std::string name;  // as in provenance and traces
  std::vector<std::variant<PassSpec, PipelineSpec>> steps;
  // Repeat the steps until one round changes nothing, at most `max_iterations`
  // rounds.
  bool fixed_point = false;
  int max_iterations = 25;
  // Proposals of the caller (proposals/given.h), for a capture only; `steps` is
  // empty then.
  std::shared_ptr<const CandidatePass> given = nullptr;
};

using PipelineStep = std::variant<PassSpec, PipelineSpec>;

// A pipeline of one pass, with the pass's name.
PipelineSpec SinglePass(PassSpec pass);

// Names of the passes in `spec`, those of inner pipelines too, in order.
std::vector<std::string> PassNamesIn(const PipelineSpec& spec);

// Checks that every pass exists, that every option is valid, that no pipeline
// is empty and that `max_iterations` >= 1. Errors: UnknownPassError,
// PassOptionError.
absl::Status CheckPipeline(const PipelineSpec& spec);

// PassError for a scheduled module: passes do not update the schedule, which
// would then point at freed instructions.
absl::Status CheckUnscheduled(const xla::HloModule& module);

// Whether `spec` is one candidate pass of the catalog (candidate.h) and nothing
// else.
bool IsCandidatePipeline(const PipelineSpec& spec);

enum class StopReason {
  kRanOnce,         // not a fixed point: every step ran once
  kConverged,       // the last round changed nothing
  kIterationLimit,  // the last allowed round still changed the module
};

// "ran-once", "converged" or "iteration-limit".
absl::string_view StopReasonName(StopReason reason);

// One run of one step. The entry of a nested pipeline precedes those of its
// steps.
struct StepResult {
  std::string path;   // "simplify/algsimp": the enclosing pipelines, outermost
                      // first, without the outermost one, and the name
  int iteration = 0;  // of the enclosing pipeline, from 0
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

// Creates an XLA pass named `spec.name` that runs `spec`; for SinglePass(p),
// XLA's own pass object. Use an object for one run only. Errors: those of
// CheckPipeline, and PassError for a candidate pass, which has no XLA pass
// object.
absl::StatusOr<std::unique_ptr<xla::HloPassInterface>> MakeRunnable(
    const PipelineSpec& spec);

// Runs `spec` on a clone of `module`, with new pass objects. Errors: those of
// MakeRunnable, and PassError when a pass fails, which names the step, or when
// the module becomes invalid.
absl::StatusOr<std::pair<Module, PipelineResult>> RunPassesOnClone(
    const PipelineSpec& spec, const Module& module);

}  // namespace hloenv
