// SPDX-License-Identifier: Apache-2.0
#include "bindings/caller.h"

#include <pybind11/stl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "support/status.h"

namespace hloenv {

namespace py = pybind11;

Caller::Caller(std::shared_ptr<Executable> executable,
               const py::list& input_dtypes, const py::list& output_dtypes,
               py::object place_input)
    : executable_(std::move(executable)),
      inputs_(MakeLeaves(executable_->inputs(), input_dtypes)),
      outputs_(MakeLeaves(executable_->outputs(), output_dtypes)),
      place_input_(std::move(place_input)) {}

std::vector<Caller::Leaf> Caller::MakeLeaves(
    const std::vector<BufferSpec>& specs, const py::list& dtypes) {
  if (dtypes.size() != specs.size()) {
    throw py::value_error("one dtype is needed for each leaf");
  }
  std::vector<Leaf> leaves;
  for (size_t i = 0; i < specs.size(); ++i) {
    Leaf leaf;
    leaf.is_token = specs[i].is_token;
    leaf.buffer_bytes = specs[i].buffer_bytes;
    if (!leaf.is_token) {
      leaf.dtype = dtypes[i];
      leaf.shape.assign(specs[i].array.dims.begin(), specs[i].array.dims.end());
      leaf.strides.resize(leaf.shape.size());
      py::ssize_t stride = leaf.dtype.cast<py::dtype>().itemsize();
      for (int64_t dimension : specs[i].array.layout) {
        leaf.strides[dimension] = stride;
        stride *= leaf.shape[dimension];
      }
    }
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

bool Caller::Fits(const Leaf& leaf, py::handle object) {
  if (!py::isinstance<py::array>(object)) return false;
  const auto* array = py::detail::array_proxy(object.ptr());
  if (array->descr != leaf.dtype.ptr()) return false;
  if (static_cast<size_t>(array->nd) != leaf.shape.size()) return false;
  bool is_empty = false;
  bool is_placed = true;
  for (size_t i = 0; i < leaf.shape.size(); ++i) {
    if (array->dimensions[i] != leaf.shape[i]) return false;
    is_empty |= leaf.shape[i] == 0;
    // The stride of a dimension of size 1 is never used.
    is_placed &= leaf.shape[i] == 1 || array->strides[i] == leaf.strides[i];
  }
  return is_placed || is_empty;
}

std::vector<const void*> Caller::Pointers(const py::tuple& arguments,
                                          std::vector<py::object>* keep_alive) {
  if (arguments.size() != inputs_.size()) {
    ThrowIfError(
        Error(kArgumentError,
              absl::StrCat("this executable takes ", inputs_.size(),
                           " arrays, one for each flat leaf of its parameters, "
                           "not ",
                           arguments.size())));
  }
  std::vector<const void*> pointers(inputs_.size(), nullptr);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    py::handle argument = PyTuple_GET_ITEM(arguments.ptr(), i);
    if (inputs_[i].is_token) {
      if (argument.is_none()) continue;
      ThrowIfError(
          Error(kArgumentError,
                absl::StrCat("argument ", i, " is a token: pass None")));
    }
    py::object placed;
    if (!Fits(inputs_[i], argument)) {
      placed = SleepIfEnded([&] { return place_input_(i, argument); });
      if (!Fits(inputs_[i], placed)) {
        throw py::type_error("place_input returned an array that does not fit");
      }
      argument = placed;
    }
    pointers[i] = py::detail::array_proxy(argument.ptr())->data;
    keep_alive->push_back(py::reinterpret_borrow<py::object>(argument));
  }
  return pointers;
}

py::tuple Caller::Call(const py::tuple& arguments) {
  std::vector<py::object> keep_alive;
  keep_alive.reserve(inputs_.size());
  const std::vector<const void*> inputs = Pointers(arguments, &keep_alive);
  std::vector<OwnedBuffer> buffers;
  buffers.reserve(outputs_.size());
  std::vector<void*> outputs(outputs_.size(), nullptr);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    buffers.emplace_back(AllocateBuffer(outputs_[i].buffer_bytes));
    outputs[i] = buffers[i].get();
  }
  absl::Status status;
  {
    GilRelease release;
    status = executable_->Run(inputs, outputs);
  }
  ThrowIfError(status);
  py::tuple results(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].is_token) {
      results[i] = py::none();
      continue;
    }
    py::capsule owner(buffers[i].get(), FreeBuffer);
    void* data = buffers[i].release();
    results[i] = py::array(py::reinterpret_borrow<py::dtype>(outputs_[i].dtype),
                           outputs_[i].shape, outputs_[i].strides, data, owner);
  }
  return results;
}

py::list TimeCallers(const std::vector<Caller*>& callers,
                     const std::vector<py::tuple>& arguments,
                     const TimingPlan& plan) {
  const bool fits = callers.size() == arguments.size() &&
                    callers.size() == plan.batch.size() && plan.warmup >= 0 &&
                    plan.rounds >= 1;
  if (!fits) {
    throw py::value_error(
        "one tuple of arguments and one batch is needed for each executable, "
        "and at least one round");
  }
  std::vector<py::object> keep_alive;
  std::vector<std::vector<const void*>> inputs;
  std::vector<Executable*> executables;
  for (size_t i = 0; i < callers.size(); ++i) {
    inputs.push_back(callers[i]->Pointers(arguments[i], &keep_alive));
    executables.push_back(&callers[i]->executable());
  }
  std::vector<std::vector<int64_t>> durations_ns;
  {
    GilRelease release;
    durations_ns = ValueOrThrow(TimeRuns(executables, inputs, plan));
  }
  py::list result;
  for (const std::vector<int64_t>& durations : durations_ns) {
    result.append(py::array_t<int64_t>(
        static_cast<py::ssize_t>(durations.size()), durations.data()));
  }
  return result;
}

py::tuple TimeCallerSteps(Caller& caller, const py::tuple& arguments,
                          int64_t warmup, int64_t rounds, bool is_warm) {
  std::vector<py::object> keep_alive;
  const std::vector<const void*> inputs =
      caller.Pointers(arguments, &keep_alive);
  StepTimes times;
  {
    GilRelease release;
    times = ValueOrThrow(
        TimeSteps(caller.executable(), inputs, warmup, rounds, is_warm));
  }
  py::array_t<double> durations({static_cast<py::ssize_t>(rounds),
                                 static_cast<py::ssize_t>(times.names.size())},
                                times.durations_ns.data());
  py::array_t<double> totals(static_cast<py::ssize_t>(times.totals_ns.size()),
                             times.totals_ns.data());
  return py::make_tuple(py::cast(times.names), durations, totals);
}

}  // namespace hloenv
