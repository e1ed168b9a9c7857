// SPDX-License-Identifier: Apache-2.0
#include "pipeline/xla_pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/container/btree_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "passes/pass_observer.h"
#include "passes/pipeline.h"
#include "rewrite/live_copy.h"
#include "runtime/cpu_client.h"
#include "runtime/own_calls.h"
#include "support/names.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/service/compiler.h"

namespace hloenv {
namespace {

using xla::HloModule;

std::atomic<InterruptCheck> interrupt_check{nullptr};

// Decides, for each pass run of one compile, whether it runs.
class Driver : public PassObserver {
 public:
  Driver(HloModule* module, const PipelineRun& run, const Stop* stop)
      : PassObserver(module),
        place_(run.place),
        decided_(ReadDecided(run.decided)),
        stop_(stop) {}

  std::vector<Stage>& stages() { return stages_; }
  std::unique_ptr<HloModule>& stopped_module() { return stopped_module_; }
  PipelinePosition& stopped_place() { return stopped_place_; }
  // Whether the compile reached the position to resume from.
  bool is_resumed() const { return !place_.has_value() || is_resumed_; }
  const absl::btree_set<std::string>& paths() const { return paths_; }
  int64_t num_stop_matches() const { return num_stop_matches_; }
  bool stop_was_earlier() const { return stop_was_earlier_; }

 protected:
  absl::Status OnPipeline(const PassInvocation& invocation) override;
  absl::StatusOr<bool> OnPass(const PassInvocation& invocation,
                              RunFn run) override;
  absl::StatusOr<bool> OnInvariantCheck(RunFn run) override {
    if (replaying()) return false;
    return run();
  }

 private:
  bool replaying() const {
    return place_.has_value() && changed_.size() < place_->changed.size();
  }
  // Records the invocation; an error status when the compile ends here.
  absl::Status OnInvocation(const PassInvocation& invocation, bool is_pass);
  absl::Status CheckInterrupt();
  // Runs the pass, without its decided rewrites.
  absl::StatusOr<bool> RunUndecided(const PassInvocation& invocation, RunFn run,
                                    Stage* stage);

  const std::optional<PipelinePosition> place_;
  const DecidedPasses decided_;
  const Stop* const stop_;

  bool is_resumed_ = false;
  bool is_first_ = true;  // no pass has run since the position
  // Path of the pipeline that the decisions replace.
  std::string decided_pipeline_;
  std::string changed_;  // as PipelinePosition::changed
  int64_t num_stop_matches_ = 0;
  bool stop_was_earlier_ = false;
  absl::btree_set<std::string> paths_;
  std::vector<Stage> stages_;
  std::unique_ptr<HloModule> stopped_module_;
  PipelinePosition stopped_place_;
  std::chrono::steady_clock::time_point last_check_;
};

absl::Status Driver::CheckInterrupt() {
  const InterruptCheck check = interrupt_check;
  const auto now = std::chrono::steady_clock::now();
  if (check == nullptr || now - last_check_ < kInterruptInterval) {
    return absl::OkStatus();
  }
  last_check_ = now;
  return check() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status Driver::OnInvocation(const PassInvocation& invocation,
                                  bool is_pass) {
  const std::string& path = invocation.path;
  paths_.insert(path);
  const bool is_stop = stop_ != nullptr && stop_->Matches(path) &&
                       ++num_stop_matches_ == stop_->occurrence;
  if (replaying()) {
    stop_was_earlier_ |= is_stop;
    return absl::OkStatus();
  }
  if (place_.has_value() && !is_resumed_) {
    // Pipelines come first: those around the position, and those in front of
    // it that have no passes.
    if (path == place_->path &&
        invocation.path_occurrence == place_->occurrence) {
      is_resumed_ = true;
    } else if (is_pass) {
      return Error(
          kPositionError,
          absl::StrCat("XLA's pipeline reaches '", path, "' instead of '",
                       place_->path,
                       "', the recorded position; the module or XLA's flags "
                       "have changed since, so run the pipeline again from its "
                       "start"));
    }
  }
  if (!is_stop) return absl::OkStatus();
  stopped_module_ = module()->Clone(/*suffix=*/"");
  stopped_place_ = {path, invocation.path_occurrence, changed_};
  return absl::CancelledError("hloenv stopped XLA's pipeline here");
}

absl::Status Driver::OnPipeline(const PassInvocation& invocation) {
  HLOENV_RETURN_IF_ERROR(OnInvocation(invocation, /*is_pass=*/false));
  if (!replaying() && is_first_ &&
      decided_.replaced.contains(invocation.name)) {
    decided_pipeline_ = invocation.path;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Driver::RunUndecided(const PassInvocation& invocation,
                                          RunFn run, Stage* stage) {
  const bool is_first = std::exchange(is_first_, false);
  if (!decided_pipeline_.empty() &&
      absl::StartsWith(invocation.path, absl::StrCat(decided_pipeline_, "/"))) {
    stage->skipped = true;
    return false;
  }
  decided_pipeline_.clear();
  const auto found = decided_.replaced.find(invocation.name);
  if (is_first && found != decided_.replaced.end()) {
    const ReplacedRun& replaced = found->second;
    stage->skipped = replaced.is_same || !IsNeeded(invocation.name);
    if (stage->skipped) return replaced.changed;
    HLOENV_ASSIGN_OR_RETURN(const bool changed, run());
    return changed || replaced.changed;
  }
  stage->skipped = decided_.skipped.contains(invocation.name);
  if (stage->skipped) return false;
  if (!decided_.filtered.contains(invocation.name)) return run();
  const ShadowPass pass = {invocation.name, [&invocation](HloModule* shadow) {
                             return invocation.pass->Run(shadow);
                           }};
  return RunWithout(decided_.rejected, pass, module(), run);
}

absl::StatusOr<bool> Driver::OnPass(const PassInvocation& invocation,
                                    RunFn run) {
  if (!replaying() &&
      !(decided_.skipped.empty() && decided_.filtered.empty())) {
    HLOENV_RETURN_IF_ERROR(LegalizeBefore(invocation.name, module()));
  }
  if (!replaying()) {
    HLOENV_RETURN_IF_ERROR(WorkAroundBugsBefore(invocation.name, module()));
  }
  HLOENV_RETURN_IF_ERROR(OnInvocation(invocation, /*is_pass=*/true));
  if (replaying()) {
    const char changed = place_->changed[changed_.size()];
    changed_ += changed;
    return changed == '1';
  }
  HLOENV_RETURN_IF_ERROR(CheckInterrupt());
  Stage stage;
  stage.name = invocation.name;
  stage.path = invocation.path;
  stage.occurrence = invocation.occurrence;
  stage.path_occurrence = invocation.path_occurrence;
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<bool> result = RunUndecided(invocation, run, &stage);
  if (!result.ok()) return result;
  if (!stage.skipped) {
    stage.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                            std::chrono::steady_clock::now() - start)
                            .count();
  }
  stage.changed = *result;
  changed_ += stage.changed ? '1' : '0';
  stages_.push_back(std::move(stage));
  return result;
}

struct Outcome {
  std::unique_ptr<HloModule> module;  // null when the compile was stopped
  std::vector<Stage> stages;
  std::unique_ptr<HloModule> stopped_module;
  PipelinePosition stopped_place;
  absl::btree_set<std::string> paths;
  int64_t num_stop_matches = 0;
  bool stop_was_earlier = false;  // the stop is before the given position
};

absl::StatusOr<Outcome> Drive(const Module& module, const PipelineRun& run,
                              const Stop* stop) {
  QuietScope scope;
  HLOENV_RETURN_IF_ERROR(CheckUnscheduled(module.hlo()));
  HLOENV_RETURN_IF_ERROR(CheckOwnCalls(module.hlo()));
  const bool is_decided = std::any_of(
      run.decided.begin(), run.decided.end(), [](const std::string& entry) {
        return entry == "onednn-calls" ||
               absl::StartsWith(entry, "onednn-calls?");
      });
  if (!run.place.has_value() && !is_decided) {
    HLOENV_RETURN_IF_ERROR(CheckNoOneDnn(module.hlo()));
  }
  HLOENV_RETURN_IF_ERROR(InstallRunHooks());
  // One compiler per process: XLA creates compilers under a lock, and a process
  // forked while the lock is held would deadlock.
  HLOENV_ASSIGN_OR_RETURN(xla::Compiler * compiler, CpuCompiler());
  std::unique_ptr<HloModule> clone = module.CloneHlo();
  Outcome outcome;
  Driver driver(clone.get(), run, stop);
  absl::StatusOr<std::unique_ptr<HloModule>> result = compiler->RunHloPasses(
      std::move(clone), /*executor=*/nullptr, xla::Compiler::CompileOptions{});
  outcome.stages = std::move(driver.stages());
  outcome.stopped_module = std::move(driver.stopped_module());
  outcome.stopped_place = std::move(driver.stopped_place());
  outcome.paths = driver.paths();
  outcome.num_stop_matches = driver.num_stop_matches();
  outcome.stop_was_earlier = driver.stop_was_earlier();
  if (outcome.stopped_module != nullptr) return outcome;
  if (!result.ok()) {
    if (result.status().GetPayload(kErrorKindUrl) ||
        absl::IsCancelled(result.status())) {
      return result.status();
    }
    return Annotate(result.status(), kCompileError, "XLA's pipeline failed");
  }
  if (!driver.is_resumed()) {
    return Error(kPositionError,
                 absl::StrCat("XLA's pipeline did not reach '", run.place->path,
                              "' again, the position at which this module was "
                              "extracted"));
  }
  outcome.module = *std::move(result);
  return outcome;
}

// Why the pipeline ended without reaching `stop`.
std::string NotReached(const Stop& stop, const Outcome& outcome) {
  if (outcome.num_stop_matches > 0) {
    return absl::StrCat(
        "XLA's pipeline reaches '", stop.where, "' ", outcome.num_stop_matches,
        outcome.num_stop_matches == 1 ? " time" : " times",
        outcome.num_stop_matches < stop.occurrence
            ? absl::StrCat(", not ", stop.occurrence)
            : "",
        outcome.stop_was_earlier ? ", and the module is past that" : "");
  }
  // Names that contain the other rank first, then by edit distance.
  const std::string wanted =
      NormalName(stop.where.substr(stop.where.rfind('/') + 1));
  absl::btree_set<std::string> names;
  for (const std::string& path : outcome.paths) {
    names.insert(path.substr(path.rfind('/') + 1));
  }
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const std::string normal = NormalName(name);
    const bool holds =
        absl::StrContains(normal, wanted) || absl::StrContains(wanted, normal);
    ranked.push_back({holds ? 0 : EditDistance(wanted, normal), name});
  }
  std::sort(ranked.begin(), ranked.end());
  constexpr size_t kNumShown = 5;
  if (ranked.size() > kNumShown) ranked.resize(kNumShown);
  return absl::StrCat("XLA's pipeline for this module never reaches '",
                      stop.where, "'; similar names are ",
                      absl::StrJoin(ranked, ", ",
                                    [](std::string* out, const auto& entry) {
                                      absl::StrAppend(out, "'", entry.second,
                                                      "'");
                                    }),
                      "; list_stages(module) lists all");
}

}  // namespace

bool Stop::Matches(absl::string_view path) const {
  return path == where || absl::EndsWith(path, absl::StrCat("/", where));
}

void SetInterruptCheck(InterruptCheck check) { interrupt_check = check; }

absl::StatusOr<std::vector<Stage>> ListStages(const Module& module,
                                              const PipelineRun& run) {
  HLOENV_ASSIGN_OR_RETURN(Outcome outcome, Drive(module, run, nullptr));
  return std::move(outcome.stages);
}

absl::StatusOr<std::pair<Module, PipelinePosition>> RunUntil(
    const Module& module, const Stop& stop, const PipelineRun& run) {
  if (stop.where.empty() || stop.occurrence < 1) {
    return Error(kPositionError,
                 absl::StrCat("a stop needs the name or path of a pass and an "
                              "occurrence >= 1, got '",
                              stop.where, "' and ", stop.occurrence));
  }
  HLOENV_ASSIGN_OR_RETURN(Outcome outcome, Drive(module, run, &stop));
  if (outcome.stopped_module == nullptr) {
    return Error(kPositionError, NotReached(stop, outcome));
  }
  return std::make_pair(Module(std::move(outcome.stopped_module)),
                        std::move(outcome.stopped_place));
}

absl::StatusOr<Module> Finish(const Module& module, const PipelineRun& run) {
  HLOENV_ASSIGN_OR_RETURN(Outcome outcome, Drive(module, run, nullptr));
  return Module(std::move(outcome.module));
}

}  // namespace hloenv
