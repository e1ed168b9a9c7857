// SPDX-License-Identifier: Apache-2.0
// Outlining: some instructions of a computation as a computation of their own.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "passes/proposals/candidate.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

class Region {
 public:
  // `members`: instructions of one computation in post order, such that no path
  // from one to another leaves them. `results`: those of them that are used
  // elsewhere, at least one. Constants are copied into the region.
  Region(const std::vector<const xla::HloInstruction*>& members,
         std::vector<const xla::HloInstruction*> results);

  // What the region reads of its computation, each once.
  const std::vector<const xla::HloInstruction*>& reads() const {
    return reads_;
  }
  // The region as the entry of a module of its own: the parameters are `reads`,
  // the root is the only result or the tuple of all.
  xla::HloModule* module() const { return module_.get(); }
  const xla::HloComputation& computation() const {
    return *module_->entry_computation();
  }

  // Replaces fusions by their instructions: those that are not loops, and those
  // that the emitter of single kernels has no or only slow code for.
  absl::Status UndoFusions();
  // Replaces scatters by loops over their updates.
  absl::Status ExpandScatters();

  // Adds a call of a copy of the region to the computation of the images of
  // `reads`; returns one instruction for each result. For Proposal::build.
  absl::StatusOr<std::vector<xla::HloInstruction*>> Call(ImageOf image) const;

 private:
  std::vector<const xla::HloInstruction*> reads_;
  std::vector<const xla::HloInstruction*> results_;
  std::unique_ptr<xla::HloModule> module_;
};

// Limits of a run.
struct RunLimits {
  int64_t min_steps;         // instructions that make code
  int64_t max_instructions;  // with those in fusions
  int64_t max_bytes;         // of one array
};
// Disjoint runs of instructions of `computation` for single kernels: each in
// post order, without loops, calls and branches, and such that no path from one
// member to another leaves the run. Greedy, in post order.
std::vector<std::vector<const xla::HloInstruction*>> StraightRuns(
    const xla::HloComputation& computation, const RunLimits& limits);
// The members that are read outside the run, or are the root.
std::vector<const xla::HloInstruction*> ResultsOfRun(
    const std::vector<const xla::HloInstruction*>& members);

}  // namespace hloenv
