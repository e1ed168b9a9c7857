// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// Installs all workarounds for bugs of XLA. May be called repeatedly.
absl::Status InstallWorkarounds();

}  // namespace hloenv
