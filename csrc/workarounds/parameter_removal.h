// SPDX-License-Identifier: Apache-2.0
// Workaround for an XLA bug: when
// HloComputation::RemoveInstructionAndUnusedOperands removes an unused
// parameter, it removes the caller from the users of the argument, even if the
// caller passes the same value to another parameter too. The value then counts
// as dead and is freed, and the process crashes. Dead code elimination removes
// parameters of fusions, and those of calls with use_call_analysis.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// Installs a hook that makes callers pass such a value through a separate copy,
// which is removed with the parameter. May be called repeatedly.
absl::Status InstallParameterRemoval();

}  // namespace hloenv
