// SPDX-License-Identifier: Apache-2.0
// A say over every pass that one compile runs.
//
// Every pass of XLA's pipelines goes through HloPassInterface::Run, which is
// hooked. A hooked run asks the watch of its thread, and only for the module
// that this watch is for; all other runs in the process pass through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xla {
class HloModule;
class HloPassInterface;
class HloPassPipeline;
}  // namespace xla

namespace hloenv {

// Puts the hook in place; any number of calls.
absl::Status InstallRunHooks();

// One arrival at a pass or at a pipeline. A pass that runs other passes inside
// itself is one arrival; the verifiers that check invariants are none.
struct Arrival {
  std::string name;
  std::string path;             // "pipeline/inner pipeline/algsimp"
  int64_t occurrence = 1;       // of the name, among passes, from 1
  int64_t path_occurrence = 1;  // of the path, from 1
  xla::HloPassInterface* pass = nullptr;
};

// Watches the runs on one module that this thread makes, from construction to
// destruction. Watches nest; the innermost counts.
class CompileWatch {
 public:
  using RunFn = absl::FunctionRef<absl::StatusOr<bool>()>;

  explicit CompileWatch(xla::HloModule* module);
  virtual ~CompileWatch();
  CompileWatch(const CompileWatch&) = delete;
  CompileWatch& operator=(const CompileWatch&) = delete;

  // The watch that a run on `module` belongs to, or null.
  static CompileWatch* For(const xla::HloModule* module);
  // Called by the hook.
  absl::StatusOr<bool> OnRun(xla::HloPassInterface* pass, RunFn run);
  // A pass may put another module in the place of the one it was given.
  void set_module(xla::HloModule* module) { module_ = module; }

 protected:
  xla::HloModule* module() const { return module_; }

  // A pipeline is about to start. An error ends the compile.
  virtual absl::Status OnPipeline(const Arrival& arrival) = 0;
  // A pass would run now; `run` runs it. What this returns is what the
  // pipeline sees; an error ends the compile.
  virtual absl::StatusOr<bool> OnPass(const Arrival& arrival, RunFn run) = 0;
  // The same for a check of invariants.
  virtual absl::StatusOr<bool> OnInvariantCheck(RunFn run) { return run(); }

 private:
  bool IsInvariantCheck(const xla::HloPassInterface* pass) const;
  Arrival ArriveAt(const std::string& name, xla::HloPassInterface* pass);

  xla::HloModule* module_;
  CompileWatch* const outer_;
  bool in_pass_ = false;
  std::vector<xla::HloPassPipeline*> pipelines_;
  std::vector<std::string> names_;  // of pipelines_
  absl::flat_hash_map<std::string, int64_t> path_arrivals_;
  absl::flat_hash_map<std::string, int64_t> name_arrivals_;
};

}  // namespace hloenv
