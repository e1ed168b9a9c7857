// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// Whether a bitcast gives other dimensions or another layout than it reads, so
// that what it means hangs on the layouts. XLA's simplifiers do not look at
// those unless they are told to: they take away the copies that the bitcasts
// need.
bool DependsOnLayouts(const xla::HloModule& module);

}  // namespace hloenv
