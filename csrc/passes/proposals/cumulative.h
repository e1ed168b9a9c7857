// SPDX-License-Identifier: Apache-2.0
// Cumulative reductions, which JAX writes as reductions over windows.
#pragma once

#include <cstdint>
#include <optional>

#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

// A reduce-window of which each result reduces the elements of one dimension up
// to its own, or from its own on. In memory: outer x size x inner.
struct Cumulative {
  int64_t outer = 1;
  int64_t size = 0;
  int64_t inner = 1;
  bool is_reversed = false;
  // Of the reducer; nothing if it consists of several.
  std::optional<xla::HloOpcode> operation;
  int64_t element_bytes = 1;
};

// Nothing if `root` is another operation, or if its sums, in the order of the
// definition or from the end, could differ by more than rounding.
std::optional<Cumulative> CumulativeOf(const xla::HloInstruction& root,
                                       RuleContext& context);

}  // namespace hloenv
