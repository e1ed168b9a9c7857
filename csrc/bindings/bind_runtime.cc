// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/caller.h"
#include "bindings/errors.h"
#include "passes/xla_pipeline.h"
#include "runtime/arguments.h"
#include "runtime/custom_calls.h"
#include "runtime/executable.h"
#include "support/quiet.h"

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
    run.place =
        Place{std::get<0>(*place), std::get<1>(*place), std::get<2>(*place)};
  }
  run.decided = std::move(decided);
  return run;
}

// Lets Ctrl-C end XLA's pipeline between two passes. What the signal's handler
// raised stays set in this thread until the Cancelled status comes back.
bool IsInterrupted() {
  py::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

template <typename T>
T ValueOrInterrupt(absl::StatusOr<T> value) {
  if (absl::IsCancelled(value.status())) {
    py::gil_scoped_acquire acquire;
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  return ValueOrThrow(std::move(value));
}

py::list ToTuples(const std::vector<BufferSpec>& specs) {
  py::list result;
  for (const BufferSpec& spec : specs) {
    result.append(py::make_tuple(
        spec.array.dtype, py::tuple(py::cast(spec.array.dims)),
        py::tuple(py::cast(spec.array.layout)), spec.buffer_bytes));
  }
  return result;
}

// A function that a capsule of any name holds; null for None.
void* PointerOf(const py::object& capsule) {
  if (capsule.is_none()) return nullptr;
  return py::cast<py::capsule>(capsule).get_pointer();
}

}  // namespace

void BindRuntime(py::module_& m) {
  SetInterruptCheck(IsInterrupted);
  m.def("set_quiet", SetQuiet, py::arg("is_quiet"),
        "Whether XLA's log lines below FATAL are dropped while hloenv works.");
  m.def(
      "list_stages",
      [](const Module& module, const std::optional<PlaceTuple>& place,
         const std::vector<std::string>& decided) {
        std::vector<Stage> stages;
        {
          py::gil_scoped_release release;
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
      rules.append(py::make_tuple(rule.decided, rule.skipped, rule.reason));
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
  m.def(
      "index_bounds",
      [](const Module& module) { return IndexBounds(module.hlo()); },
      py::arg("module"),
      "One exclusive bound or None for each flat input leaf.");
  m.def("custom_call_targets", [](const Module& module) {
    py::list result;
    for (const CustomCallTarget& target : CustomCallTargets(module.hlo())) {
      result.append(py::make_tuple(target.name, target.is_typed,
                                   target.is_registered, target.num_calls));
    }
    return result;
  });
  m.def(
      "check_custom_calls",
      [](const Module& module) {
        ThrowIfError(CheckCustomCalls(module.hlo()));
      },
      py::arg("module"));
  m.def(
      "register_ffi_handler",
      [](const std::string& name, const py::object& instantiate,
         const py::object& prepare, const py::object& initialize,
         const py::object& execute) {
        ThrowIfError(RegisterFfiHandler(
            name, FfiHandler{PointerOf(instantiate), PointerOf(prepare),
                             PointerOf(initialize), PointerOf(execute)}));
      },
      py::arg("name"), py::arg("instantiate"), py::arg("prepare"),
      py::arg("initialize"), py::arg("execute"));
  m.def(
      "register_untyped_target",
      [](const std::string& name, const py::object& function) {
        ThrowIfError(RegisterUntypedTarget(name, PointerOf(function)));
      },
      py::arg("name"), py::arg("function"));

  py::class_<Executable, std::shared_ptr<Executable>>(m, "Executable")
      .def_property_readonly(
          "inputs",
          [](const Executable& self) { return ToTuples(self.inputs()); })
      .def_property_readonly(
          "outputs",
          [](const Executable& self) { return ToTuples(self.outputs()); })
      .def_property_readonly("temp_bytes", &Executable::temp_bytes);
  m.def(
      "compile",
      [](const Module& module) {
        return ValueOrThrow(Executable::Compile(module));
      },
      py::arg("module"), WithoutGil());
  py::class_<Caller>(m, "Caller")
      .def(py::init<std::shared_ptr<Executable>, py::list, py::list,
                    py::object>(),
           py::arg("executable"), py::arg("input_dtypes"),
           py::arg("output_dtypes"), py::arg("place_input"))
      .def("call", &Caller::Call, py::arg("arguments"));
  m.def("time_callers", &TimeCallers, py::arg("callers"), py::arg("arguments"),
        py::arg("warmup"), py::arg("repeats"));
  m.attr("BUFFER_ALIGNMENT") = kBufferAlignment;
}

}  // namespace hloenv
