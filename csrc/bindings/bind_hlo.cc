// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "hlo/fingerprint.h"
#include "hlo/layouts.h"
#include "hlo/module.h"
#include "hlo/read.h"
#include "hlo/source_lines.h"

namespace hloenv {

namespace py = pybind11;

namespace {

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
          [](const std::string& text, bool check_structure, bool verify) {
            return ValueOrThrow(ReadText(text, {check_structure, verify}));
          },
          py::arg("text"), py::kw_only(), py::arg("check_structure"),
          py::arg("verify"), WithoutGil())
      .def_static(
          "from_proto",
          [](const py::bytes& bytes, bool check_structure, bool verify) {
            std::string data = bytes;
            GilRelease release;
            return ValueOrThrow(ReadProto(data, {check_structure, verify}));
          },
          py::arg("bytes"), py::kw_only(), py::arg("check_structure"),
          py::arg("verify"))
      .def("to_text", &Module::ToText, py::arg("all_constants") = true,
           WithoutGil())
      .def("to_proto",
           [](const Module& self) {
             std::string data;
             {
               GilRelease release;
               data = self.ToProto();
             }
             return py::bytes(data);
           })
      .def("clone", &Module::Clone, WithoutGil())
      .def_property_readonly("note", &Module::note)
      .def("with_note", &Module::WithNote, py::arg("note"), WithoutGil())
      .def(
          "verify",
          [](const Module& self, bool layout_sensitive) {
            ThrowIfError(self.Verify(layout_sensitive));
          },
          py::arg("layout_sensitive") = false, WithoutGil())
      .def(
          "fingerprint",
          [](const Module& self) { return Fingerprint(self.hlo()); },
          WithoutGil())
      .def_property_readonly("name",
                             [](const Module& self) { return self.name(); })
      .def_property_readonly("instruction_count", &Module::instruction_count)
      .def_property_readonly("computation_count", &Module::computation_count)
      .def("opcode_counts", &Module::OpcodeCounts, WithoutGil())
      .def("sources",
           [](const Module& self) {
             std::vector<SourceLine> lines;
             {
               GilRelease release;
               lines = SourceLines(self.hlo());
             }
             py::list found;
             for (const SourceLine& line : lines) {
               found.append(py::make_tuple(line.instruction, line.op_name,
                                           line.file, line.line));
             }
             return found;
           })
      .def(
          "depends_on_layouts",
          [](const Module& module) { return DependsOnLayouts(module.hlo()); },
          WithoutGil())
      .def("cost",
           [](const Module& self) {
             ModuleCost cost;
             {
               GilRelease release;
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
