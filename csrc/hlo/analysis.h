// SPDX-License-Identifier: Apache-2.0
// Precomputed facts about an immutable module.
#pragma once

#include <cstdint>
#include <vector>

#include "hlo/index.h"

namespace hloenv {

// The module's numbering and liveness. An instruction is live if it is
// reachable from the entry's root or from an instruction with side effects.
struct Analysis {
  // `module` must outlive this and not change.
  explicit Analysis(const xla::HloModule& module);

  const xla::HloModule& hlo;
  InstructionIndex index;
  std::vector<uint8_t> is_live;              // by instruction number
  std::vector<uint8_t> is_live_computation;  // by computation number
  // Live instructions with side effects, calls of computations with effects
  // included, ascending.
  std::vector<int32_t> effects;
  // By instruction number: whether it has sharding, frontend attributes, an
  // accuracy or a backend configuration, which most instructions do not.
  std::vector<uint8_t> has_extras;
  // Live computations in post order, callees first: computation numbers.
  std::vector<int32_t> post_order;
};

// Whether `Analysis::has_extras` is set for `instruction`.
bool HasExtras(const xla::HloInstruction& instruction);

}  // namespace hloenv
