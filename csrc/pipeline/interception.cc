// SPDX-License-Identifier: Apache-2.0
#include "pipeline/interception.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "rewrite/live_copy.h"
#include "runtime/own_calls.h"
#include "support/status.h"

namespace hloenv {

using xla::HloModule;

namespace {

// How long Close waits for the running pass to end.
constexpr std::chrono::seconds kCloseTime(20);

// Most passes take some microseconds, as does waking a thread, so both threads
// spin before they sleep.
constexpr std::chrono::microseconds kSpinTime(50);

template <typename Condition>
void SpinUntil(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (!condition() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

// Passes that cache, across runs, computations that they added to the module:
// after a run on a shadow they would call those of the shadow. XLA's compilers
// construct these passes with the options that are our defaults, so a new
// object is equivalent.
bool CachesComputations(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {"bitcast_dtypes_expander",
                                                 "cholesky_expander",
                                                 "eigh_expander",
                                                 "qr_expander",
                                                 "rng-bit-generator-expander",
                                                 "rng-expander",
                                                 "triangular_solve_expander"};
  return std::find(std::begin(kNames), std::end(kNames), name) !=
         std::end(kNames);
}

}  // namespace

class Interception::Observer : public PassObserver {
 public:
  Observer(HloModule* module, Interception* owner)
      : PassObserver(module), owner_(owner) {}

 protected:
  absl::Status OnPipeline(const PassInvocation& invocation) override {
    std::lock_guard<std::mutex> lock(owner_->mutex_);
    owner_->CountInvocation(invocation);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> OnPass(const PassInvocation& invocation,
                              RunFn run) override {
    return owner_->OnPass(invocation, module(), run);
  }

 private:
  Interception* const owner_;
};

Interception::Interception(const Module& module, Target target)
    : given_(module),
      target_(std::move(target)),
      pid_(getpid()),
      compiled_(absl::InternalError("the compile has not ended")) {}

absl::StatusOr<std::shared_ptr<Interception>> Interception::Start(
    const Module& module, Target target) {
  HLOENV_RETURN_IF_ERROR(CheckUnscheduled(module.hlo()));
  HLOENV_RETURN_IF_ERROR(CheckOwnCalls(module.hlo()));
  HLOENV_RETURN_IF_ERROR(InstallRunHooks());
  // The thread shares ownership, so that the object outlives it.
  std::shared_ptr<Interception> self(
      new Interception(module, std::move(target)));
  self->thread_ = std::make_unique<std::thread>([self] { self->Compile(); });
  return std::shared_ptr<Interception>(
      self.get(), [self](Interception*) { self->Close(); });
}

void Interception::Compile() {
  working_.emplace();
  std::unique_ptr<HloModule> clone = given_.CloneHlo();
  absl::StatusOr<std::unique_ptr<HloModule>> compiled =
      [&]() -> absl::StatusOr<std::unique_ptr<HloModule>> {
    // No caller of a thread takes an exception.
    try {
      Observer observer(clone.get(), this);
      return target_.RunHloPasses(std::move(clone));
    } catch (const std::exception& error) {
      return Error(kCompileError, absl::StrCat("XLA raised ", error.what()));
    }
  }();
  working_.reset();
  std::lock_guard<std::mutex> lock(mutex_);
  compiled_ = std::move(compiled);
  state_ = State::kEnded;
  changed_.notify_all();
}

// --- On the compile thread.

void Interception::CountInvocation(const PassInvocation& invocation) {
  if (run_until_.has_value() && run_until_->Matches(invocation.path) &&
      ++num_stop_matches_ >= run_until_->occurrence) {
    run_until_.reset();
  }
}

absl::StatusOr<bool> Interception::OnPass(const PassInvocation& invocation,
                                          HloModule* live,
                                          PassObserver::RunFn run) {
  Action action = Action::kRun;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    CountInvocation(invocation);
    if (is_cancelled_) return absl::CancelledError("interception closed");
    HLOENV_RETURN_IF_ERROR(WorkAroundBugsBefore(invocation.name, live));
    // If every pass ran unchanged, there is nothing to repair.
    if (has_own_decisions_) {
      HLOENV_RETURN_IF_ERROR(LegalizeBefore(invocation.name, live));
    }
    if (!run_until_.has_value()) {
      working_.reset();
      invocation_ = invocation;
      live_ = live;
      state_ = State::kPaused;
      changed_.notify_all();
      const auto has_action = [this] { return action_ != Action::kNone; };
      lock.unlock();
      SpinUntil(has_action);
      lock.lock();
      changed_.wait(lock, has_action);
      action = action_.exchange(Action::kNone);
      working_.emplace();
      has_own_decisions_ |= action != Action::kRun;
    }
  }
  absl::StatusOr<bool> changed = false;
  switch (action) {
    case Action::kRun:
      changed = run();
      break;
    case Action::kChanged:
      changed = true;
      break;
    case Action::kSkip:
    case Action::kSame:
    case Action::kNone:
      break;
    case Action::kCancel:
      return absl::CancelledError("interception closed");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  last_changed_ = changed.ok() && *changed;
  return changed;
}

// --- On the caller's thread.

bool Interception::IsForked() const { return getpid() != pid_; }

absl::Status Interception::CheckProcess() const {
  // A compile that has ended needs no thread; fork copies its result.
  if (!IsForked() || state_ == State::kEnded) return absl::OkStatus();
  return Error(
      kInterceptError,
      absl::StrCat("process ", getpid(), " was forked from process ", pid_,
                   ", which runs this compile; intercept the module again in "
                   "this process"));
}

absl::StatusOr<std::optional<PassInvocation>> Interception::Wait(
    InterruptCheck is_interrupted) {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  SpinUntil([this] { return state_ != State::kRunning; });
  std::unique_lock<std::mutex> lock(mutex_);
  while (state_ == State::kRunning) {
    changed_.wait_for(lock, kInterruptInterval);
    if (state_ != State::kRunning || is_interrupted == nullptr) continue;
    lock.unlock();
    const bool interrupted = is_interrupted();
    lock.lock();
    if (interrupted) return absl::CancelledError("interrupted");
  }
  if (state_ == State::kPaused) return invocation_;
  if (compiled_.ok() || absl::IsCancelled(compiled_.status())) {
    return std::nullopt;
  }
  if (compiled_.status().GetPayload(kErrorKindUrl)) return compiled_.status();
  return Annotate(compiled_.status(), kCompileError, "XLA's pipeline failed");
}

absl::Status Interception::CheckPaused() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kPaused) return absl::OkStatus();
  return Error(kInterceptError,
               state_ == State::kEnded
                   ? "XLA's pipeline has ended; there is no pass to decide"
                   : "XLA is running a pass; wait for the next stage");
}

absl::Status Interception::CopyHere() {
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  if (copy_.has_value()) return absl::OkStatus();
  LiveCopy copy = CopyOf(live_);
  live_of_ = std::move(copy.live_of);
  copy_.emplace(std::move(copy.module));
  return absl::OkStatus();
}

absl::StatusOr<Module> Interception::ModuleHere() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CopyHere());
  return *copy_;
}

// The paused pass, as one that can run on a shadow.
absl::StatusOr<ShadowPass> Interception::WaitingPass() {
  if (CachesComputations(invocation_.name)) {
    return MakeShadowPass(SinglePass({invocation_.name, {}}));
  }
  return ShadowPass{invocation_.name, [this](HloModule* shadow) {
                      // XLA's layout-assignment object writes to the entry
                      // layout of the live module: move that to the shadow.
                      xla::ComputationLayout* entry =
                          live_->mutable_entry_computation_layout();
                      const xla::ComputationLayout before = *entry;
                      absl::StatusOr<bool> changed =
                          invocation_.pass->Run(shadow);
                      if (*entry != before) {
                        *shadow->mutable_entry_computation_layout() = *entry;
                        *entry = before;
                        if (changed.ok()) changed = true;
                      }
                      return changed;
                    }};
}

absl::StatusOr<std::shared_ptr<const Capture>> Interception::CaptureHere(
    const std::vector<PipelineSpec>& others) {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CopyHere());
  HLOENV_ASSIGN_OR_RETURN(const ShadowPass pass, WaitingPass());
  HLOENV_ASSIGN_OR_RETURN(capture_, Capture::Run(*copy_, others, &pass));
  (invocation_.name == "layout-assignment" ? kept_to_the_end_ : shadows_)
      .push_back(capture_);
  return capture_;
}

void Interception::Resume(Action action) {
  // The copy is of the module before this pass.
  copy_.reset();
  live_of_.reset();
  capture_.reset();
  kept_.swap(shadows_);
  shadows_.clear();
  std::lock_guard<std::mutex> lock(mutex_);
  action_ = action;
  state_ = State::kRunning;
  live_ = nullptr;
  changed_.notify_all();
}

absl::Status Interception::Run() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  Resume(Action::kRun);
  return absl::OkStatus();
}

absl::Status Interception::Skip() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  Resume(Action::kSkip);
  return absl::OkStatus();
}

absl::Status Interception::RunToTheEnd() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::kEnded) return absl::OkStatus();
  }
  return RunUntil(Stop{/*where=*/"", /*occurrence=*/1});
}

bool Interception::last_changed() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_changed_;
}

absl::Status Interception::RunUntil(const Stop& stop) {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    run_until_ = stop;
    num_stop_matches_ = 0;
  }
  Resume(Action::kRun);
  return absl::OkStatus();
}

absl::Status Interception::Apply(const Capture* given,
                                 const std::vector<int64_t>& decisions) {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  if (capture_ == nullptr) {
    return Error(kDecisionError,
                 "no alternatives were captured at this stage; call "
                 "get_alternatives() first");
  }
  if (given != nullptr && given != capture_.get()) {
    return Error(kStaleAlternativesError,
                 "these alternatives are not the last ones captured at this "
                 "stage; call get_alternatives() again");
  }
  const Capture& capture = *capture_;
  HLOENV_RETURN_IF_ERROR(capture.CheckDecisions(decisions, /*partial=*/false));
  HLOENV_ASSIGN_OR_RETURN(const std::vector<int64_t> of_pass,
                          capture.DecisionsFor(invocation_.name));
  if (decisions == of_pass) {
    Resume(Action::kRun);
    return absl::OkStatus();
  }
  const bool accepts_any =
      std::any_of(decisions.begin(), decisions.end(),
                  [](int64_t decision) { return decision > 0; });
  if (accepts_any) {
    const absl::Status status =
        capture.ApplyInPlace(decisions, live_, std::move(live_of_));
    // live_of_ is unset once the rewrite has started: then the live module may
    // be broken. Before, the error is in the decisions.
    if (!status.ok()) {
      if (live_of_ == nullptr) Cancel();
      return status;
    }
  }
  Resume(accepts_any ? Action::kChanged : Action::kSame);
  return absl::OkStatus();
}

absl::StatusOr<Module> Interception::Result() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  std::lock_guard<std::mutex> lock(mutex_);
  if (result_.has_value()) return *result_;
  if (state_ != State::kEnded) {
    return Error(
        kInterceptError,
        "XLA's pipeline has not ended; iterate over all stages, or call "
        "finish()");
  }
  if (absl::IsCancelled(compiled_.status())) {
    return Error(kInterceptError,
                 "the interception was closed before XLA's pipeline ended");
  }
  if (!compiled_.ok()) {
    return Annotate(compiled_.status(), kCompileError, "XLA's pipeline failed");
  }
  result_.emplace(*std::move(compiled_));
  return *result_;
}

void Interception::Cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_cancelled_ = true;
  run_until_.reset();
  if (state_ == State::kPaused) {
    action_ = Action::kCancel;
    state_ = State::kRunning;
    live_ = nullptr;
  }
  changed_.notify_all();
}

void Interception::Close() {
  if (IsForked()) {
    // The compile thread does not exist in this process, and the handle of its
    // std::thread may name a newer thread, so do not destroy it. The shared
    // pointer of the lost thread keeps this object alive.
    static_cast<void>(thread_.release());
    return;
  }
  std::lock_guard<std::mutex> call(call_mutex_);
  if (thread_ == nullptr) return;
  const std::unique_ptr<std::thread> thread = std::move(thread_);
  Cancel();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kCloseTime,
                           [this] { return state_ == State::kEnded; })) {
      // The thread still runs a pass and keeps this object alive.
      thread->detach();
      return;
    }
  }
  thread->join();
  copy_.reset();
  live_of_.reset();
}

}  // namespace hloenv
