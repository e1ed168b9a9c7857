// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/caller.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "runtime/arguments.h"
#include "runtime/custom_calls.h"
#include "runtime/executable.h"
#include "runtime/ffi_call.h"
#include "runtime/kernels.h"
#include "runtime/narrow_types.h"
#include "runtime/one_device.h"
#include "support/native_scope.h"
#include "support/quiet.h"
#include "workarounds/trivial_window.h"

namespace hloenv {

namespace py = pybind11;

namespace {

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
  m.def("set_quiet", SetQuiet, py::arg("is_quiet"),
        "Whether XLA's log lines below FATAL are dropped while hloenv works.");
  m.def(
      "index_bounds",
      [](const Module& module) { return IndexBounds(module.hlo()); },
      py::arg("module"), WithoutGil(),
      "One exclusive bound or None for each flat input leaf.");
  m.def(
      "positive_leaves",
      [](const Module& module) { return PositiveLeaves(module.hlo()); },
      py::arg("module"), WithoutGil(),
      "For each flat input leaf whether a root or logarithm is taken of it.");
  m.def("custom_call_targets", [](const Module& module) {
    ThrowIfError(CheckNotForkedInXla());
    py::list result;
    for (const CustomCallTarget& target : CustomCallTargets(module.hlo())) {
      result.append(py::make_tuple(target.name, target.is_typed,
                                   target.is_registered, target.num_calls));
    }
    return result;
  });
  m.def(
      "check_runs_in_wheel",
      [](const Module& module) {
        ThrowIfError(CheckNotForkedInXla());
        ThrowIfError(CheckNarrowTypes(module.hlo()));
        ThrowIfError(CheckCustomCalls(module.hlo()));
      },
      py::arg("module"));
  m.def(
      "check_runs_in_jaxlib",
      [](const Module& module) {
        ThrowIfError(CheckNotForkedInXla());
        ThrowIfError(CheckRunsAlone(module.hlo()));
        ThrowIfError(CheckNarrowTypes(module.hlo()));
        ThrowIfError(CheckCallsInJaxlib(module.hlo()));
        ThrowIfError(CheckNoTrivialWindow(module.hlo()));
      },
      py::arg("module"));
  m.def(
      "register_ffi_handler",
      [](const std::string& name, const py::object& instantiate,
         const py::object& prepare, const py::object& initialize,
         const py::object& execute) {
        ThrowIfError(CheckNotForkedInXla());
        ThrowIfError(RegisterFfiHandler(
            name, FfiHandler{PointerOf(instantiate), PointerOf(prepare),
                             PointerOf(initialize), PointerOf(execute)}));
      },
      py::arg("name"), py::arg("instantiate"), py::arg("prepare"),
      py::arg("initialize"), py::arg("execute"));
  m.def(
      "register_untyped_target",
      [](const std::string& name, const py::object& function) {
        ThrowIfError(CheckNotForkedInXla());
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
      .def_property_readonly(
          "donations",
          [](const Executable& self) {
            py::list donations;
            for (const Executable::Donation& each : self.Donations()) {
              donations.append(py::make_tuple(each.input, each.output));
            }
            return donations;
          })
      .def_property_readonly("temp_bytes", &Executable::temp_bytes)
      .def_property_readonly("num_graphs", &Executable::NumGraphs)
      .def_property_readonly(
          "steps",
          [](const Executable& self) {
            py::list steps;
            for (const Executable::Step& step : self.Steps()) {
              steps.append(py::make_tuple(step.name, step.kind));
            }
            return steps;
          })
      .def(
          "copy",
          [](const Executable& self) { return ValueOrThrow(self.Copy()); },
          WithoutGil());
  m.def(
      "compile",
      [](const Module& module) {
        return ValueOrThrow(Executable::Compile(module));
      },
      py::arg("module"), WithoutGil());
  m.def(
      "ffi_call_handler",
      []() -> py::object { return py::capsule(FfiCallHandler()); },
      "An XLA_FFI_Handler that runs what publish_executable has stored.");
  m.def("publish_executable", &PublishExecutable, py::arg("key"),
        py::arg("executable"), WithoutGil());
  m.def("retract_executable", &RetractExecutable, py::arg("key"), WithoutGil());
  py::class_<Caller>(m, "Caller")
      .def(py::init<std::shared_ptr<Executable>, py::list, py::list,
                    py::object>(),
           py::arg("executable"), py::arg("input_dtypes"),
           py::arg("output_dtypes"), py::arg("place_input"))
      .def("call", &Caller::Call, py::arg("arguments"));
  m.def(
      "time_callers",
      [](const std::vector<Caller*>& callers,
         const std::vector<py::tuple>& arguments,
         const std::vector<int64_t>& batch, int64_t warmup, int64_t rounds,
         uint64_t seed) {
        return TimeCallers(callers, arguments,
                           TimingPlan{warmup, rounds, seed, batch});
      },
      py::arg("callers"), py::arg("arguments"), py::arg("batch"),
      py::arg("warmup"), py::arg("rounds"), py::arg("seed"));
  m.def("time_steps", &TimeCallerSteps, py::arg("caller"), py::arg("arguments"),
        py::arg("warmup"), py::arg("rounds"), py::arg("is_warm"));

  py::class_<KernelGraph, std::shared_ptr<KernelGraph>>(m, "KernelGraph")
      .def(py::init<const Module&>(), py::arg("module"), WithoutGil())
      .def_property_readonly("fingerprints", &KernelGraph::fingerprints)
      .def_property_readonly("names", &KernelGraph::Names)
      .def_property_readonly("opcodes", &KernelGraph::Opcodes)
      .def_property_readonly("num_runs", &KernelGraph::NumRuns)
      .def(
          "total_ns",
          [](const KernelGraph& self, const std::vector<double>& kernel_ns,
             int num_threads, double graph_step_ns) {
            return self.TotalNs(kernel_ns, num_threads, graph_step_ns);
          },
          py::arg("kernel_ns"), py::arg("num_threads"),
          py::arg("graph_step_ns"), WithoutGil())
      .def(
          "extract",
          [](const KernelGraph& self, const std::vector<int64_t>& kernels) {
            return self.Extract(kernels);
          },
          py::arg("kernels"), WithoutGil());
  m.def(
      "output_of_instruction",
      [](const Module& module) {
        const auto outputs = OutputOfInstruction(module.hlo());
        return std::map<std::string, int64_t>(outputs.begin(), outputs.end());
      },
      py::arg("module"), WithoutGil());
  m.attr("BUFFER_ALIGNMENT") = kBufferAlignment;
}

}  // namespace hloenv
