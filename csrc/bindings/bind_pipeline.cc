// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "pipeline/interception.h"
#include "pipeline/xla_pipeline.h"

namespace hloenv {

namespace py = pybind11;

namespace {

// path, occurrence, changed
using PlaceTuple = std::tuple<std::string, int64_t, std::string>;

PipelineRun MakeRun(const std::optional<PlaceTuple>& place,
                    std::vector<std::string> decided) {
  PipelineRun run;
  if (place.has_value()) {
    run.place = PipelinePosition{std::get<0>(*place), std::get<1>(*place),
                                 std::get<2>(*place)};
  }
  run.decided = std::move(decided);
  return run;
}

// Lets Ctrl-C end XLA's pipeline between two passes. What the signal's handler
// raised stays set in this thread until the Cancelled status comes back.
bool IsInterrupted() {
  GilAcquire acquire;
  return PyErr_CheckSignals() != 0;
}

template <typename T>
T ValueOrInterrupt(absl::StatusOr<T> value) {
  if (absl::IsCancelled(value.status())) {
    GilAcquire acquire;
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  return ValueOrThrow(std::move(value));
}

// name, path, occurrence, path_occurrence; None at the pipeline's end
using PassInvocationTuple =
    std::tuple<std::string, std::string, int64_t, int64_t>;
std::optional<PassInvocationTuple> ToTuple(
    const std::optional<PassInvocation>& invocation) {
  if (!invocation.has_value()) return std::nullopt;
  return PassInvocationTuple{invocation->name, invocation->path,
                             invocation->occurrence,
                             invocation->path_occurrence};
}

}  // namespace

void BindPipeline(py::module_& m) {
  SetInterruptCheck(IsInterrupted);
  m.def(
      "list_stages",
      [](const Module& module, const std::optional<PlaceTuple>& place,
         const std::vector<std::string>& decided) {
        std::vector<Stage> stages;
        {
          GilRelease release;
          stages =
              ValueOrInterrupt(ListStages(module, MakeRun(place, decided)));
        }
        py::list result;
        for (const Stage& stage : stages) {
          result.append(py::make_tuple(stage.name, stage.path, stage.occurrence,
                                       stage.path_occurrence, stage.changed,
                                       stage.skipped, stage.duration_ns));
        }
        return result;
      },
      py::arg("module"), py::arg("place"), py::arg("decided"));
  m.def(
      "run_until",
      [](const Module& module, const std::string& where, int64_t occurrence,
         const std::optional<PlaceTuple>& place,
         const std::vector<std::string>& decided) {
        auto [stopped, at] = ValueOrInterrupt(
            RunUntil(module, Stop{where, occurrence}, MakeRun(place, decided)));
        return std::make_pair(std::move(stopped),
                              PlaceTuple{at.path, at.occurrence, at.changed});
      },
      py::arg("module"), py::arg("where"), py::arg("occurrence"),
      py::arg("place"), py::arg("decided"), WithoutGil());
  m.def(
      "finish",
      [](const Module& module, const std::optional<PlaceTuple>& place,
         const std::vector<std::string>& decided) {
        return ValueOrInterrupt(Finish(module, MakeRun(place, decided)));
      },
      py::arg("module"), py::arg("place"), py::arg("decided"), WithoutGil());
  m.def("skip_rules", [] {
    py::list rules;
    for (const SkipRule& rule : SkipRules()) {
      rules.append(py::make_tuple(rule.decided, rule.skipped, rule.reason,
                                  rule.makes_the_same));
    }
    return rules;
  });
  m.def("needed_passes", [] {
    py::list passes;
    for (const NeededPass& pass : NeededPasses()) {
      passes.append(py::make_tuple(pass.name, pass.reason));
    }
    return passes;
  });

  py::class_<Interception, std::shared_ptr<Interception>>(m, "Interception")
      .def(py::init([](const Module& module, const std::string& target) {
             GilRelease release;
             return ValueOrThrow(Interception::Start(
                 module, ValueOrThrow(Target::Parse(target))));
           }),
           py::arg("module"), py::arg("target"))
      .def("wait",
           [](Interception& self) {
             std::optional<PassInvocation> invocation;
             {
               GilRelease release;
               invocation = ValueOrInterrupt(self.Wait(IsInterrupted));
             }
             return ToTuple(invocation);
           })
      .def(
          "module",
          [](Interception& self) { return ValueOrThrow(self.ModuleHere()); },
          WithoutGil())
      .def(
          "capture",
          [](Interception& self, const std::vector<PipelineSpec>& others) {
            return std::const_pointer_cast<Capture>(
                ValueOrThrow(self.CaptureHere(others)));
          },
          py::arg("others"), WithoutGil())
      .def(
          "run", [](Interception& self) { ThrowIfError(self.Run()); },
          WithoutGil())
      .def(
          "skip", [](Interception& self) { ThrowIfError(self.Skip()); },
          WithoutGil())
      .def(
          "apply",
          [](Interception& self,
             const std::optional<std::shared_ptr<Capture>>& capture,
             const std::vector<int64_t>& decisions) {
            ThrowIfError(self.Apply(
                capture.has_value() ? capture->get() : nullptr, decisions));
          },
          py::arg("capture"), py::arg("decisions"), WithoutGil())
      .def(
          "run_until",
          [](Interception& self, const std::string& where, int64_t occurrence) {
            ThrowIfError(self.RunUntil(Stop{where, occurrence}));
          },
          py::arg("where"), py::arg("occurrence"), WithoutGil())
      .def(
          "finish",
          [](Interception& self) { ThrowIfError(self.RunToTheEnd()); },
          WithoutGil())
      .def("last_changed", &Interception::last_changed, WithoutGil())
      .def(
          "result",
          [](Interception& self) { return ValueOrThrow(self.Result()); },
          WithoutGil())
      .def("is_paused", &Interception::is_paused)
      .def("close", &Interception::Close, py::call_guard<GilReleaseToFree>());
  m.def("gpu_target_names", &GpuTargetNames);
  m.def("has_gpu_compiler", &HasGpuCompiler, WithoutGil());
}

}  // namespace hloenv
