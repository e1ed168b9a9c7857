// SPDX-License-Identifier: Apache-2.0
// Runs XLA's CPU pipeline: lists its passes, stops it before a pass, and
// resumes it from there.
//
// Compiles on the caller's thread and decides for each pass whether it runs
// (passes/pass_observer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/module.h"

namespace hloenv {

// One run of one pass by XLA's pipeline. A pass that runs other passes inside
// itself is one stage; invariant checkers are not stages.
struct Stage {
  std::string name;
  // The enclosing pipelines, outermost first, and the name: "a/b/algsimp".
  std::string path;
  int64_t occurrence = 1;       // which run of this name, from 1
  int64_t path_occurrence = 1;  // which run of this path, from 1
  bool changed = false;         // as the pass reported
  bool skipped = false;         // did not run, because of the decisions
  int64_t duration_ns = 0;
};

// A position in XLA's pipeline: all earlier passes have run on the module.
//
// To resume, the pipeline starts again; each earlier pass does not run but
// reports the same `changed` value as the first time, so that pipelines that
// run to a fixed point reach the same iteration.
struct PipelinePosition {
  std::string path;        // of the next stage or pipeline
  int64_t occurrence = 1;  // which invocation of this path, from 1
  std::string changed;     // '0' or '1' for each earlier stage, in order

  bool operator==(const PipelinePosition& other) const {
    return path == other.path && occurrence == other.occurrence &&
           changed == other.changed;
  }
};

// Where to stop: before the `occurrence`-th invocation (from 1, counted from
// the pipeline's start) of a pass or pipeline whose path ends with `where`
// ("fusion", "simplification/algsimp").
struct Stop {
  std::string where;
  int64_t occurrence = 1;

  bool Matches(absl::string_view path) const;
};

// How to run XLA's pipeline from a position on.
struct PipelineRun {
  std::optional<PipelinePosition> place;  // resume here; else from the start
  // The decisions so far; each entry is one of
  //   "fusion"        skip this pass;
  //   "algsimp?"      this pass was decided;
  //   "algsimp?1f…"   this rewrite of it was rejected (Capture::Identity);
  //   "algsimp!1"     if this pass or pipeline comes first, the decisions
  //                   replace its run; 1 if they changed the module, else 0;
  //   "algsimp!1="    the same, and the module is what the run leaves.
  std::vector<std::string> decided;
};

// A pass of XLA's pipeline that would repeat rejected rewrites of another pass.
struct SkipRule {
  absl::string_view decided;  // a pass that the caller decided
  absl::string_view skipped;  // a pass of XLA's pipeline
  absl::string_view reason;
  // If true, the pass runs without the rejected rewrites; else it is skipped.
  bool makes_the_same = false;
};
// Sorted by `decided`.
const std::vector<SkipRule>& SkipRules();

// A pass that XLA's pipeline always runs, even when it was decided, because the
// backend needs its result.
struct NeededPass {
  absl::string_view name;  // a final '*' matches any suffix
  absl::string_view reason;
};
// Sorted by name.
const std::vector<NeededPass>& NeededPasses();

// Removes constructs that crash `pass` or the backend and that only skipped
// passes would have removed.
absl::Status LegalizeBefore(absl::string_view pass, xla::HloModule* module);

// Works around XLA bugs that occur without any decision, before `pass`:
// * topk-decomposer crashes where an instruction other than get-tuple-element
//   reads a top-k: such users get a tuple of get-tuple-elements;
// * rng-bit-generator-expander crashes where the result holds only the bits and
//   not the next state: such instructions return both;
// * the fusion emitter crashes on clamps with scalar bounds, which HLO allows:
//   the bounds are broadcast before fusion;
// * layout assignment may give a fusion with several results layouts that
//   differ from those of its body, so that the backend would write the results
//   in the wrong order (XLA itself makes such fusions only later):
//   CompileError.
absl::Status WorkAroundBugsBefore(absl::string_view pass,
                                  xla::HloModule* module);

// A run of XLA's that decisions replace.
struct ReplacedRun {
  bool changed = false;  // they changed the module
  // They left what XLA's run leaves. Else needed passes run on what they left.
  bool is_same = false;
};

// The effect of decisions on the passes of XLA's pipeline.
struct DecidedPasses {
  absl::flat_hash_set<std::string> skipped;   // do not run
  absl::flat_hash_set<std::string> filtered;  // run without rejected rewrites
  absl::flat_hash_set<std::string> rejected;  // identities of rewrites
  // The first runs that decisions replace.
  absl::flat_hash_map<std::string, ReplacedRun> replaced;
};
// `entries` as PipelineRun::decided.
DecidedPasses ReadDecided(const std::vector<std::string>& entries);

// Whether a pass always runs (NeededPasses).
bool IsNeeded(absl::string_view name);

// Polled between passes, on the compile thread, at kInterruptInterval; true
// ends the compile with a Cancelled status. One per process; null by default.
using InterruptCheck = bool (*)();
inline constexpr std::chrono::milliseconds kInterruptInterval(50);
void SetInterruptCheck(InterruptCheck check);

// Runs the pipeline on a clone and lists its stages. Errors: CompileError when
// a pass fails, HookError.
absl::StatusOr<std::vector<Stage>> ListStages(const Module& module,
                                              const PipelineRun& run = {});

// Runs the pipeline on a clone up to `stop`, without rejected rewrites.
// PositionError when the pipeline never reaches `stop`, or is past it already;
// the message lists similar names.
absl::StatusOr<std::pair<Module, PipelinePosition>> RunUntil(
    const Module& module, const Stop& stop, const PipelineRun& run = {});

// Runs the pipeline on a clone to its end, without rejected rewrites.
// PositionError when the pipeline does not reach `run.place` again.
absl::StatusOr<Module> Finish(const Module& module,
                              const PipelineRun& run = {});

}  // namespace hloenv
