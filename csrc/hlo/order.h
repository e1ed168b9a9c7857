// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace xla {
class HloComputation;
class HloModule;
}  // namespace xla

namespace hloenv {

// The computations of a module, callees before callers. XLA's post order if
// that is one; it may not be if a computation has several callers.
std::vector<xla::HloComputation*> CalleesFirst(const xla::HloModule& module);

}  // namespace hloenv
