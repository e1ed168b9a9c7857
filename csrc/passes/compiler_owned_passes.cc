// SPDX-License-Identifier: Apache-2.0
#include "passes/compiler_owned_passes.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "hlo/config.h"
#include "passes/pass_observer.h"
#include "support/fork.h"
#include "support/native_scope.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/hlo/pass/hlo_pass_interface.h"
#include "xla/service/compiler.h"
#include "xla/stream_executor/host/host_platform_id.h"

namespace hloenv {
namespace {

using xla::HloModule;
using xla::HloPassInterface;

// Runs the passes inside a pipeline with PassObserver's checks and workarounds.
class Guard : public PassObserver {
 public:
  using PassObserver::PassObserver;

 protected:
  absl::Status OnPipeline(const PassInvocation&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<bool> OnPass(const PassInvocation&, RunFn run) override {
    return run();
  }
};

// A compile that is paused before one pass or pipeline. Never destroyed: its
// thread sleeps until the process ends.
class PausedCompile {
 public:
  explicit PausedCompile(std::string name) : name_(std::move(name)) {
    std::thread([this] { Compile(); }).detach();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return is_ready_; });
  }

  // One run at a time, because pass objects may hold caches.
  absl::StatusOr<bool> Run(HloModule* module) {
    std::lock_guard<std::mutex> lock(run_mutex_);
    if (pass_ == nullptr) {
      return Error(kPassError,
                   absl::StrCat("XLA's CPU compiler does not use pass '", name_,
                                "' on this machine"));
    }
    Guard guard(module);
    return pass_->Run(module);
  }

 private:
  class Observer : public PassObserver {
   public:
    Observer(HloModule* module, PausedCompile* owner)
        : PassObserver(module), owner_(owner) {}

   protected:
    absl::Status OnPipeline(const PassInvocation& invocation) override {
      if (invocation.name == owner_->name_) PauseForever(invocation.pass);
      return absl::OkStatus();
    }
    absl::StatusOr<bool> OnPass(const PassInvocation& invocation,
                                RunFn run) override {
      if (invocation.name == owner_->name_) PauseForever(invocation.pass);
      return run();
    }

   private:
    void PauseForever(HloPassInterface* pass) {
      owner_->working_.reset();
      owner_->Publish(pass);
      std::unique_lock<std::mutex> lock(owner_->mutex_);
      owner_->changed_.wait(lock, [] { return false; });
    }

    PausedCompile* const owner_;
  };

  void Publish(HloPassInterface* pass) {
    std::lock_guard<std::mutex> lock(mutex_);
    pass_ = pass;
    is_ready_ = true;
    changed_.notify_all();
  }

  // Held by the compile thread until it sleeps.
  struct Working {
    NativeScope native;
    QuietScope scope;
  };

  void Compile() {
    working_.emplace();
    // XLA sets the passes' options by the debug options of the module.
    const absl::StatusOr<xla::HloModuleConfig> config = DefaultModuleConfig();
    if (InstallRunHooks().ok() && config.ok()) {
      auto builder = xla::HloComputation::Builder("main");
      xla::HloInstruction* x =
          builder.AddInstruction(xla::HloInstruction::CreateParameter(
              0, xla::ShapeUtil::MakeShape(xla::F32, {2, 2}), "x"));
      builder.AddInstruction(xla::HloInstruction::CreateUnary(
          x->shape(), xla::HloOpcode::kNegate, x));
      auto module = std::make_unique<HloModule>("paused", *config);
      module->AddEntryComputation(builder.Build());
      auto compiler =
          xla::Compiler::GetForPlatform(stream_executor::host::kHostPlatformId);
      if (compiler.ok()) {
        try {
          Observer observer(module.get(), this);
          (*compiler)
              ->RunHloPasses(std::move(module), /*executor=*/nullptr,
                             xla::Compiler::CompileOptions{})
              .IgnoreError();
        } catch (const std::exception&) {
          // Without the passes.
        }
      }
    }
    working_.reset();
    Publish(nullptr);
  }

  const std::string name_;
  std::optional<Working> working_;
  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ready_ = false;
  HloPassInterface* pass_ = nullptr;
};

// Guarded by MutexOf(kCompilerOwnedPasses). PausedCompiles are never destroyed.
std::map<std::string, PausedCompile*>& PausedCompiles() {
  static auto* compiles = [] {
    // A pass refers to objects on the stack of its compile thread. In a forked
    // process that thread does not exist, and its stack is reused.
    CallInForkedProcesses([] { PausedCompiles().clear(); });
    return new std::map<std::string, PausedCompile*>();
  }();
  return *compiles;
}

PausedCompile& PausedCompileOf(const std::string& name) {
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kCompilerOwnedPasses));
  PausedCompile*& compile = PausedCompiles()[name];
  if (compile == nullptr) compile = new PausedCompile(name);
  return *compile;
}

class CompilerOwnedPass : public xla::HloModulePass {
 public:
  explicit CompilerOwnedPass(std::string name) : name_(std::move(name)) {}
  absl::string_view name() const override { return name_; }

 protected:
  absl::StatusOr<bool> RunImpl(
      HloModule* module,
      const absl::flat_hash_set<absl::string_view>&) override {
    return PausedCompileOf(name_).Run(module);
  }

 private:
  const std::string name_;
};

}  // namespace

std::unique_ptr<HloPassInterface> MakeCompilerOwnedPass(std::string name) {
  return std::make_unique<CompilerOwnedPass>(std::move(name));
}

}  // namespace hloenv
