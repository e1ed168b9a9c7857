// SPDX-License-Identifier: Apache-2.0
#include "passes/xla_pipeline.h"

#include <atomic>
#include <chrono>

#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hlo/config.h"
#include "support/hooks.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/hlo/pass/hlo_pass_pipeline.h"
#include "xla/service/compiler.h"
#include "xla/stream_executor/host/host_platform_id.h"

namespace hloenv {
namespace {

using xla::HloModule;
using xla::HloPassInterface;
using xla::HloPassPipeline;
using Threads = absl::flat_hash_set<absl::string_view>;

std::atomic<InterruptCheck> interrupt_check{nullptr};
constexpr std::chrono::milliseconds kInterruptInterval(50);

// Decides, for each pass run of one compile, whether it runs.
class Driver {
 public:
  using RunFn = absl::FunctionRef<absl::StatusOr<bool>()>;

  Driver(const HloModule* module, const PipelineRun& run, const Stop* stop)
      : module_(module),
        place_(run.place),
        skipped_(SkippedPasses(run.decided)),
        stop_(stop),
        outer_(current) {
    current = this;
  }
  ~Driver() { current = outer_; }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // The driver that a run on `module` belongs to, if any.
  static Driver* For(const HloModule* module) {
    Driver* driver = current;
    if (driver == nullptr || driver->module_ != module || driver->in_pass_) {
      return nullptr;
    }
    return driver;
  }

  absl::StatusOr<bool> OnRun(HloPassInterface* pass, RunFn run);

  // A pass may put another module in the place of the one it was given.
  void set_module(const HloModule* module) { module_ = module; }

  std::vector<Stage>& stages() { return stages_; }
  std::unique_ptr<HloModule>& stopped_module() { return stopped_module_; }
  Place& stopped_place() { return stopped_place_; }
  // Whether the compile came by the place that it was to go on from.
  bool arrived() const { return !place_.has_value() || arrived_; }
  const absl::btree_set<std::string>& paths() const { return paths_; }
  int64_t stop_arrivals() const { return stop_arrivals_; }
  bool stop_was_earlier() const { return stop_was_earlier_; }

 private:
  static thread_local Driver* current;

  bool IsInvariantCheck(const HloPassInterface* pass) const {
    if (pipelines_.empty() || pipelines_.back() == nullptr) return false;
    for (int i = 0; i < pipelines_.back()->PassesSize(); ++i) {
      if (&pipelines_.back()->GetPass(i) == pass) return false;
    }
    return true;
  }
  bool replaying() const {
    return place_.has_value() && changed_.size() < place_->changed.size();
  }
  bool Matches(absl::string_view path) const {
    return path == stop_->where ||
           absl::EndsWith(path, absl::StrCat("/", stop_->where));
  }
  // Counts an arrival at `path`; an error status when the compile ends here.
  absl::Status Arrive(const std::string& path);
  absl::Status CheckInterrupt();

  const HloModule* module_;
  const std::optional<Place> place_;
  const absl::flat_hash_set<std::string> skipped_;
  const Stop* const stop_;
  Driver* const outer_;

  bool in_pass_ = false;
  bool arrived_ = false;
  std::vector<HloPassPipeline*> pipelines_;
  std::vector<std::string> names_;  // of pipelines_
  std::string changed_;             // as Place::changed
  int64_t stop_arrivals_ = 0;
  bool stop_was_earlier_ = false;
  absl::flat_hash_map<std::string, int64_t> path_arrivals_;
  absl::flat_hash_map<std::string, int64_t> name_arrivals_;
  absl::btree_set<std::string> paths_;
  std::vector<Stage> stages_;
  std::unique_ptr<HloModule> stopped_module_;
  Place stopped_place_;
  std::chrono::steady_clock::time_point last_check_ =
      std::chrono::steady_clock::now();
};

thread_local Driver* Driver::current = nullptr;

absl::Status Driver::CheckInterrupt() {
  const InterruptCheck check = interrupt_check;
  const auto now = std::chrono::steady_clock::now();
  if (check == nullptr || now - last_check_ < kInterruptInterval) {
    return absl::OkStatus();
  }
  last_check_ = now;
  return check() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status Driver::Arrive(const std::string& path) {
  const int64_t path_arrivals = ++path_arrivals_[path];
  paths_.insert(path);
  const bool is_stop = stop_ != nullptr && Matches(path) &&
                       ++stop_arrivals_ == stop_->occurrence;
  if (replaying()) {
    stop_was_earlier_ |= is_stop;
    return absl::OkStatus();
  }
  if (place_.has_value() && !arrived_) {
    // The first arrival after the replay may be at a pipeline around the place.
    if (path == place_->path && path_arrivals == place_->occurrence) {
      arrived_ = true;
    } else if (!absl::StartsWith(place_->path, absl::StrCat(path, "/"))) {
      return Error(
          kPlaceError,
          absl::StrCat("XLA's pipeline comes by '", path,
                       "' where it came by '", place_->path,
                       "' when the place was taken; the module or the flags "
                       "have changed what XLA runs"));
    }
  }
  if (!is_stop) return absl::OkStatus();
  stopped_module_ = module_->Clone(/*suffix=*/"");
  stopped_place_ = {path, path_arrivals, changed_};
  return absl::CancelledError("hloenv stopped XLA's pipeline here");
}

absl::StatusOr<bool> Driver::OnRun(HloPassInterface* pass, RunFn run) {
  if (IsInvariantCheck(pass)) {
    if (replaying()) return false;
    in_pass_ = true;
    absl::StatusOr<bool> result = run();
    in_pass_ = false;
    return result;
  }
  const std::string name(pass->name());
  names_.push_back(name);
  const std::string path = absl::StrJoin(names_, "/");
  if (pass->IsPassPipeline()) {
    HLOENV_RETURN_IF_ERROR(Arrive(path));
    pipelines_.push_back(dynamic_cast<HloPassPipeline*>(pass));
    absl::StatusOr<bool> result = run();
    pipelines_.pop_back();
    names_.pop_back();
    return result;
  }
  names_.pop_back();
  HLOENV_RETURN_IF_ERROR(Arrive(path));
  const int64_t occurrence = ++name_arrivals_[name];
  if (replaying()) {
    const char changed = place_->changed[changed_.size()];
    changed_ += changed;
    return changed == '1';
  }
  HLOENV_RETURN_IF_ERROR(CheckInterrupt());
  Stage stage;
  stage.name = name;
  stage.path = path;
  stage.occurrence = occurrence;
  stage.path_occurrence = path_arrivals_[path];
  stage.skipped = skipped_.contains(name);
  absl::StatusOr<bool> result = false;
  if (!stage.skipped) {
    in_pass_ = true;
    const auto start = std::chrono::steady_clock::now();
    result = run();
    stage.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                            std::chrono::steady_clock::now() - start)
                            .count();
    in_pass_ = false;
    if (!result.ok()) {
      return Annotate(result.status(), kCompileError,
                      absl::StrCat("XLA's pass '", path, "' failed"));
    }
    stage.changed = *result;
  }
  changed_ += stage.changed ? '1' : '0';
  stages_.push_back(std::move(stage));
  return result;
}

absl::StatusOr<bool> (*run_module)(HloPassInterface*, HloModule*,
                                   const Threads&);
absl::StatusOr<bool> RunModule(HloPassInterface* pass, HloModule* module,
                               const Threads& threads) {
  Driver* driver = Driver::For(module);
  if (driver == nullptr) return run_module(pass, module, threads);
  return driver->OnRun(pass, [&] { return run_module(pass, module, threads); });
}

absl::StatusOr<bool> (*run_owned)(HloPassInterface*,
                                  std::unique_ptr<HloModule>&, const Threads&);
absl::StatusOr<bool> RunOwned(HloPassInterface* pass,
                              std::unique_ptr<HloModule>& module,
                              const Threads& threads) {
  Driver* driver = Driver::For(module.get());
  if (driver == nullptr) return run_owned(pass, module, threads);
  return driver->OnRun(pass, [&] {
    absl::StatusOr<bool> result = run_owned(pass, module, threads);
    driver->set_module(module.get());
    return result;
  });
}

#define HLOENV_THREADS \
  "13flat_hash_setISt17basic_string_viewIcSt11char_traitsIcEE"

absl::Status InstallRunHooks() {
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

struct Outcome {
  std::unique_ptr<HloModule> module;  // null when the compile was stopped
  std::vector<Stage> stages;
  std::unique_ptr<HloModule> stopped_module;
  Place stopped_place;
  absl::btree_set<std::string> paths;
  int64_t stop_arrivals = 0;
  bool stop_was_earlier = false;  // the stop lies before the given place
};

absl::StatusOr<Outcome> Drive(const Module& module, const PipelineRun& run,
                              const Stop* stop) {
  QuietLogs quiet;
  HLOENV_RETURN_IF_ERROR(InstallRunHooks());
  // XLA's compiler reads its flags on its own: check them first.
  HLOENV_RETURN_IF_ERROR(DefaultModuleConfig().status());
  absl::StatusOr<std::unique_ptr<xla::Compiler>> compiler =
      xla::Compiler::GetForPlatform(stream_executor::host::kHostPlatformId);
  if (!compiler.ok()) {
    return Annotate(compiler.status(), kCompileError,
                    "this TensorFlow has no compiler for the host");
  }
  std::unique_ptr<HloModule> clone = module.CloneHlo();
  Outcome outcome;
  Driver driver(clone.get(), run, stop);
  absl::StatusOr<std::unique_ptr<HloModule>> result = (*compiler)->RunHloPasses(
      std::move(clone), /*executor=*/nullptr, xla::Compiler::CompileOptions{});
  outcome.stages = std::move(driver.stages());
  outcome.stopped_module = std::move(driver.stopped_module());
  outcome.stopped_place = std::move(driver.stopped_place());
  outcome.paths = driver.paths();
  outcome.stop_arrivals = driver.stop_arrivals();
  outcome.stop_was_earlier = driver.stop_was_earlier();
  if (outcome.stopped_module != nullptr) return outcome;
  if (!result.ok()) {
    if (result.status().GetPayload(kErrorKindUrl) ||
        absl::IsCancelled(result.status())) {
      return result.status();
    }
    return Annotate(result.status(), kCompileError, "XLA's pipeline failed");
  }
  if (!driver.arrived()) {
    return Error(kPlaceError, absl::StrCat("XLA's pipeline did not come by '",
                                           run.place->path,
                                           "' again, where the module was "
                                           "taken out of it"));
  }
  outcome.module = *std::move(result);
  return outcome;
}

std::string Normalize(absl::string_view name) {
  std::string result;
  for (char c : name) {
    if (absl::ascii_isalnum(c)) result += absl::ascii_tolower(c);
  }
  return result;
}

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// Why the pipeline ended without coming by `stop`.
std::string NotReached(const Stop& stop, const Outcome& outcome) {
  if (outcome.stop_arrivals > 0) {
    return absl::StrCat(
        "XLA's pipeline comes by '", stop.where, "' ", outcome.stop_arrivals,
        outcome.stop_arrivals == 1 ? " time" : " times", ", not ",
        stop.occurrence,
        outcome.stop_was_earlier ? ", and the module is past that" : "");
  }
  // A name that holds the other stands nearest, then by spelling.
  const std::string wanted =
      Normalize(stop.where.substr(stop.where.rfind('/') + 1));
  absl::btree_set<std::string> names;
  for (const std::string& path : outcome.paths) {
    names.insert(path.substr(path.rfind('/') + 1));
  }
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const std::string normal = Normalize(name);
    const bool holds =
        absl::StrContains(normal, wanted) || absl::StrContains(wanted, normal);
    ranked.push_back({holds ? 0 : EditDistance(wanted, normal), name});
  }
  std::sort(ranked.begin(), ranked.end());
  constexpr size_t kNumShown = 5;
  if (ranked.size() > kNumShown) ranked.resize(kNumShown);
  return absl::StrCat("XLA's pipeline for this module never comes by '",
                      stop.where, "'; nearest: ",
                      absl::StrJoin(ranked, ", ",
                                    [](std::string* out, const auto& entry) {
                                      absl::StrAppend(out, "'", entry.second,
                                                      "'");
                                    }),
                      "; list_stages has all");
}

}  // namespace

void SetInterruptCheck(InterruptCheck check) { interrupt_check = check; }

absl::StatusOr<std::vector<Stage>> ListStages(const Module& module,
                                              const PipelineRun& run) {
  HLOENV_ASSIGN_OR_RETURN(Outcome outcome, Drive(module, run, nullptr));
  return std::move(outcome.stages);
}

absl::StatusOr<std::pair<Module, Place>> RunUntil(const Module& module,
                                                  const Stop& stop,
                                                  const PipelineRun& run) {
  if (stop.where.empty() || stop.occurrence < 1) {
    return Error(kPlaceError,
                 absl::StrCat("a stop is the name or path of a pass and an "
                              "occurrence from 1, not '",
                              stop.where, "' and ", stop.occurrence));
  }
  HLOENV_ASSIGN_OR_RETURN(Outcome outcome, Drive(module, run, &stop));
  if (outcome.stopped_module == nullptr) {
    return Error(kPlaceError, NotReached(stop, outcome));
  }
  return std::make_pair(Module(std::move(outcome.stopped_module)),
                        std::move(outcome.stopped_place));
}

absl::StatusOr<Module> Finish(const Module& module, const PipelineRun& run) {
  HLOENV_ASSIGN_OR_RETURN(Outcome outcome, Drive(module, run, nullptr));
  return Module(std::move(outcome.module));
}

}  // namespace hloenv
