// SPDX-License-Identifier: Apache-2.0
// The calls of a function of hloenv.jit, without Python where nothing is new.
#pragma once

#include <pybind11/pybind11.h>

namespace hloenv {

// The base of a Python class whose instances are called like functions. Python
// sets the attributes; all are read with the GIL held.
//
// A call runs `decided` if it is set and `is_at_top_level()` holds, else
// `plain`. It calls methods of the instance in two cases:
//   _call_first(args, kwargs): nothing is decided and num_compiled is 0. It
//       returns the call's result.
//   _consider_after(args, kwargs, outputs): after a call of `plain` if the
//       number of its cached signatures was or is not num_compiled, or `waits`.
struct JitCalls {
  pybind11::object plain;            // a function of jax.jit
  pybind11::object is_at_top_level;  // () -> bool
  pybind11::object decided;          // a function of jax.jit, or None
  // Signatures in the cache of `plain` that were considered; -1: look again.
  pybind11::ssize_t num_compiled = 0;
  bool waits = false;
};

void BindJitCalls(pybind11::module_& m);

}  // namespace hloenv
