// SPDX-License-Identifier: Apache-2.0
// Workaround for an XLA bug: algsimp replaces a reduce-window whose windows
// have one element each by its reduction of the operand and the initial value,
// even if a negative padding makes the result smaller than the operand. The
// shapes then differ, and the process ends.
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// Installs a hook that leaves such instructions as they are. May be called
// repeatedly.
absl::Status InstallTrivialWindow();

// CompileError where the module has such an instruction, for jaxlib's XLA, in
// which nothing can be hooked.
absl::Status CheckNoTrivialWindow(const xla::HloModule& module);

}  // namespace hloenv
