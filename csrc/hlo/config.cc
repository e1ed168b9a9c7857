// SPDX-License-Identifier: Apache-2.0
#include "hlo/config.h"

#include "xla/debug_options_flags.h"

namespace hloenv {

absl::StatusOr<xla::HloModuleConfig> DefaultModuleConfig() {
  xla::HloModuleConfig config;
  config.set_debug_options(xla::GetDebugOptionsFromFlags());
  return config;
}

}  // namespace hloenv
