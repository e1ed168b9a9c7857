// SPDX-License-Identifier: Apache-2.0
// The limit on the memory maps of a process.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// An error if so few maps are left that loading compiled code may fail, which
// makes LLVM end the process. An executable needs a few maps per kernel.
absl::Status CheckMemoryMapsLeft();

}  // namespace hloenv
