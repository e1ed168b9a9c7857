// SPDX-License-Identifier: Apache-2.0
// Element types for which XLA's CPU backend has no code.
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// CompileError where the backend ends the process or computes wrong values: on
// integers of one bit, and where integers of two bits are joined or sorted.
absl::Status CheckNarrowTypes(const xla::HloModule& module);

}  // namespace hloenv
