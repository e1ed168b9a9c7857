// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ core of hloenv. Use the names of the package `hloenv`.";
  m.attr("tensorflow_version") = HLOENV_TENSORFLOW_VERSION;
  hloenv::BindExit();
  hloenv::BindErrors(m);
  hloenv::BindHlo(m);
  hloenv::BindJax(m);
  hloenv::BindRewrite(m);
  hloenv::BindInterpret(m);
  hloenv::BindPasses(m);
  hloenv::BindFeatures(m);
  hloenv::BindPipeline(m);
  hloenv::BindRuntime(m);
}
