// SPDX-License-Identifier: Apache-2.0
// The configuration that every module starts with.
#pragma once

#include "absl/status/statusor.h"
#include "xla/service/hlo_module_config.h"

namespace hloenv {

// XLA's default options changed by XLA_FLAGS.
//
// XLA ends the process on first use when XLA_FLAGS holds a flag that it does
// not know, so the flags are checked here before XLA reads them. Flags that
// this XLA does not know, or values that it refuses: FlagError, which names
// them. With HLOENV_IGNORE_UNKNOWN_XLA_FLAGS=1, XLA reads only those it knows;
// the environment does not change. The first success is kept for the
// rest of the process, as XLA keeps it; after an error the next call reads
// again.
absl::StatusOr<xla::HloModuleConfig> DefaultModuleConfig();

}  // namespace hloenv
