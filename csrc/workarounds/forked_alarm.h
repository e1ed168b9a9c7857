// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// Constant folding and XLA's compiler start a thread that logs operations which
// take long. It does not exist in a forked process, where XLA would wake it up
// through a mutex whose waiter is gone, which ends the process or writes to the
// stack of another thread. There, nothing is logged instead.
absl::Status InstallForkedAlarm();

}  // namespace hloenv
