// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace xla {
class HloComputation;
class HloModule;
}  // namespace xla

namespace hloenv {

// The computations of a module, each behind all that it calls. XLA's own post
// order, unless that has a caller before its callee, as it may where a
// computation is called from several places.
std::vector<xla::HloComputation*> CalleesFirst(const xla::HloModule& module);

}  // namespace hloenv
