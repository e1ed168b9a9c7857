// SPDX-License-Identifier: Apache-2.0
// The tables of AllPasses: one entry per pass, with its options.
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
std::vector<PassInfo> SimplifierPasses();
std::vector<PassInfo> ExpanderPasses();  // operation to simpler operations
std::vector<PassInfo> LoweringPasses();  // fusion, layouts, copies, aliasing
std::vector<PassInfo> PipelinePasses();  // sub-pipelines of XLA's CPU compiler
std::vector<PassInfo> BackendPasses();   // specific to XLA's CPU backend

}  // namespace hloenv
