// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "rewrite/perturb.h"
#include "rewrite/verify.h"
#include "runtime/interpreter.h"

namespace hloenv {

namespace py = pybind11;

namespace {

// Arrays cross as bytes: numpy has no buffer for bfloat16 and its kin.
using ByteArray = py::array_t<uint8_t, py::array::c_style>;

std::vector<Bytes> Spans(const std::vector<ByteArray>& arrays) {
  std::vector<Bytes> spans;
  for (const ByteArray& array : arrays) {
    spans.emplace_back(array.data(), static_cast<size_t>(array.size()));
  }
  return spans;
}

// (alternative, choice, absolute, relative, evaluations, NaNs lost, compared)
// of each.
py::list AsRecords(const std::vector<std::vector<ChoiceError>>& errors) {
  py::list result;
  for (size_t a = 0; a < errors.size(); ++a) {
    for (size_t c = 0; c < errors[a].size(); ++c) {
      const ChoiceError& error = errors[a][c];
      result.append(py::make_tuple(a, c + 1, error.absolute, error.relative,
                                   error.num_evaluations, error.num_nans_lost,
                                   error.num_compared));
    }
  }
  return result;
}

}  // namespace

void BindInterpret(py::module_& m) {
  m.def(
      "interpret",
      [](const Module& module, const std::vector<ByteArray>& inputs,
         std::optional<uint64_t> perturb) {
        const std::vector<Bytes> spans = Spans(inputs);
        std::vector<std::string> outputs;
        {
          GilRelease release;
          outputs = ValueOrThrow(
              perturb.has_value() ? InterpretPerturbed(module, spans, *perturb)
                                  : Interpret(module, spans));
        }
        py::list result;
        for (const std::string& output : outputs) {
          ByteArray array(static_cast<py::ssize_t>(output.size()));
          std::memcpy(array.mutable_data(), output.data(), output.size());
          result.append(array);
        }
        return result;
      },
      py::arg("module"), py::arg("inputs"), py::arg("perturb") = py::none());
  m.def(
      "verify_alternatives",
      [](const Capture& capture, const std::vector<ByteArray>& inputs) {
        const std::vector<Bytes> spans = Spans(inputs);
        std::vector<std::vector<ChoiceError>> errors;
        {
          GilRelease release;
          errors = ValueOrThrow(VerifyAlternatives(capture, spans));
        }
        return AsRecords(errors);
      },
      py::arg("capture"), py::arg("inputs"));
  m.def(
      "verify_graph",
      [](const Module& graph, const std::vector<int64_t>& num_choices,
         const std::vector<ByteArray>& inputs) {
        const std::vector<Bytes> spans = Spans(inputs);
        std::vector<std::vector<ChoiceError>> errors;
        {
          GilRelease release;
          errors = ValueOrThrow(VerifyGraph(graph, num_choices, spans));
        }
        return AsRecords(errors);
      },
      py::arg("graph"), py::arg("num_choices"), py::arg("inputs"));
  m.def(
      "measure_rounding",
      [](const Module& graph, const std::vector<ByteArray>& inputs,
         const std::vector<int64_t>& alternatives, int num_runs) {
        const std::vector<Bytes> spans = Spans(inputs);
        std::vector<ChoiceError> moves;
        {
          GilRelease release;
          moves = ValueOrThrow(
              MeasureRounding(graph, spans, alternatives, num_runs));
        }
        py::list result;
        for (const ChoiceError& move : moves) {
          result.append(py::make_tuple(move.absolute, move.relative));
        }
        return result;
      },
      py::arg("graph"), py::arg("inputs"), py::arg("alternatives"),
      py::arg("num_runs"));
}

}  // namespace hloenv
