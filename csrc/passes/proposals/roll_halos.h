// SPDX-License-Identifier: Apache-2.0
// Arrays that are rolled, with their halos in memory.
#pragma once

#include "passes/proposals/rules.h"

namespace hloenv {

// Arrays of fewer elements are computed in less time than a kernel takes to
// start.
inline constexpr int64_t kMinKept = 256;

const Rule& HaloRule();

}  // namespace hloenv
