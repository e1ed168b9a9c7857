// SPDX-License-Identifier: Apache-2.0
// Workaround for an XLA bug: the algebraic simplifier removes a transpose that
// permutes nothing, also where layouts count and its result has another layout
// than its operand. What reads the result then reads the elements in the wrong
// order. XLA's own pipeline has removed these transposes before it assigns
// layouts; a decision may have kept one, and of two transposes with layouts of
// their own the simplifier makes one.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// Installs a hook that makes such a transpose a copy. May be called repeatedly.
absl::Status InstallNoOpTranspose();

}  // namespace hloenv
