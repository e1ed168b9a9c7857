// SPDX-License-Identifier: Apache-2.0
// The configuration that every module starts with.
#pragma once

#include "absl/status/statusor.h"
#include "xla/service/hlo_module_config.h"

namespace hloenv {

// XLA's default options changed by XLA_FLAGS. An XLA_FLAGS that this XLA does
// not know would end the process on first use, so it is checked here before XLA
// reads it; the error names the flags.
absl::StatusOr<xla::HloModuleConfig> DefaultModuleConfig();

}  // namespace hloenv
