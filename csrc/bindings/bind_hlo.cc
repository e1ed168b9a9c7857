// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "hlo/fingerprint.h"
#include "hlo/layouts.h"
#include "hlo/module.h"

namespace hloenv {

namespace py = pybind11;

namespace {

using WithoutGil = py::call_guard<py::gil_scoped_release>;

py::list ToTuples(const std::vector<ArraySpec>& specs) {
  py::list result;
  for (const ArraySpec& spec : specs) {
    result.append(py::make_tuple(spec.dtype, py::tuple(py::cast(spec.dims))));
  }
  return result;
}

}  // namespace

void BindHlo(py::module_& m) {
  py::class_<Module>(m, "Module")
      .def_static(
          "from_text",
          [](const std::string& text) {
            return ValueOrThrow(Module::FromText(text));
          },
          py::arg("text"), WithoutGil())
      .def_static(
          "from_proto",
          [](const py::bytes& bytes) {
            std::string data = bytes;
            py::gil_scoped_release release;
            return ValueOrThrow(Module::FromProto(data));
          },
          py::arg("bytes"))
      .def("to_text", &Module::ToText, WithoutGil())
      .def("to_proto",
           [](const Module& self) {
             std::string data;
             {
               py::gil_scoped_release release;
               data = self.ToProto();
             }
             return py::bytes(data);
           })
      .def("clone", &Module::Clone, WithoutGil())
      .def_property_readonly("note", &Module::note)
      .def("with_note", &Module::WithNote, py::arg("note"), WithoutGil())
      .def(
          "verify", [](const Module& self) { ThrowIfError(self.Verify()); },
          WithoutGil())
      .def(
          "fingerprint",
          [](const Module& self) { return Fingerprint(self.hlo()); },
          WithoutGil())
      .def_property_readonly("name",
                             [](const Module& self) { return self.name(); })
      .def_property_readonly("instruction_count", &Module::instruction_count)
      .def_property_readonly("computation_count", &Module::computation_count)
      .def("opcode_counts", &Module::OpcodeCounts, WithoutGil())
      .def(
          "depends_on_layouts",
          [](const Module& module) { return DependsOnLayouts(module.hlo()); },
          WithoutGil())
      .def("cost",
           [](const Module& self) {
             ModuleCost cost;
             {
               py::gil_scoped_release release;
               cost = ValueOrThrow(self.Cost());
             }
             return py::make_tuple(cost.flops, cost.bytes_accessed,
                                   cost.transcendentals);
           })
      .def_property_readonly("entry_layout", &Module::EntryLayout)
      .def("input_specs",
           [](const Module& self) { return ToTuples(self.InputSpecs()); })
      .def("output_specs",
           [](const Module& self) { return ToTuples(self.OutputSpecs()); });
}

}  // namespace hloenv
