// SPDX-License-Identifier: Apache-2.0
// An executable as a function of numpy arrays.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/executable.h"
#include "runtime/timing.h"

namespace hloenv {

// Arrays in, arrays out. An array of the right dtype, shape and strides is
// passed on as it is; every other object goes through `place_input(index,
// object)`, which returns such an array or raises.
class Caller {
 public:
  // One dtype for each flat leaf; None for tokens.
  Caller(std::shared_ptr<Executable> executable,
         const pybind11::list& input_dtypes,
         const pybind11::list& output_dtypes, pybind11::object place_input);

  // One array for each output, None for tokens.
  pybind11::tuple Call(const pybind11::tuple& arguments);

  // The memory of `arguments`, which `keep_alive` then holds.
  std::vector<const void*> Pointers(const pybind11::tuple& arguments,
                                    std::vector<pybind11::object>* keep_alive);

  Executable& executable() { return *executable_; }

 private:
  struct Leaf {
    pybind11::object dtype;
    std::vector<pybind11::ssize_t> shape;
    std::vector<pybind11::ssize_t> strides;  // bytes
    size_t buffer_bytes = 0;
    bool is_token = false;
  };
  static std::vector<Leaf> MakeLeaves(const std::vector<BufferSpec>& specs,
                                      const pybind11::list& dtypes);
  static bool Fits(const Leaf& leaf, pybind11::handle object);

  std::shared_ptr<Executable> executable_;
  std::vector<Leaf> inputs_;
  std::vector<Leaf> outputs_;
  pybind11::object place_input_;
};

// One int64 array of durations in ns for each caller; see TimeRuns.
pybind11::list TimeCallers(const std::vector<Caller*>& callers,
                           const std::vector<pybind11::tuple>& arguments,
                           const TimingPlan& plan);

// The instruction of each thunk; [rounds, thunks] float64 durations in ns;
// [rounds] float64 durations of XLA's own execution in ns. See TimeSteps.
pybind11::tuple TimeCallerSteps(Caller& caller,
                                const pybind11::tuple& arguments,
                                int64_t warmup, int64_t rounds, bool is_warm);

}  // namespace hloenv
