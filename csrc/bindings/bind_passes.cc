// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "absl/strings/str_cat.h"
#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "hlo/module.h"
#include "passes/pipeline.h"
#include "passes/proposals/given.h"
#include "passes/registry.h"
#include "support/native_scope.h"
#include "support/status.h"

namespace hloenv {

namespace py = pybind11;

namespace {

// By the exact type: a bool is no int here, and an int no float.
OptionValue ToOptionValue(const std::string& pass, const std::string& option,
                          py::handle value) {
  if (PyBool_Check(value.ptr())) return value.cast<bool>();
  if (PyLong_Check(value.ptr())) {
    int overflow = 0;
    const int64_t result = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) return result;
  }
  if (PyFloat_Check(value.ptr())) return value.cast<double>();
  if (PyUnicode_Check(value.ptr())) return value.cast<std::string>();
  throw StatusException(Error(
      kPassOptionError,
      absl::StrCat("option '", option, "' of pass '", pass, "' is ",
                   std::string(py::repr(value)), " (",
                   std::string(py::str(py::type::of(value).attr("__name__"))),
                   "); options are a bool, an int of 64 bits, a float or a "
                   "str")));
}

PassSpec ToPassSpec(const std::string& name, const py::dict& options) {
  PassSpec spec;
  spec.name = name;
  for (const auto& [key, value] : options) {
    std::string option = py::str(key);
    spec.options.push_back({option, ToOptionValue(name, option, value)});
  }
  return spec;
}

// Each step is a PipelineSpec or a pass as (name, options).
PipelineSpec ToPipelineSpec(std::string name, const py::sequence& steps,
                            bool fixed_point, int max_iterations) {
  PipelineSpec spec;
  spec.name = std::move(name);
  spec.fixed_point = fixed_point;
  spec.max_iterations = max_iterations;
  for (py::handle step : steps) {
    if (py::isinstance<PipelineSpec>(step)) {
      spec.steps.push_back(step.cast<const PipelineSpec&>());
    } else {
      auto [pass, options] = step.cast<std::pair<std::string, py::dict>>();
      spec.steps.push_back(ToPassSpec(pass, options));
    }
  }
  ThrowIfError(CheckPipeline(spec));
  return spec;
}

py::dict ToDict(const OptionInfo& option) {
  py::dict result;
  result["name"] = option.name;
  result["type"] = std::string(OptionTypeName(option.type()));
  result["default"] = option.default_value;
  result["doc"] = option.doc;
  result["allowed"] = py::tuple(py::cast(option.allowed));
  result["minimum"] = option.minimum;
  return result;
}

py::dict ToDict(const PassInfo& pass) {
  py::list options;
  for (const OptionInfo& option : pass.options) options.append(ToDict(option));
  py::dict result;
  result["name"] = pass.name;
  result["class_name"] = pass.class_name;
  result["summary"] = pass.summary;
  result["options"] = options;
  result["candidate"] = pass.is_candidate();
  return result;
}

py::dict ToDict(const PipelineResult& result) {
  py::list steps;
  for (const StepResult& step : result.steps) {
    steps.append(py::make_tuple(step.path, step.iteration, step.changed,
                                step.duration_ns));
  }
  py::dict dict;
  dict["iterations"] = result.iterations;
  dict["stop_reason"] = std::string(StopReasonName(result.stop_reason));
  dict["duration_ns"] = result.duration_ns;
  dict["steps"] = steps;
  return dict;
}

}  // namespace

void BindPasses(py::module_& m) {
  m.def("list_passes", [] {
    std::vector<std::string> names;
    for (const PassInfo& pass : AllPasses()) names.push_back(pass.name);
    return names;
  });
  m.def("excluded_passes", [] {
    std::vector<std::pair<std::string, std::string>> passes;
    for (const ExcludedPass& pass : ExcludedPasses()) {
      passes.emplace_back(pass.name, pass.reason);
    }
    return passes;
  });
  m.def(
      "describe_pass",
      [](const std::string& name) {
        return ToDict(*ValueOrThrow(FindPass(name)));
      },
      py::arg("name"));
  m.def(
      "xla_pass_name",
      [](const std::string& name) {
        ThrowIfError(CheckNotForkedInXla());
        return ValueOrThrow(XlaPassName(name));
      },
      py::arg("name"));
  m.def(
      "check_pass",
      [](const std::string& name, const py::dict& options) {
        ThrowIfError(CheckNotForkedInXla());
        ThrowIfError(CheckPass(ToPassSpec(name, options)));
      },
      py::arg("name"), py::arg("options"));

  py::class_<PipelineSpec>(m, "PipelineSpec")
      .def(py::init(&ToPipelineSpec), py::arg("name"), py::arg("steps"),
           py::arg("fixed_point") = false, py::arg("max_iterations") = 25)
      .def_property_readonly(
          "name", [](const PipelineSpec& self) { return self.name; });

  // Each proposal: the members of GivenProposal, in order.
  m.def(
      "given_candidates",
      [](const std::string& name, const Module& library,
         std::vector<std::tuple<std::string, std::vector<std::string>,
                                std::vector<std::string>, std::string, bool>>
             proposals,
         const std::string& pipeline) {
        std::vector<GivenProposal> given;
        for (auto& [rule, originals, reads, computation, needs_moderate] :
             proposals) {
          given.push_back({std::move(rule), std::move(originals),
                           std::move(reads), std::move(computation),
                           needs_moderate});
        }
        PipelineSpec spec;
        spec.name = pipeline.empty() ? name : pipeline;
        spec.given = MakeGivenPass(name, library, std::move(given));
        return spec;
      },
      py::arg("name"), py::arg("library"), py::arg("proposals"),
      py::arg("pipeline") = "");

  m.def(
      "run_passes",
      [](const Module& module, const PipelineSpec& spec) {
        auto [result_module, result] = [&] {
          GilRelease release;
          return ValueOrThrow(RunPassesOnClone(spec, module));
        }();
        return py::make_tuple(std::move(result_module), result.changed,
                              ToDict(result));
      },
      py::arg("module"), py::arg("spec"));
}

}  // namespace hloenv
