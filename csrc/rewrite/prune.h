// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}

namespace hloenv {

// Removes instructions without users and computations without callers, until
// none are left.
//
//   before                             after
//   zeros = f32[4] broadcast(zero)     (removed after its user)
//   z = f32[4] add(p, zeros)           (removed: nothing reads it)
//   ROOT n = f32[4] negate(p)          ROOT n = f32[4] negate(p)
//
// The outputs stay equal, because no output or side effect depends on what is
// removed. Keeps roots, parameters, instructions with side effects and
// those with control dependencies. Unlike XLA's dead-code elimination it does
// not change live instructions, such as fusions with unused outputs.
absl::Status Prune(xla::HloModule* module);

}  // namespace hloenv
