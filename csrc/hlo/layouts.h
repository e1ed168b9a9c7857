// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// Whether a bitcast changes dimensions or layout, so that its value depends on
// layouts. Unless is_layout_sensitive is set, XLA's simplifiers ignore layouts
// and remove copies that such bitcasts need.
bool DependsOnLayouts(const xla::HloModule& module);

}  // namespace hloenv
