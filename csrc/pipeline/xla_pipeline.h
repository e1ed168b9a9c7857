// SPDX-License-Identifier: Apache-2.0
// XLA's own CPU pipeline, driven from outside: listed, stopped in front of a
// pass, gone on with from there.
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
// itself is one stage; the verifiers that check invariants are none.
struct Stage {
  std::string name;
  // The pipelines that hold it, outermost first, and its name: "a/b/algsimp".
  std::string path;
  int64_t occurrence = 1;       // which run of this name, from 1
  int64_t path_occurrence = 1;  // which run of this path, from 1
  bool changed = false;         // as the pass reported
  bool skipped = false;         // did not run, because it had been decided
  int64_t duration_ns = 0;
};

// In front of which pass a module stands: XLA's pipeline has run up to there.
//
// To go on, the pipeline is started again and each earlier pass is answered
// with what it reported the first time, without running, so that pipelines that
// repeat until nothing changes take the same way again, to the same iteration.
struct Place {
  std::string path;        // of the stage, or of the pipeline, that comes next
  int64_t occurrence = 1;  // which arrival at this path, from 1
  std::string changed;     // '0' or '1' for each earlier stage, in order

  bool operator==(const Place& other) const {
    return path == other.path && occurrence == other.occurrence &&
           changed == other.changed;
  }
};

// Where to stop: the `occurrence`-th arrival (from 1, counted from the
// pipeline's start) at a pass or pipeline whose path ends with `where`
// ("fusion", "simplification/algsimp").
struct Stop {
  std::string where;
  int64_t occurrence = 1;

  bool Matches(absl::string_view path) const;
};

// The rest of XLA's pipeline, as asked for.
struct PipelineRun {
  std::optional<Place> place;  // go on from here; else from the start
  // What was decided, one entry for each
  //   "fusion"        pass to leave out;
  //   "algsimp?"      pass that was decided;
  //   "algsimp?1f…"   rewrite of it that was rejected (Capture::Identity);
  //   "algsimp!1"     run of a pass or pipeline that the decisions stand for,
  //                   if it comes first; whether it changed anything.
  std::vector<std::string> decided;
};

// A pass of XLA's pipeline that would redo what was rejected of another pass.
struct SkipRule {
  absl::string_view decided;  // a pass that the caller decided
  absl::string_view skipped;  // a pass of XLA's pipeline
  absl::string_view reason;
  // It runs, but for the rewrites that were rejected; otherwise it does not.
  bool makes_the_same = false;
};
// Sorted by `decided`.
const std::vector<SkipRule>& SkipRules();

// A pass that XLA's pipeline always runs, also when it was decided, because the
// backend cannot take what it leaves.
struct NeededPass {
  absl::string_view name;  // a final '*' stands for any ending
  absl::string_view reason;
};
// Sorted by name.
const std::vector<NeededPass>& NeededPasses();

// Removes what makes a pass or the backend crash and what only passes that
// were left out would have removed.
absl::Status LegalizeBefore(absl::string_view pass, xla::HloModule* module);

// Works around bugs of XLA's that any module may meet, in front of a pass:
// * topk-decomposer crashes where something reads a top-k other than by
//   get-tuple-element: such readers get a tuple of these;
// * rng-bit-generator-expander crashes where the result is the bits without the
//   next state: such instructions get both;
// * layout assignment may give a fusion with several results, which XLA itself
//   makes later only, other layouts than its body computes, so that the backend
//   would write the results in the wrong order: CompileError.
absl::Status WorkAroundBugsBefore(absl::string_view pass,
                                  xla::HloModule* module);

// What decisions mean for the passes of XLA's pipeline.
struct DecidedPasses {
  absl::flat_hash_set<std::string> skipped;   // do not run
  absl::flat_hash_set<std::string> filtered;  // run without what was rejected
  absl::flat_hash_set<std::string> rejected;  // identities of rewrites
  absl::flat_hash_map<std::string, bool> answers;  // of the first run
};
// `entries` as PipelineRun::decided.
DecidedPasses ReadDecided(const std::vector<std::string>& entries);

// Whether a pass always runs (NeededPasses).
bool IsNeeded(absl::string_view name);

// Called now and then between passes, on the thread that compiles; true ends
// the compile with a Cancelled status. One for the process; null by default.
using InterruptCheck = bool (*)();
inline constexpr std::chrono::milliseconds kInterruptInterval(50);
void SetInterruptCheck(InterruptCheck check);

// Runs the pipeline on a clone and lists what ran. Errors: CompileError when a
// pass fails, HookError.
absl::StatusOr<std::vector<Stage>> ListStages(const Module& module,
                                              const PipelineRun& run = {});

// Runs the pipeline on a clone up to `stop`, but for what was decided against.
// PlaceError when the pipeline never arrives there, or is past it already; the
// message lists near names.
absl::StatusOr<std::pair<Module, Place>> RunUntil(const Module& module,
                                                  const Stop& stop,
                                                  const PipelineRun& run = {});

// Runs the pipeline on a clone to its end, but for what was decided against.
// PlaceError when the pipeline does not reach `run.place` again.
absl::StatusOr<Module> Finish(const Module& module,
                              const PipelineRun& run = {});

}  // namespace hloenv
