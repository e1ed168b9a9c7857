// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}

namespace hloenv {

// Removes instructions without users and computations without callers, until
// there are none left. Keeps roots, parameters, side effects and what has
// control dependencies. Unlike XLA's dead-code elimination it changes nothing
// that is live, such as the outputs of a fusion that nobody reads.
absl::Status Prune(xla::HloModule* module);

}  // namespace hloenv
