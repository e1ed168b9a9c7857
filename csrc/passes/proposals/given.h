// SPDX-License-Identifier: Apache-2.0
// A candidate pass whose proposals the caller has found, as HLO computations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hlo/module.h"
#include "passes/proposals/candidate.h"

namespace hloenv {

// Instructions are given by name, which is unique in a module.
struct GivenProposal {
  std::string rule;                    // as Proposal::rule
  std::vector<std::string> originals;  // at least one
  // The arguments of the computation; at least one.
  std::vector<std::string> reads;
  // Name of the computation in the library: its result replaces the original;
  // the elements of its root, a tuple, replace several originals.
  std::string computation;
  // Whether to leave it out where a float array that it reads may contain
  // infinities or huge masks from constants of the module.
  bool needs_moderate = false;
};

// A pass for one module. Propose leaves out proposals that rules may not make
// (IsReplaceable, RewritableComputations, needs_moderate) or whose values have
// other layouts than the computation's, and returns PassError for a name that
// is missing, originals of several computations, and types or dimensions that
// differ.
std::unique_ptr<CandidatePass> MakeGivenPass(
    std::string name, Module library, std::vector<GivenProposal> proposals);

}  // namespace hloenv
