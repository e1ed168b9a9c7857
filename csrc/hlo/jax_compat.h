// SPDX-License-Identifier: Apache-2.0
// What lies between a module as jax and jaxlib have it and one as XLA here has
// it.
//
// Each function returns a changed copy and leaves its argument alone.
#pragma once

#include "hlo/module.h"

namespace hloenv {

// With the default layout for parameters and results, as jax compiles it unless
// the user asks for others. The lowered module itself has what suits its root.
Module WithDefaultEntryLayout(const Module& module);

// Whether outputs may reuse the memory of parameters.
bool HasDonations(const Module& module);
// Without that: what XLA does not copy because a parameter is donated, it then
// copies.
Module WithoutDonations(const Module& module);

// Without shardings, XLA's own and Shardy's. They mean nothing on one device,
// but jax sets them on modules whose arguments are tied to a device.
Module WithoutShardings(const Module& module);

// Without the optional hints on instructions that the XLA of jaxlib 0.10
// refuses to read.
Module ReadableByJaxlib(const Module& module);

}  // namespace hloenv
