// SPDX-License-Identifier: Apache-2.0
// What the rules of fusion-cuts share, which are in several files.
#pragma once

#include "passes/proposals/rules.h"

namespace hloenv {

// Elements from which on an array is looked at: fewer are computed in less time
// than a kernel takes to start.
inline constexpr int64_t kMinKept = 256;

const Rule& HaloRule();        // roll_halos.cc
const Rule& IterationsRule();  // loop_iterations.cc
const Rule& JoinedRule();      // joined_pads.cc

}  // namespace hloenv
