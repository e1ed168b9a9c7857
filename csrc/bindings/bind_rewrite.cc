// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "rewrite/capture.h"
#include "rewrite/given_graph.h"
#include "rewrite/recorder.h"
#include "support/hooks.h"

namespace hloenv {

namespace py = pybind11;

namespace {

using CapturePtr = std::shared_ptr<const Capture>;
using Int64Array = py::array_t<int64_t, py::array::c_style>;

// Made while the GIL is held: another thread may write to the array without it.
std::vector<int64_t> CopyOf(const Int64Array& array) {
  return {array.data(), array.data() + array.size()};
}

py::array_t<int64_t> ToNumpy(const std::vector<int64_t>& values) {
  return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()),
                              values.data());
}

py::array_t<bool> ToBools(const std::vector<uint8_t>& flags) {
  py::array_t<bool> result(static_cast<py::ssize_t>(flags.size()));
  std::copy(flags.begin(), flags.end(), result.mutable_data());
  return result;
}

const Alternative& At(const Capture& capture, int64_t index) {
  const auto& alternatives = capture.alternatives();
  if (index < 0 || index >= static_cast<int64_t>(alternatives.size())) {
    throw py::index_error("alternative " + std::to_string(index) + " of " +
                          std::to_string(alternatives.size()));
  }
  return alternatives[index];
}

// (computation, original, ((user, operand), ...)); the root use has user "".
py::tuple SiteTuple(const Capture& capture, const Site& site) {
  const InstructionIndex& index = capture.analysis().index;
  const xla::HloInstruction* original = index.at(site.original);
  py::list uses;
  for (const Use& use : site.uses) {
    uses.append(py::make_tuple(use.user == Use::kRoot
                                   ? std::string()
                                   : std::string(index.at(use.user)->name()),
                               use.operand));
  }
  return py::make_tuple(std::string(original->parent()->name()),
                        std::string(original->name()), py::tuple(uses));
}

}  // namespace

void BindRewrite(py::module_& m) {
  py::class_<Capture, std::shared_ptr<Capture>>(m, "Capture")
      .def_property_readonly("pass_names",
                             [](const Capture& self) {
                               return py::tuple(py::cast(self.pass_names()));
                             })
      .def_property_readonly(
          "indivisible_reasons",
          [](const Capture& self) {
            return py::tuple(py::cast(self.IndivisibleReasons()));
          })
      .def("module", &Capture::module)
      .def("__len__",
           [](const Capture& self) { return self.alternatives().size(); })
      .def("num_choices",
           [](const Capture& self) { return ToNumpy(self.NumChoices()); })
      .def(
          "kind",
          [](const Capture& self, int64_t index) {
            return std::string(AlternativeKindName(At(self, index).kind));
          },
          py::arg("index"))
      .def(
          "sites",
          [](const Capture& self, int64_t index) {
            py::list sites;
            for (const Site& site : At(self, index).sites) {
              sites.append(SiteTuple(self, site));
            }
            return py::tuple(sites);
          },
          py::arg("index"))
      .def(
          "describe",
          [](const Capture& self, int64_t index, int64_t choice) {
            ChoiceInfo info;
            {
              GilRelease release;
              info = ValueOrThrow(self.Describe(index, choice));
            }
            return py::make_tuple(py::tuple(py::cast(info.passes)), info.opcode,
                                  py::tuple(py::cast(info.instructions)),
                                  py::tuple(py::cast(info.makes_dead)),
                                  info.rule, info.duplicates_compared);
          },
          py::arg("index"), py::arg("choice"))
      .def("duplicates_compared",
           [](const Capture& self) {
             std::vector<uint8_t> flags;
             {
               GilRelease release;
               flags = ValueOrThrow(self.DuplicatesCompared());
             }
             return ToBools(flags);
           })
      .def(
          "decisions_for",
          [](const Capture& self, const std::string& name) {
            return ToNumpy(ValueOrThrow(self.DecisionsFor(name)));
          },
          py::arg("name"))
      .def(
          "rejected",
          [](const Capture& self, const Int64Array& decisions) {
            const std::vector<int64_t> copy = CopyOf(decisions);
            GilRelease release;
            return ValueOrThrow(self.Rejected(copy));
          },
          py::arg("decisions"))
      .def(
          "relevant",
          [](const Capture& self, const Int64Array& decisions) {
            const std::vector<int64_t> copy = CopyOf(decisions);
            std::vector<uint8_t> relevant;
            {
              GilRelease release;
              relevant = ValueOrThrow(self.Relevant(copy));
            }
            return ToBools(relevant);
          },
          py::arg("decisions"))
      .def(
          "apply",
          [](const Capture& self, const Int64Array& decisions, bool rebuild) {
            const std::vector<int64_t> copy = CopyOf(decisions);
            GilRelease release;
            return ValueOrThrow(self.Apply(copy, rebuild));
          },
          py::arg("decisions"), py::arg("rebuild") = false)
      .def(
          "graph",
          [](const Capture& self) { return ValueOrThrow(self.Graph()); },
          WithoutGil());

  m.def(
      "check_alternative_graph",
      [](const Module& graph) { ThrowIfError(CheckAlternativeGraph(graph)); },
      py::arg("graph"));
  m.def(
      "apply_to_graph",
      [](const Module& graph, const Int64Array& decisions) {
        const std::vector<int64_t> copy = CopyOf(decisions);
        GilRelease release;
        return ValueOrThrow(ApplyToGraph(graph, copy));
      },
      py::arg("graph"), py::arg("decisions"));
  m.def("install_hooks", [] { ThrowIfError(InstallRecorderHooks()); });
  m.def("remove_hooks", &RemoveHooks);
  m.def("num_patched_slots", &NumPatchedSlots);
  m.def(
      "capture",
      [](const Module& module, const std::vector<PipelineSpec>& passes) {
        return std::const_pointer_cast<Capture>(
            ValueOrThrow(Capture::Run(module, passes)));
      },
      py::arg("module"), py::arg("passes"), WithoutGil());
}

}  // namespace hloenv
