// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <chrono>

#include "hlo/read.h"
#include "support/quiet.h"
#include "support/status.h"
#include "workarounds/workarounds.h"

namespace hloenv {

namespace {

using ExecutionThreads = absl::flat_hash_set<absl::string_view>;

const PassSpec* AsPass(const PipelineStep& step) {
  return std::get_if<PassSpec>(&step);
}

const std::string& StepName(const PipelineStep& step) {
  return std::visit(
      [](const auto& spec) -> const std::string& { return spec.name; }, step);
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Runs one pipeline on one module. Steps of nested pipelines are appended to
// the same record.
class Runner {
 public:
  Runner(xla::HloModule* module, const ExecutionThreads& threads,
         std::vector<StepResult>* record)
      : module_(module), threads_(threads), record_(record) {}

  // Fills the result except `steps`, which are appended to the record.
  absl::StatusOr<PipelineResult> Run(const PipelineSpec& spec,
                                     const std::string& path) {
    const int64_t start_ns = NowNs();
    PipelineResult result;
    const int rounds = spec.fixed_point ? spec.max_iterations : 1;
    result.stop_reason =
        spec.fixed_point ? StopReason::kIterationLimit : StopReason::kRanOnce;
    while (result.iterations < rounds) {
      bool round_changed = false;
      for (const PipelineStep& step : spec.steps) {
        HLOENV_ASSIGN_OR_RETURN(bool changed,
                                RunStep(step, path, result.iterations));
        round_changed |= changed;
      }
      ++result.iterations;
      result.changed |= round_changed;
      if (spec.fixed_point && !round_changed) {
        result.stop_reason = StopReason::kConverged;
        break;
      }
    }
    result.duration_ns = NowNs() - start_ns;
    return result;
  }

 private:
  absl::StatusOr<bool> RunStep(const PipelineStep& step,
                               const std::string& parent, int iteration) {
    const std::string path = parent.empty()
                                 ? StepName(step)
                                 : absl::StrCat(parent, "/", StepName(step));
    const size_t index = record_->size();
    StepResult started;
    started.path = path;
    started.iteration = iteration;
    record_->push_back(std::move(started));
    const int64_t start_ns = NowNs();
    HLOENV_ASSIGN_OR_RETURN(bool changed, ChangedBy(step, path));
    (*record_)[index].changed = changed;
    (*record_)[index].duration_ns = NowNs() - start_ns;
    return changed;
  }

  absl::StatusOr<bool> ChangedBy(const PipelineStep& step,
                                 const std::string& path) {
    if (const PassSpec* spec = AsPass(step)) {
      HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<xla::HloPassInterface> pass,
                              MakePass(*spec));
      absl::StatusOr<bool> changed = pass->Run(module_, threads_);
      if (!changed.ok()) {
        return Annotate(changed.status(), kPassError,
                        absl::StrCat("pass '", path, "' failed on module '",
                                     module_->name(), "'"));
      }
      return changed;
    }
    HLOENV_ASSIGN_OR_RETURN(PipelineResult result,
                            Run(std::get<PipelineSpec>(step), path));
    return result.changed;
  }

  xla::HloModule* module_;
  const ExecutionThreads& threads_;
  std::vector<StepResult>* record_;
};

class PipelinePass : public xla::HloModulePass {
 public:
  explicit PipelinePass(PipelineSpec spec) : spec_(std::move(spec)) {}

  absl::string_view name() const override { return spec_.name; }
  bool IsPassPipeline() const override { return true; }

 protected:
  absl::StatusOr<bool> RunImpl(xla::HloModule* module,
                               const ExecutionThreads& threads) override {
    std::vector<StepResult> record;
    HLOENV_ASSIGN_OR_RETURN(PipelineResult result,
                            Runner(module, threads, &record).Run(spec_, ""));
    return result.changed;
  }

 private:
  const PipelineSpec spec_;
};

// Calls `check` on every pass, in order.
absl::Status ForEachPass(
    const PipelineSpec& spec,
    absl::FunctionRef<absl::Status(const PassSpec&)> check) {
  for (const PipelineStep& step : spec.steps) {
    if (const PassSpec* pass = AsPass(step)) {
      HLOENV_RETURN_IF_ERROR(check(*pass));
    } else {
      HLOENV_RETURN_IF_ERROR(ForEachPass(std::get<PipelineSpec>(step), check));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const PipelineSpec& spec) {
  if (spec.name.empty()) {
    return Error(kPassOptionError, "a pipeline needs a name");
  }
  if (spec.steps.empty()) {
    return Error(kPassOptionError,
                 absl::StrCat("pipeline '", spec.name,
                              "' is empty; give at least one pass"));
  }
  if (spec.max_iterations < 1) {
    return Error(kPassOptionError,
                 absl::StrCat("max_iterations of pipeline '", spec.name,
                              "' must be >= 1, got ", spec.max_iterations));
  }
  for (const PipelineStep& step : spec.steps) {
    if (AsPass(step) == nullptr) {
      HLOENV_RETURN_IF_ERROR(CheckShape(std::get<PipelineSpec>(step)));
    }
  }
  return absl::OkStatus();
}

// CheckPipeline, and no candidate pass among the steps.
absl::Status CheckRunnable(const PipelineSpec& spec) {
  HLOENV_RETURN_IF_ERROR(CheckPipeline(spec));
  return ForEachPass(spec, [&](const PassSpec& pass) {
    if (!IsCandidatePass(pass.name)) return absl::OkStatus();
    return Error(
        kPassError,
        absl::StrCat("pass '", pass.name,
                     "' proposes rewrites one by one and cannot run on a "
                     "module; capture its alternatives instead"));
  });
}

}  // namespace

PipelineSpec SinglePass(PassSpec pass) {
  PipelineSpec spec;
  spec.name = pass.name;
  spec.steps.push_back(std::move(pass));
  return spec;
}

std::vector<std::string> PassNamesIn(const PipelineSpec& spec) {
  std::vector<std::string> names;
  for (const PipelineStep& step : spec.steps) {
    if (const auto* pass = std::get_if<PassSpec>(&step)) {
      names.push_back(pass->name);
      continue;
    }
    for (std::string& name : PassNamesIn(std::get<PipelineSpec>(step))) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

absl::Status CheckPipeline(const PipelineSpec& spec) {
  HLOENV_RETURN_IF_ERROR(CheckShape(spec));
  return ForEachPass(spec, CheckPass);
}

absl::Status CheckUnscheduled(const xla::HloModule& module) {
  if (!module.has_schedule()) return absl::OkStatus();
  return Error(
      kPassError,
      absl::StrCat("module '", module.name(),
                   "' is scheduled, and passes do not update the schedule; "
                   "remove is_scheduled=true from its text"));
}

bool IsCandidatePipeline(const PipelineSpec& spec) {
  if (spec.steps.size() != 1) return false;
  const PassSpec* pass = AsPass(spec.steps.front());
  return pass != nullptr && IsCandidatePass(pass->name);
}

absl::string_view StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kRanOnce:
      return "ran-once";
    case StopReason::kConverged:
      return "converged";
    case StopReason::kIterationLimit:
      return "iteration-limit";
  }
  return "unknown";
}

absl::StatusOr<std::unique_ptr<xla::HloPassInterface>> MakeRunnable(
    const PipelineSpec& spec) {
  HLOENV_RETURN_IF_ERROR(CheckRunnable(spec));
  if (spec.steps.size() == 1 && !spec.fixed_point) {
    const PassSpec* pass = AsPass(spec.steps.front());
    if (pass != nullptr && pass->name == spec.name) return MakePass(*pass);
  }
  return std::make_unique<PipelinePass>(spec);
}

absl::StatusOr<std::pair<Module, PipelineResult>> RunPassesOnClone(
    const PipelineSpec& spec, const Module& module) {
  QuietScope scope;
  HLOENV_RETURN_IF_ERROR(InstallWorkarounds());
  HLOENV_RETURN_IF_ERROR(CheckRunnable(spec));
  HLOENV_RETURN_IF_ERROR(CheckUnscheduled(module.hlo()));
  std::unique_ptr<xla::HloModule> clone = module.CloneHlo();
  const ExecutionThreads every_thread;
  std::vector<StepResult> record;
  HLOENV_ASSIGN_OR_RETURN(
      PipelineResult result,
      Runner(clone.get(), every_thread, &record).Run(spec, ""));
  result.steps = std::move(record);
  if (result.changed) {
    HLOENV_RETURN_IF_ERROR(CheckStillValid(module, clone.get(), spec.name));
  }
  return std::pair(Module(std::move(clone)), std::move(result));
}

}  // namespace hloenv
