// SPDX-License-Identifier: Apache-2.0
#include "rewrite/proposal_source.h"

#include "rewrite/materializer.h"
#include "support/status.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

ProposalSource::ProposalSource(int32_t number, int32_t pass,
                               const Analysis& analysis,
                               std::vector<Proposal> proposals)
    : RewriteSource(number, pass, /*xla_passes=*/{}),
      analysis_(analysis),
      proposals_(std::move(proposals)) {
  for (const Proposal& proposal : proposals_) {
    // Rewrites of dead code have no effect.
    const bool is_live = std::all_of(
        proposal.originals.begin(), proposal.originals.end(),
        [this](const HloInstruction* original) {
          return analysis_.is_live[analysis_.index.Of(original)] != 0;
        });
    is_withdrawn_.push_back(is_live ? 0 : 1);
  }
}

void ProposalSource::NumberNodes(NodeTable* nodes, EqualNodes*) {
  set_first_node(nodes->size());
  first_local_.assign(proposals_.size(), -1);
  proposal_of_.clear();
  for (size_t i = 0; i < proposals_.size(); ++i) {
    if (is_withdrawn_[i] != 0) continue;
    first_local_[i] = static_cast<int32_t>(proposal_of_.size());
    for (size_t o = 0; o < proposals_[i].originals.size(); ++o) {
      nodes->Add(this, static_cast<int32_t>(proposal_of_.size()));
      proposal_of_.push_back(static_cast<int32_t>(i));
    }
  }
}

void ProposalSource::AddOffers(Offers* offers) const {
  for (size_t i = 0; i < proposals_.size(); ++i) {
    if (is_withdrawn_[i] != 0) continue;
    const std::vector<const HloInstruction*>& originals =
        proposals_[i].originals;
    int32_t node = NodeAt(first_local_[i]);
    if (originals.size() == 1) {
      const int32_t original = analysis_.index.Of(originals[0]);
      for (const Use& use : UsesOf(analysis_, original)) {
        offers->single.push_back({use, original, node, number()});
      }
      continue;
    }
    Alternative alternative{AlternativeKind::kSites, {}, {{number()}}};
    for (const HloInstruction* replaced : originals) {
      const int32_t original = analysis_.index.Of(replaced);
      alternative.sites.push_back(
          {original, UsesOf(analysis_, original), {node++}});
    }
    offers->grouped.push_back(std::move(alternative));
  }
}

// Withdraws all proposals of a cycle except the first.
//
//   module                  proposal 1              proposal 2
//   s = f32[8] negate(x)    (s, t) = fusion(x, q)
//   r = f32[8] sine(s)
//   u = f32[8] add(r, y)                            (p, u) = fusion(y, r)
//   p = f32[8] abs(y)
//   q = f32[8] cosine(p)
//   t = f32[8] add(q, x)
//
// Each fusion alone is correct. With both, s depends on q, q on p, p on r and r
// on s. Proposal 2 is withdrawn, which removes one choice and does not affect
// others. This terminates, because the number of proposals is finite. A
// proposal with several outputs in the cycle is withdrawn even if it is the
// first.
bool ProposalSource::BreakCycles(Cycles* cycles) {
  bool changed = false;
  for (size_t i = 0; i < proposals_.size(); ++i) {
    if (is_withdrawn_[i] != 0) continue;
    for (size_t o = 0; o < proposals_[i].originals.size(); ++o) {
      const int32_t c =
          cycles->component[NodeAt(first_local_[i]) + static_cast<int32_t>(o)];
      if (c >= 0 && !cycles->kept.insert(c).second) {
        is_withdrawn_[i] = 1;
        changed = true;
        break;
      }
    }
  }
  return changed;
}

// Withdraws proposals that close a cycle with rewrites of an XLA pass.
bool ProposalSource::WithdrawFrom(const Cycles& cycles) {
  bool changed = false;
  for (size_t i = 0; i < proposals_.size(); ++i) {
    if (is_withdrawn_[i] == 0 &&
        cycles.component[NodeAt(first_local_[i])] >= 0) {
      is_withdrawn_[i] = 1;
      changed = true;
    }
  }
  return changed;
}

bool ProposalSource::KeepWhole(int32_t node, const std::vector<int32_t>&) {
  is_withdrawn_[proposal_of_[node - NodeAt(0)]] = 1;
  return true;
}

std::vector<int32_t> ProposalSource::OperandsOf(int32_t local) const {
  std::vector<int32_t> operands;
  for (const HloInstruction* read : ProposalOf(local).reads) {
    operands.push_back(analysis_.index.Of(read));
  }
  return operands;
}

bool ProposalSource::ReadsDecided(int32_t local) const {
  return ProposalOf(local).reads_decided;
}

// Of the candidate passes, general-fusion alone has no rules.
bool ProposalSource::IsFusion(int32_t local) const {
  return ProposalOf(local).rule.empty();
}

std::string ProposalSource::KernelOf(int32_t) const { return ""; }

absl::string_view ProposalSource::RuleOf(int32_t local) const {
  return ProposalOf(local).rule;
}

// Build creates the computations that a proposal calls.
void ProposalSource::VisitCalled(
    int32_t, absl::flat_hash_set<const HloComputation*>*,
    absl::FunctionRef<void(const HloComputation*)>) const {}

absl::Status ProposalSource::Build(int32_t local, Materializer* result) const {
  HLOENV_ASSIGN_OR_RETURN(
      const std::vector<HloInstruction*> outputs,
      ProposalOf(local).build([result](const HloInstruction* original) {
        return result->ImageOf(original);
      }));
  int32_t node = NodeAt(first_local_[proposal_of_[local]]);
  for (HloInstruction* output : outputs) result->SetBuilt(node++, output);
  return absl::OkStatus();
}

}  // namespace hloenv
