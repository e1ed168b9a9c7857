// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "absl/log/globals.h"
#include "bindings/bind.h"
#include "bindings/errors.h"
#include "passes/xla_pipeline.h"

namespace hloenv {

namespace py = pybind11;

namespace {

using WithoutGil = py::call_guard<py::gil_scoped_release>;
// path, occurrence, changed
using PlaceTuple = std::tuple<std::string, int64_t, std::string>;

PipelineRun MakeRun(const std::optional<PlaceTuple>& place,
                    std::vector<std::string> decided) {
  PipelineRun run;
  if (place.has_value()) {
    run.place = Place{std::get<0>(*place), std::get<1>(*place),
                      std::get<2>(*place)};
  }
  run.decided = std::move(decided);
  return run;
}

}  // namespace

void BindRuntime(py::module_& m) {
  m.def(
      "quieten_logs",
      [] { absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal); },
      "Drops every log line of XLA below FATAL.");
  m.def(
      "list_stages",
      [](const Module& module, const std::optional<PlaceTuple>& place,
         const std::vector<std::string>& decided) {
        std::vector<Stage> stages;
        {
          py::gil_scoped_release release;
          stages = ValueOrThrow(ListStages(module, MakeRun(place, decided)));
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
        auto [stopped, at] = ValueOrThrow(
            RunUntil(module, Stop{where, occurrence}, MakeRun(place, decided)));
        return std::make_pair(
            std::move(stopped),
            PlaceTuple{at.path, at.occurrence, at.changed});
      },
      py::arg("module"), py::arg("where"), py::arg("occurrence"),
      py::arg("place"), py::arg("decided"), WithoutGil());
  m.def(
      "finish",
      [](const Module& module, const std::optional<PlaceTuple>& place,
         const std::vector<std::string>& decided) {
        return ValueOrThrow(Finish(module, MakeRun(place, decided)));
      },
      py::arg("module"), py::arg("place"), py::arg("decided"), WithoutGil());
  m.def("skip_rules", [] {
    py::list rules;
    for (const SkipRule& rule : SkipRules()) {
      rules.append(py::make_tuple(rule.decided, rule.skipped, rule.reason));
    }
    return rules;
  });
}

}  // namespace hloenv
