// SPDX-License-Identifier: Apache-2.0
// The tables behind AllPasses: one entry for each pass, with its options.
#pragma once

#include <memory>
#include <vector>

#include "passes/registry.h"
#include "xla/hlo/pass/hlo_pass_interface.h"

namespace hloenv {

using PassPtr = std::unique_ptr<xla::HloPassInterface>;

// Makes a pass that has no options.
template <typename Pass>
PassPtr Make(const Options&) {
  return std::make_unique<Pass>();
}

PassInfo AlgebraicSimplifierPass();

// Each sorted by name.
std::vector<PassInfo> SimplifierPasses();  // make a module smaller or simpler
std::vector<PassInfo> ExpanderPasses();    // write an operation with others
std::vector<PassInfo> LoweringPasses();    // what a backend needs; fusion
std::vector<PassInfo> PipelinePasses();    // whole pipelines of its
std::vector<PassInfo> BackendPasses();     // what XLA's CPU compiler needs

}  // namespace hloenv
