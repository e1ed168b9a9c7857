// SPDX-License-Identifier: Apache-2.0
// XLA's own compiler, paused in front of each of its passes.
//
// The compile runs on a thread of its own. In front of a pass that thread waits
// and the caller may look at the module, capture what the very pass object
// would do, and answer for it: let it run, leave it out, or take decisions of
// the caller's instead. Only one of the two threads moves at any time.
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
#include "support/exit.h"
#include "support/xla_scope.h"

namespace hloenv {

class Interception {
 public:
  // Starts to compile a clone of `module`. Who drops the last handle closes it.
  // Errors: HookError.
  static absl::StatusOr<std::shared_ptr<Interception>> Start(
      const Module& module, Target target);
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;

  // Waits until the compile stands in front of a pass, and returns that, or
  // has ended, and returns none. Errors: CompileError when the compile failed;
  // Cancelled when `is_interrupted`, asked now and then, says so (the compile
  // goes on; call again).
  absl::StatusOr<std::optional<PassInvocation>> Wait(
      InterruptCheck is_interrupted);

  // Each of the following is for the pass that the compile waits in front of,
  // and an InterceptError when it waits in front of none. A process that is
  // forked off has no such compile: there these, and Wait, are an
  // InterceptError.

  // A copy of the module as it is there. The same one until the pass is
  // answered for.
  absl::StatusOr<Module> ModuleHere();
  // What the waiting pass and then `others` would do.
  absl::StatusOr<std::shared_ptr<const Capture>> CaptureHere(
      const std::vector<PipelineSpec>& others);
  // Lets the pass run.
  absl::Status Run();
  // Leaves it out.
  absl::Status Skip();
  // Takes decisions of the last CaptureHere, which `capture` is unless null.
  // Where they are just what the pass
  // would do, it runs. Errors: DecisionError, also for accepting as a whole
  // what another pass would do.
  absl::Status Apply(const Capture* capture,
                     const std::vector<int64_t>& decisions);
  // Lets this pass run and every other up to `stop`.
  absl::Status RunUntil(const Stop& stop);
  // Lets it and all others run. Unlike the rest, also once the compile ended.
  absl::Status RunToTheEnd();

  // What the pass that was answered for last reported. False after Skip.
  bool last_changed();
  // The optimized module, once the compile has ended.
  absl::StatusOr<Module> Result();
  // Whether the compile waits in front of a pass.
  bool is_paused() const { return state_ == State::kPaused; }
  // Ends the compile in front of the next pass, and waits for that, for some
  // seconds: a pass that never ends keeps its thread and this object. Does
  // nothing in a process that was forked off, which has no such thread.
  void Close();

 private:
  class Watch;
  // What the thread that compiles holds while it does not wait.
  struct Working {
    NativeScope native;
    XlaScope scope;
  };
  enum class State { kRunning, kPaused, kEnded };
  enum class Answer { kNone, kRun, kSkip, kChanged, kSame, kCancel };

  explicit Interception(const Module& module, Target target);

  void Compile();
  bool IsForked() const;
  absl::Status CheckProcess() const;
  void CountArrival(const PassInvocation& arrival);
  absl::StatusOr<bool> OnPass(const PassInvocation& arrival,
                              xla::HloModule* live, PassObserver::RunFn run);
  absl::Status CheckPaused();
  // A copy of the paused module with the way from it to the original.
  absl::Status CopyHere();
  absl::StatusOr<ShadowPass> WaitingPass();
  void GiveAnswer(Answer answer);
  void Cancel();

  const Module given_;
  const Target target_;
  const pid_t pid_;
  std::unique_ptr<std::thread> thread_;  // null once closed
  std::optional<Working> working_;

  // Calls of the public functions one by one.
  std::mutex call_mutex_;
  // Of the paused module, made on demand.
  std::optional<Module> copy_;
  std::unique_ptr<xla::HloCloneContext> live_of_;  // from copy_ to live_
  std::shared_ptr<const Capture> capture_;
  // A pass object may remember instructions of the shadows that it ran on, and
  // compare addresses with those: shadows live until the next pass is answered
  // for, those of layout-assignment to the end.
  std::vector<std::shared_ptr<const Capture>> shadows_;  // of this pass
  std::vector<std::shared_ptr<const Capture>> kept_;     // of the last one
  std::vector<std::shared_ptr<const Capture>> kept_to_the_end_;

  // Guards what follows, which both threads use.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Written under the lock; read without it by who spins.
  std::atomic<State> state_ = State::kRunning;
  std::atomic<Answer> answer_ = Answer::kNone;
  bool is_cancelled_ = false;
  PassInvocation arrival_;          // while paused
  xla::HloModule* live_ = nullptr;  // while paused
  bool last_changed_ = false;
  // Whether a pass was answered for otherwise than by letting it run.
  bool has_own_decisions_ = false;
  std::optional<Stop> run_until_;
  int64_t stop_arrivals_ = 0;
  absl::StatusOr<std::unique_ptr<xla::HloModule>> compiled_;
  std::optional<Module> result_;
};

}  // namespace hloenv
