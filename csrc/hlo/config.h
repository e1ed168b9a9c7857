// SPDX-License-Identifier: Apache-2.0
// The initial configuration of every module.
#pragma once

#include "absl/status/statusor.h"
#include "xla/service/hlo_module_config.h"

namespace hloenv {

// XLA's default options changed by XLA_FLAGS.
//
// XLA ends the process on first use when XLA_FLAGS contains an unknown flag, so
// the flags are checked here before XLA reads them. FlagError, which names the
// flags, for unknown flags and invalid values. With
// HLOENV_IGNORE_UNKNOWN_XLA_FLAGS=1, XLA reads only the known flags; the
// environment does not change. As in XLA, the first success is cached for the
// process; after an error the next call reads the flags again.
absl::StatusOr<xla::HloModuleConfig> DefaultModuleConfig();

}  // namespace hloenv
