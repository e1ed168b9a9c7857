// SPDX-License-Identifier: Apache-2.0
// Runs XLA's compiler and pauses it before each of its passes.
//
// The compile runs on a thread of its own. Before a pass, that thread waits;
// the caller may read the module, capture the rewrites of XLA's own pass object
// and choose an action: run the pass, skip it, or apply decisions instead. Only
// one of the two threads runs at any time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "passes/pass_observer.h"
#include "passes/pipeline.h"
#include "pipeline/target.h"
#include "pipeline/xla_pipeline.h"
#include "rewrite/capture.h"
#include "support/native_scope.h"
#include "support/quiet.h"

namespace hloenv {

class Interception {
 public:
  // Starts to compile a clone of `module`. Dropping the last handle closes the
  // interception. Errors: HookError.
  static absl::StatusOr<std::shared_ptr<Interception>> Start(
      const Module& module, Target target);
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;

  // Waits until the compile pauses before a pass, and returns that invocation,
  // or until it has ended, and returns none. Errors: CompileError when the
  // compile failed; Cancelled when `is_interrupted`, polled at
  // kInterruptInterval, returns true (the compile continues; call again).
  absl::StatusOr<std::optional<PassInvocation>> Wait(
      InterruptCheck is_interrupted);

  // Each of the following functions applies to the paused pass, and returns
  // InterceptError when the compile is not paused. In a forked process, which
  // has no compile thread, these functions and Wait return InterceptError.

  // A copy of the module at this point; the same copy until the pass is
  // resumed.
  absl::StatusOr<Module> ModuleHere();
  // The rewrites of the paused pass and then of `others`.
  absl::StatusOr<std::shared_ptr<const Capture>> CaptureHere(
      const std::vector<PipelineSpec>& others);
  // Lets the pass run.
  absl::Status Run();
  // Skips the pass.
  absl::Status Skip();
  // Applies decisions on the last result of CaptureHere; `capture` is that
  // result or null. Runs the pass when the decisions accept exactly its
  // rewrites. Errors: DecisionError, also for accepting an indivisible rewrite
  // of another pass.
  absl::Status Apply(const Capture* capture,
                     const std::vector<int64_t>& decisions);
  // Runs this pass and all later ones up to `stop`.
  absl::Status RunUntil(const Stop& stop);
  // Runs this pass and all later ones. Also valid after the compile has ended.
  absl::Status RunToTheEnd();

  // Whether the last resumed pass reported a change. False after Skip.
  bool last_changed();
  // The optimized module, once the compile has ended.
  absl::StatusOr<Module> Result();
  // Whether the compile is paused before a pass.
  bool is_paused() const { return state_ == State::kPaused; }
  // Ends the compile before the next pass and waits for that, but at most some
  // seconds: when a pass does not end, its thread and this object are leaked.
  // Does nothing in a forked process, which has no compile thread.
  void Close();

 private:
  class Observer;
  // Held by the compile thread while it does not wait.
  struct Working {
    NativeScope native;
    QuietScope scope;
  };
  enum class State { kRunning, kPaused, kEnded };
  // kChanged and kSame: do not run the pass; report a change or none.
  enum class Action { kNone, kRun, kSkip, kChanged, kSame, kCancel };

  explicit Interception(const Module& module, Target target);

  void Compile();
  bool IsForked() const;
  absl::Status CheckProcess() const;
  void CountInvocation(const PassInvocation& invocation);
  absl::StatusOr<bool> OnPass(const PassInvocation& invocation,
                              xla::HloModule* live, PassObserver::RunFn run);
  absl::Status CheckPaused();
  // Fills copy_ and live_of_.
  absl::Status CopyHere();
  absl::StatusOr<ShadowPass> WaitingPass();
  void Resume(Action action);
  void Cancel();

  const Module given_;
  const Target target_;
  const pid_t pid_;
  std::unique_ptr<std::thread> thread_;  // null once closed
  std::optional<Working> working_;

  // Serializes the public functions.
  std::mutex call_mutex_;
  // Copy of the paused module, made on demand.
  std::optional<Module> copy_;
  std::unique_ptr<xla::HloCloneContext> live_of_;  // from copy_ to live_
  std::shared_ptr<const Capture> capture_;
  // A pass object may keep pointers to instructions of the shadows that it ran
  // on and compare addresses with them, so shadows live until the next pass is
  // resumed, those of layout-assignment until the end.
  std::vector<std::shared_ptr<const Capture>> shadows_;  // of this pass
  std::vector<std::shared_ptr<const Capture>> kept_;     // of the last one
  std::vector<std::shared_ptr<const Capture>> kept_to_the_end_;

  // Guards the following members, which both threads use.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Written under the lock; SpinUntil reads them without it.
  std::atomic<State> state_ = State::kRunning;
  std::atomic<Action> action_ = Action::kNone;
  bool is_cancelled_ = false;
  PassInvocation invocation_;       // while paused
  xla::HloModule* live_ = nullptr;  // while paused
  bool last_changed_ = false;
  // Whether any pass got an action other than kRun.
  bool has_own_decisions_ = false;
  std::optional<Stop> run_until_;
  int64_t num_stop_matches_ = 0;
  absl::StatusOr<std::unique_ptr<xla::HloModule>> compiled_;
  std::optional<Module> result_;
};

}  // namespace hloenv
