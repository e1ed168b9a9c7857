// SPDX-License-Identifier: Apache-2.0
// Every fusion that the CPU backend can compile, each as a proposal.
#pragma once

#include <memory>

#include "passes/candidate.h"
#include "passes/registry.h"

namespace hloenv {

// The entry of "general-fusion" in the catalog.
PassInfo GeneralFusionPass();

std::unique_ptr<CandidatePass> MakeGeneralFusion(const Options& options);

}  // namespace hloenv
