// SPDX-License-Identifier: Apache-2.0
// A mistake of XLA's, mended: when a parameter that nothing reads goes,
// HloComputation::RemoveInstructionAndUnusedOperands takes the caller off the
// users of what it passed there, even if the caller passes the same value to
// another parameter too. The value then looks dead, is freed, and the process
// dies. Dead code elimination removes parameters of fusions, and those of calls
// with use_call_analysis.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// From now on each caller passes such a value through a copy of its own, which
// goes with the parameter; nothing else changes. Any number of calls.
absl::Status InstallParameterRemoval();

}  // namespace hloenv
