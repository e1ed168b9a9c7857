// SPDX-License-Identifier: Apache-2.0
#include "pipeline/interception.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "rewrite/live_copy.h"
#include "runtime/own_calls.h"
#include "support/status.h"
#include "support/xla_scope.h"

namespace hloenv {

using xla::HloModule;

namespace {

// How long a pass may take to end once nobody waits for it any more.
constexpr std::chrono::seconds kCloseTime(20);

// Most passes take some microseconds, as does waking a thread: both sides look
// for a while before they sleep.
constexpr std::chrono::microseconds kSpinTime(50);

template <typename Condition>
void SpinUntil(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (!condition() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

// These remember, from run to run, computations that they added to the module:
// after a run on a shadow they would call those of the shadow. XLA's compilers
// make them with the options that are our defaults, so that a new object does
// what theirs would.
bool RemembersComputations(absl::string_view name) {
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

class Interception::Watch : public PassObserver {
 public:
  Watch(HloModule* module, Interception* owner)
      : PassObserver(module), owner_(owner) {}

 protected:
  absl::Status OnPipeline(const PassInvocation& arrival) override {
    std::lock_guard<std::mutex> lock(owner_->mutex_);
    owner_->CountArrival(arrival);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> OnPass(const PassInvocation& arrival,
                              RunFn run) override {
    return owner_->OnPass(arrival, module(), run);
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
  // The thread holds it too, so that what it works with lives as long as it.
  std::shared_ptr<Interception> self(
      new Interception(module, std::move(target)));
  self->thread_ = std::make_unique<std::thread>([self] { self->Compile(); });
  return std::shared_ptr<Interception>(
      self.get(), [self](Interception*) { self->Close(); });
}

void Interception::Compile() {
  working_.emplace();
  std::unique_ptr<HloModule> clone = given_.CloneHlo();
  absl::StatusOr<std::unique_ptr<HloModule>> compiled = [&] {
    Watch watch(clone.get(), this);
    return target_.RunHloPasses(std::move(clone));
  }();
  working_.reset();
  std::lock_guard<std::mutex> lock(mutex_);
  compiled_ = std::move(compiled);
  state_ = State::kEnded;
  changed_.notify_all();
}

// --- on the thread that compiles
// -----------------------------------------------

void Interception::CountArrival(const PassInvocation& arrival) {
  if (run_until_.has_value() && run_until_->Matches(arrival.path) &&
      ++stop_arrivals_ >= run_until_->occurrence) {
    run_until_.reset();
  }
}

absl::StatusOr<bool> Interception::OnPass(const PassInvocation& arrival,
                                          HloModule* live,
                                          PassObserver::RunFn run) {
  Answer answer = Answer::kRun;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    CountArrival(arrival);
    if (is_cancelled_) return absl::CancelledError("interception closed");
    HLOENV_RETURN_IF_ERROR(WorkAroundBugsBefore(arrival.name, live));
    // A pass that ran as XLA made it leaves nothing to repair.
    if (has_own_decisions_) {
      HLOENV_RETURN_IF_ERROR(LegalizeBefore(arrival.name, live));
    }
    if (!run_until_.has_value()) {
      working_.reset();
      arrival_ = arrival;
      live_ = live;
      state_ = State::kPaused;
      changed_.notify_all();
      const auto is_answered = [this] { return answer_ != Answer::kNone; };
      lock.unlock();
      SpinUntil(is_answered);
      lock.lock();
      changed_.wait(lock, is_answered);
      answer = answer_.exchange(Answer::kNone);
      working_.emplace();
      has_own_decisions_ |= answer != Answer::kRun;
    }
  }
  absl::StatusOr<bool> changed = false;
  switch (answer) {
    case Answer::kRun:
      changed = run();
      break;
    case Answer::kChanged:
      changed = true;
      break;
    case Answer::kSkip:
    case Answer::kSame:
    case Answer::kNone:
      break;
    case Answer::kCancel:
      return absl::CancelledError("interception closed");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  last_changed_ = changed.ok() && *changed;
  return changed;
}

// --- on the caller's thread
// ----------------------------------------------------

bool Interception::IsForked() const { return getpid() != pid_; }

absl::Status Interception::CheckProcess() const {
  // What has ended needs no thread, and is copied along.
  if (!IsForked() || state_ == State::kEnded) return absl::OkStatus();
  return Error(
      kInterceptError,
      absl::StrCat("process ", getpid(), " was forked from process ", pid_,
                   ", where this compile takes place; intercept "
                   "the module again in this process"));
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
  if (state_ == State::kPaused) return arrival_;
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
                   ? "XLA's pipeline has ended; there is no pass to answer for"
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

// The pass that the compile waits in front of, for a shadow.
absl::StatusOr<ShadowPass> Interception::WaitingPass() {
  if (RemembersComputations(arrival_.name)) {
    return MakeShadowPass(SinglePass({arrival_.name, {}}));
  }
  return ShadowPass{arrival_.name, [this](HloModule* shadow) {
                      // A pass object that XLA made may write into the entry
                      // layout of the module that it was made for
                      // (layout-assignment): what it wrote there belongs to the
                      // shadow.
                      xla::ComputationLayout* entry =
                          live_->mutable_entry_computation_layout();
                      const xla::ComputationLayout before = *entry;
                      absl::StatusOr<bool> changed = arrival_.pass->Run(shadow);
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
  (arrival_.name == "layout-assignment" ? kept_to_the_end_ : shadows_)
      .push_back(capture_);
  return capture_;
}

void Interception::GiveAnswer(Answer answer) {
  // The copy belongs to the place that is left now.
  copy_.reset();
  live_of_.reset();
  capture_.reset();
  kept_.swap(shadows_);
  shadows_.clear();
  std::lock_guard<std::mutex> lock(mutex_);
  answer_ = answer;
  state_ = State::kRunning;
  live_ = nullptr;
  changed_.notify_all();
}

absl::Status Interception::Run() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  GiveAnswer(Answer::kRun);
  return absl::OkStatus();
}

absl::Status Interception::Skip() {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  GiveAnswer(Answer::kSkip);
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
    stop_arrivals_ = 0;
  }
  GiveAnswer(Answer::kRun);
  return absl::OkStatus();
}

absl::Status Interception::Apply(const Capture* given,
                                 const std::vector<int64_t>& decisions) {
  HLOENV_RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> call(call_mutex_);
  HLOENV_RETURN_IF_ERROR(CheckPaused());
  if (capture_ == nullptr) {
    return Error(kDecisionError,
                 "there is nothing to decide: call get_alternatives() at this "
                 "stage first");
  }
  if (given != nullptr && given != capture_.get()) {
    return Error(kStaleAlternativesError,
                 "these alternatives are not the last ones that were captured "
                 "at this stage; call get_alternatives again");
  }
  const Capture& capture = *capture_;
  HLOENV_RETURN_IF_ERROR(capture.CheckDecisions(decisions, /*partial=*/false));
  HLOENV_ASSIGN_OR_RETURN(const std::vector<int64_t> of_pass,
                          capture.DecisionsFor(arrival_.name));
  if (decisions == of_pass) {
    GiveAnswer(Answer::kRun);
    return absl::OkStatus();
  }
  const bool accepts_any =
      std::any_of(decisions.begin(), decisions.end(),
                  [](int64_t decision) { return decision > 0; });
  if (accepts_any) {
    const absl::Status status =
        capture.ApplyInPlace(decisions, live_, std::move(live_of_));
    // The decisions may be at fault; anything else has left a broken module.
    if (!status.ok()) {
      if (live_of_ == nullptr) Cancel();
      return status;
    }
  }
  GiveAnswer(accepts_any ? Answer::kChanged : Answer::kSame);
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
        "XLA's pipeline has not ended: go through its stages first, or "
        "call finish()");
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
    answer_ = Answer::kCancel;
    state_ = State::kRunning;
    live_ = nullptr;
  }
  changed_.notify_all();
}

void Interception::Close() {
  if (IsForked()) {
    // There is no such thread here, and its std::thread, which is not
    // destroyed, may name one that was made since. Where the thread slept, its
    // own handle keeps this object.
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
      // The thread goes on in a pass that does not end, with this object.
      thread->detach();
      return;
    }
  }
  thread->join();
  copy_.reset();
  live_of_.reset();
}

}  // namespace hloenv
