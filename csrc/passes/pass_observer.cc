// SPDX-License-Identifier: Apache-2.0
#include "passes/pass_observer.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "hlo/indexing.h"
#include "support/hooks.h"
#include "support/status.h"
#include "workarounds/workarounds.h"
#include "xla/hlo/pass/hlo_pass_pipeline.h"
#include "xla/layout_util.h"

namespace hloenv {
namespace {

using xla::HloModule;
using xla::HloPassInterface;
using xla::HloPassPipeline;
using Threads = absl::flat_hash_set<absl::string_view>;

thread_local PassObserver* current_observer = nullptr;

absl::StatusOr<bool> (*run_module)(HloPassInterface*, HloModule*,
                                   const Threads&);
absl::StatusOr<bool> RunModule(HloPassInterface* pass, HloModule* module,
                               const Threads& threads) {
  PassObserver* observer = PassObserver::For(module);
  if (observer == nullptr) return run_module(pass, module, threads);
  return observer->OnRun(pass,
                         [&] { return run_module(pass, module, threads); });
}

absl::StatusOr<bool> (*run_owned)(HloPassInterface*,
                                  std::unique_ptr<HloModule>&, const Threads&);
absl::StatusOr<bool> RunOwned(HloPassInterface* pass,
                              std::unique_ptr<HloModule>& module,
                              const Threads& threads) {
  PassObserver* observer = PassObserver::For(module.get());
  if (observer == nullptr) return run_owned(pass, module, threads);
  return observer->OnRun(pass, [&] {
    absl::StatusOr<bool> result = run_owned(pass, module, threads);
    observer->set_module(module.get());
    return result;
  });
}

#define HLOENV_THREADS \
  "13flat_hash_setISt17basic_string_viewIcSt11char_traitsIcEE"

// Workaround for an XLA bug: layout assignment skips fusion computations, so
// instructions that earlier passes added to existing fusions have no layout,
// and cost analysis fails a CHECK. Sets the default layout, which passes before
// layout assignment assume.
void AddFusedLayouts(HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    if (!computation->IsFusionComputation()) continue;
    for (xla::HloInstruction* each : computation->instructions()) {
      if (!xla::LayoutUtil::HasLayout(each->shape())) {
        xla::LayoutUtil::SetToDefaultLayout(each->mutable_shape());
      }
    }
  }
}

}  // namespace

absl::Status InstallRunHooks() {
  HLOENV_RETURN_IF_ERROR(InstallWorkarounds());
  static auto* group = new HookGroup({
      {"_ZN3xla16HloPassInterface3RunEPNS_9HloModuleERKN4absl12lts_"
       "20250814" HLOENV_THREADS
       "NS4_18container_internal10StringHashENSA_8StringEqESaIS9_EEE",
       reinterpret_cast<void*>(RunModule),
       reinterpret_cast<void**>(&run_module)},
      {"_ZN3xla16HloPassInterface3RunERSt10unique_ptrINS_"
       "9HloModuleESt14default_"
       "deleteIS2_EERKN4absl12lts_20250814" HLOENV_THREADS
       "NS8_18container_internal10StringHashENSE_8StringEqESaISD_EEE",
       reinterpret_cast<void*>(RunOwned), reinterpret_cast<void**>(&run_owned)},
  });
  return group->Install();
}

PassObserver::PassObserver(HloModule* module)
    : module_(module), outer_(current_observer) {
  current_observer = this;
}

PassObserver::~PassObserver() { current_observer = outer_; }

PassObserver* PassObserver::For(const HloModule* module) {
  PassObserver* observer = current_observer;
  if (observer == nullptr || observer->module_ != module ||
      observer->in_pass_) {
    return nullptr;
  }
  return observer;
}

bool PassObserver::IsInvariantCheck(const HloPassInterface* pass) const {
  if (pipelines_.empty() || pipelines_.back() == nullptr) return false;
  for (int i = 0; i < pipelines_.back()->PassesSize(); ++i) {
    if (&pipelines_.back()->GetPass(i) == pass) return false;
  }
  return true;
}

PassInvocation PassObserver::InvocationOf(const std::string& name,
                                          HloPassInterface* pass) {
  PassInvocation invocation;
  invocation.name = name;
  invocation.path = names_.empty()
                        ? name
                        : absl::StrCat(absl::StrJoin(names_, "/"), "/", name);
  invocation.path_occurrence = ++path_invocations_[invocation.path];
  invocation.pass = pass;
  return invocation;
}

absl::StatusOr<bool> PassObserver::OnRun(HloPassInterface* pass, RunFn run) {
  const auto run_inside = [&] {
    in_pass_ = true;
    absl::Cleanup leave = [this] { in_pass_ = false; };
    return run();
  };
  if (IsInvariantCheck(pass)) return OnInvariantCheck(run_inside);
  const std::string name(pass->name());
  PassInvocation invocation = InvocationOf(name, pass);
  if (pass->IsPassPipeline()) {
    HLOENV_RETURN_IF_ERROR(OnPipeline(invocation));
    names_.push_back(name);
    pipelines_.push_back(dynamic_cast<HloPassPipeline*>(pass));
    absl::StatusOr<bool> result = run();
    pipelines_.pop_back();
    names_.pop_back();
    return result;
  }
  invocation.occurrence = ++name_invocations_[name];
  const auto run_guarded = [&]() -> absl::StatusOr<bool> {
    // Workaround for an XLA bug: without the normalizer before them, these
    // passes fail or crash on batching dimensions.
    if ((name == "gather_simplifier" || name == "scatter_simplifier") &&
        HasBatchedIndexing(*module_)) {
      return absl::FailedPreconditionError(
          "it does not support batching dimensions; run "
          "batched_gather_scatter_normalizer before it");
    }
    return run_inside();
  };
  absl::StatusOr<bool> result = OnPass(invocation, run_guarded);
  if (name == "layout-assignment" && result.ok()) AddFusedLayouts(module_);
  if (!result.ok() && !result.status().GetPayload(kErrorKindUrl) &&
      !absl::IsCancelled(result.status())) {
    return Annotate(result.status(), kCompileError,
                    absl::StrCat("XLA's pass '", invocation.path, "' failed"));
  }
  return result;
}

}  // namespace hloenv
