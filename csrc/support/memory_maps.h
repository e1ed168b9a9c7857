// SPDX-License-Identifier: Apache-2.0
// The memory maps that the system allows a process.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// An error where so few are left that loading compiled code may fail, on which
// LLVM ends the process. Each executable takes a few for each of its kernels.
absl::Status CheckMemoryMapsLeft();

}  // namespace hloenv
