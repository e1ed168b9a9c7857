// SPDX-License-Identifier: Apache-2.0
// What a capture needs to know of the module before any pass runs.
#pragma once

#include <cstdint>
#include <vector>

#include "hlo/module.h"
#include "rewrite/index.h"

namespace hloenv {

// The module with its numbering and what is live in it: reachable from the
// entry's root, or with an effect that happens whether or not anything reads it.
struct Base {
  explicit Base(Module module);

  const xla::HloModule& hlo() const { return module.hlo(); }

  Module module;
  InstructionIndex index;
  std::vector<uint8_t> is_live;              // by instruction number
  std::vector<uint8_t> is_live_computation;  // by computation number
  // Live instructions with side effects, calls of computations with effects
  // included, ascending.
  std::vector<int32_t> effects;
};

}  // namespace hloenv
