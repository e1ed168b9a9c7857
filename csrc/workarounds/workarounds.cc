// SPDX-License-Identifier: Apache-2.0
#include "workarounds/workarounds.h"

#include "support/status.h"
#include "workarounds/forked_alarm.h"
#include "workarounds/no_op_transpose.h"
#include "workarounds/parameter_removal.h"
#include "workarounds/trivial_window.h"

namespace hloenv {

absl::Status InstallWorkarounds() {
  HLOENV_RETURN_IF_ERROR(InstallParameterRemoval());
  HLOENV_RETURN_IF_ERROR(InstallNoOpTranspose());
  HLOENV_RETURN_IF_ERROR(InstallForkedAlarm());
  return InstallTrivialWindow();
}

}  // namespace hloenv
