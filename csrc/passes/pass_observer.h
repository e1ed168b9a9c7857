// SPDX-License-Identifier: Apache-2.0
// Intercepts every HloPassInterface::Run of one compile.
//
// HloPassInterface::Run is hooked for the whole process. The hook calls the
// observer of its thread if that observes the module that the pass runs on, and
// the original function otherwise.
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

// Installs the hooks. May be called repeatedly.
absl::Status InstallRunHooks();

// One invocation of a pass or of a pipeline. A pass that runs other passes
// inside itself is one invocation; invariant checkers are not counted.
struct PassInvocation {
  std::string name;
  std::string path;             // "pipeline/inner pipeline/algsimp"
  int64_t occurrence = 1;       // of the name, among passes, from 1
  int64_t path_occurrence = 1;  // of the path, from 1
  xla::HloPassInterface* pass = nullptr;
};

// Observes the pass runs of this thread on one module, from construction to
// destruction. Observers nest; the innermost is called.
class PassObserver {
 public:
  using RunFn = absl::FunctionRef<absl::StatusOr<bool>()>;

  explicit PassObserver(xla::HloModule* module);
  virtual ~PassObserver();
  PassObserver(const PassObserver&) = delete;
  PassObserver& operator=(const PassObserver&) = delete;

  // The observer of runs on `module`, or null.
  static PassObserver* For(const xla::HloModule* module);
  // Called by the hook.
  absl::StatusOr<bool> OnRun(xla::HloPassInterface* pass, RunFn run);
  // Called when a pass replaced the module.
  void set_module(xla::HloModule* module) { module_ = module; }

 protected:
  xla::HloModule* module() const { return module_; }

  // Called before a pipeline starts. An error ends the compile.
  virtual absl::Status OnPipeline(const PassInvocation& invocation) = 0;
  // Called instead of a pass; `run` runs it. The result is returned to the
  // pipeline; an error ends the compile.
  virtual absl::StatusOr<bool> OnPass(const PassInvocation& invocation,
                                      RunFn run) = 0;
  // Called instead of an invariant checker.
  virtual absl::StatusOr<bool> OnInvariantCheck(RunFn run) { return run(); }

 private:
  bool IsInvariantCheck(const xla::HloPassInterface* pass) const;
  PassInvocation InvocationOf(const std::string& name,
                              xla::HloPassInterface* pass);

  xla::HloModule* module_;
  PassObserver* const outer_;
  bool in_pass_ = false;
  std::vector<xla::HloPassPipeline*> pipelines_;
  std::vector<std::string> names_;  // of pipelines_
  absl::flat_hash_map<std::string, int64_t> path_invocations_;
  absl::flat_hash_map<std::string, int64_t> name_invocations_;
};

}  // namespace hloenv
