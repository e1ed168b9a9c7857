// SPDX-License-Identifier: Apache-2.0
// The rewrites that a candidate pass proposes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hlo/analysis.h"
#include "passes/proposals/candidate.h"
#include "rewrite/source.h"

namespace hloenv {

// A proposal for one original offers its value to every use; a proposal for
// several originals is an alternative of its own. Each output is a node, whose
// operands are those of the proposal.
class ProposalSource final : public RewriteSource {
 public:
  // `analysis`, of the module that the proposals are for, must outlive the
  // object.
  ProposalSource(int32_t number, int32_t pass, const Analysis& analysis,
                 std::vector<Proposal> proposals);

  void NumberNodes(NodeTable* nodes, EqualNodes* equal_nodes) override;
  void AddOffers(Offers* offers) const override;
  bool BreakCycles(Cycles* cycles) override;
  bool WithdrawFrom(const Cycles& cycles) override;
  bool KeepWhole(int32_t node, const std::vector<int32_t>& readers) override;
  std::vector<int32_t> OperandsOf(int32_t local) const override;
  bool ReadsDecided(int32_t local) const override;
  bool IsFusion(int32_t local) const override;
  std::string KernelOf(int32_t local) const override;
  absl::string_view RuleOf(int32_t local) const override;
  void VisitCalled(
      int32_t local, absl::flat_hash_set<const xla::HloComputation*>* seen,
      absl::FunctionRef<void(const xla::HloComputation*)> visit) const override;
  absl::Status Build(int32_t local, Materializer* result) const override;
  const xla::HloModule* Result() const override { return nullptr; }

 private:
  const Proposal& ProposalOf(int32_t local) const {
    return proposals_[proposal_of_[local]];
  }

  const Analysis& analysis_;
  std::vector<Proposal> proposals_;
  std::vector<uint8_t> is_withdrawn_;  // by proposal
  std::vector<int32_t> first_local_;   // by proposal; -1 if withdrawn
  std::vector<int32_t> proposal_of_;   // by local number
};

}  // namespace hloenv
