// SPDX-License-Identifier: Apache-2.0
// What the rules of fusion-cuts share, which are in several files.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Elements from which on an array is looked at: fewer are computed in less time
// than a kernel takes to start.
inline constexpr int64_t kMinKept = 256;

// About how many additions one element of an operation takes.
int64_t ElementCost(const xla::HloInstruction& instruction);

// What a kernel would compute very many times, given what other rules keep in
// memory; only of what can be kept. In recomputed.cc.
absl::flat_hash_set<const xla::HloInstruction*> FindRecomputed(
    const xla::HloComputation& computation,
    absl::FunctionRef<bool(const xla::HloInstruction&)> is_kept,
    absl::FunctionRef<bool(const xla::HloInstruction&)> can_be_kept);

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
