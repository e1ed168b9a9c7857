// SPDX-License-Identifier: Apache-2.0
// One Bind<Area> for each bind_<area>.cc; module.cc calls them in this order.
#pragma once

#include <pybind11/pybind11.h>

namespace hloenv {

void BindHlo(pybind11::module_& m);
void BindJax(pybind11::module_& m);
void BindRewrite(pybind11::module_& m);
void BindInterpret(pybind11::module_& m);
void BindPasses(pybind11::module_& m);
void BindFeatures(pybind11::module_& m);
void BindPipeline(pybind11::module_& m);
void BindRuntime(pybind11::module_& m);

}  // namespace hloenv
