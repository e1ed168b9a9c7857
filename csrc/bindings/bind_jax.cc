// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include "backend/dot_lowering.h"
#include "backend/thunk_order.h"
#include "bindings/bind.h"
#include "bindings/gil.h"
#include "bindings/jit_calls.h"
#include "hlo/jax_compat.h"
#include "runtime/own_calls.h"

namespace hloenv {

namespace py = pybind11;

void BindJax(py::module_& m) {
  m.def("with_default_entry_layout", &WithDefaultEntryLayout, py::arg("module"),
        WithoutGil());
  m.def("has_donations", &HasDonations, py::arg("module"), WithoutGil());
  m.def("without_donations", &WithoutDonations, py::arg("module"),
        WithoutGil());
  m.def("without_shardings", &WithoutShardings, py::arg("module"),
        WithoutGil());
  m.def(
      "calls_onednn",
      [](const Module& module) { return CallsOneDnn(module.hlo()); },
      py::arg("module"), WithoutGil());
  m.def(
      "has_marked_dots",
      [](const Module& module) { return HasMarkedDots(module.hlo()); },
      py::arg("module"), WithoutGil());
  m.def(
      "has_sequential_computations",
      [](const Module& module) {
        return !SequentialComputations(module.hlo()).empty();
      },
      py::arg("module"), WithoutGil());
  m.def("readable_here", &ReadableHere, py::arg("module"), WithoutGil());
  m.def("readable_by_jaxlib", &ReadableByJaxlib, py::arg("module"),
        WithoutGil());
  BindJitCalls(m);
}

}  // namespace hloenv
