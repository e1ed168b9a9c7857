// SPDX-License-Identifier: Apache-2.0
// What the rules of fusion-cuts share, which are in several files.
#pragma once

#include "passes/proposals/rules.h"

namespace hloenv {

// Elements from which on an array is looked at: fewer are computed in less time
// than a kernel takes to start.
inline constexpr int64_t kMinKept = 256;

// Whether no iteration of a loop changes a value, in whose body it is: XLA
// computes it in front of the loop, but no call. In spread_functions.cc.
bool IsSameInLoop(const xla::HloInstruction& instruction);
// Whether it is a function of few numbers that is broadcast to many: a kernel
// computes it for each of them. In spread_functions.cc.
bool IsSpread(const xla::HloInstruction& instruction);

const Rule& HaloRule();        // roll_halos.cc
const Rule& IterationsRule();  // loop_iterations.cc
const Rule& JoinedRule();      // joined_pads.cc
const Rule& RoundsRule();      // loop_rounds.cc

}  // namespace hloenv
