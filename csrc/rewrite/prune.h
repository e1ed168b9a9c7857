// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}

namespace hloenv {

// Removes instructions without users and computations without callers, until
// none are left. Keeps roots, parameters, instructions with side effects and
// those with control dependencies. Unlike XLA's dead-code elimination it does
// not change live instructions, such as fusions with unused outputs.
absl::Status Prune(xla::HloModule* module);

}  // namespace hloenv
