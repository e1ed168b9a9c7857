// SPDX-License-Identifier: Apache-2.0
// Conversions between modules of jax and jaxlib and modules of this XLA.
//
// Each function returns a changed copy of its argument.
#pragma once

#include "hlo/module.h"

namespace hloenv {

// With the default layout for parameters and results, which jax uses unless the
// user sets others. The lowered module itself has the layouts of its root.
Module WithDefaultEntryLayout(const Module& module);

// Whether outputs may reuse the memory of parameters.
bool HasDonations(const Module& module);
// Without aliasing of outputs and parameters; XLA then copies instead of
// reusing donated memory.
Module WithoutDonations(const Module& module);

// Without shardings, XLA's own and Shardy's. They mean nothing on one device,
// but jax sets them on modules whose arguments are tied to a device.
Module WithoutShardings(const Module& module);

// Without optional hints on instructions that the XLA of jaxlib 0.10 cannot
// parse.
Module ReadableByJaxlib(const Module& module);
// Without those on instructions of jaxlib's that this XLA cannot parse.
Module ReadableHere(const Module& module);

}  // namespace hloenv
