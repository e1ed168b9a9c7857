// SPDX-License-Identifier: Apache-2.0
// How much of a value its readers read.
#pragma once

#include <cstdint>

#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Whether what reads a value reads at most half of its elements along a
// dimension, also where functions that JAX calls return it or get it, and XLA
// would not compute these for many others again.
bool IsReadInPart(const xla::HloInstruction& value, int64_t dimension,
                  RuleContext& context);

}  // namespace hloenv
