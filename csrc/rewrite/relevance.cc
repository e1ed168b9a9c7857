// SPDX-License-Identifier: Apache-2.0
//
// Finds the decisions that affect the module, given the others.
//
//   module                       alternatives
//   d = f32[4] divide(x, two)    0: multiply(x, half) for d
//   z = f32[4] add(d, zeros)
//   m = f32[4] subtract(z, z)    1: zeros for m
//   ROOT n = f32[4] negate(m)
//
// If decision 1 is accepted, n reads zeros and nothing live reads d, so that
// decision 0 is irrelevant. A walk from the entry's root that follows, at each
// use, the choice of its decision reaches exactly the instructions that are
// live in the decided module; alternatives that it does not reach do not
// affect it.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "rewrite/capture.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Visits all nodes that are reachable from the entry's root under the given
// decisions, and marks the visited alternatives. An undecided alternative leads
// to all its choices.
class DecidedWalk {
 public:
  DecidedWalk(const Analysis& analysis, const NodeTable& nodes,
              const std::vector<Alternative>& alternatives,
              absl::Span<const int64_t> decisions,
              std::vector<uint8_t>* relevant)
      : analysis_(analysis),
        index_(analysis.index),
        nodes_(nodes),
        alternatives_(alternatives),
        decisions_(decisions),
        relevant_(*relevant),
        seen_(nodes.size(), 0),
        seen_computation_(index_.computations().size(), 0) {
    CollectReplacements();
  }

  void Run() {
    VisitComputation(index_.NumberOf(analysis_.hlo.entry_computation()));
    while (!computations_.empty() || !stack_.empty()) {
      if (!computations_.empty()) {
        const int32_t number = computations_.back();
        computations_.pop_back();
        FollowComputation(number);
        continue;
      }
      const int32_t node = stack_.back();
      stack_.pop_back();
      if (nodes_.IsOriginal(node)) {
        FollowOriginal(node);
      } else {
        FollowNewNode(node);
      }
    }
  }

 private:
  // An alternative that may replace what `use` reads.
  struct Replacement {
    Use use;
    int32_t alternative;
    int32_t site;
  };

  // By use, outermost alternative first.
  void CollectReplacements() {
    for (size_t a = 0; a < alternatives_.size(); ++a) {
      if (alternatives_[a].kind == AlternativeKind::kPass) continue;
      for (size_t s = 0; s < alternatives_[a].sites.size(); ++s) {
        const Site& site = alternatives_[a].sites[s];
        const auto alternative = static_cast<int32_t>(a);
        const auto number = static_cast<int32_t>(s);
        for (const Use& use : site.uses) {
          replacements_.push_back({use, alternative, number});
        }
        const bool reads_decided = absl::c_any_of(
            site.nodes,
            [&](int32_t node) { return nodes_.ReadsDecided(node); });
        if (reads_decided) {
          decided_[site.original].push_back({{}, alternative, number});
        }
      }
    }
    std::sort(replacements_.begin(), replacements_.end(),
              [](const Replacement& a, const Replacement& b) {
                if (!(a.use == b.use)) return a.use < b.use;
                return a.alternative > b.alternative;
              });
  }

  void Visit(int32_t node) {
    if (seen_[node] == 0) {
      seen_[node] = 1;
      stack_.push_back(node);
    }
  }

  void VisitComputation(int32_t number) {
    if (seen_computation_[number] == 0) {
      seen_computation_[number] = 1;
      computations_.push_back(number);
    }
  }

  // Visits the value that a use of `original` reads under the decisions.
  void VisitUse(const Use& use, int32_t original) {
    auto it =
        std::lower_bound(replacements_.begin(), replacements_.end(), use,
                         [](const Replacement& replacement, const Use& wanted) {
                           return replacement.use < wanted;
                         });
    for (; it != replacements_.end() && it->use == use; ++it) {
      relevant_[it->alternative] = 1;
      const Site& site = alternatives_[it->alternative].sites[it->site];
      const int64_t decision = decisions_[it->alternative];
      if (decision > 0) {
        Visit(site.nodes[decision - 1]);
        return;
      }
      if (decision < 0) {
        for (int32_t node : site.nodes) Visit(node);
      }
    }
    Visit(original);
  }

  // Visits the root and the instructions with side effects, which are live
  // without users.
  void FollowComputation(int32_t number) {
    const auto& computations = index_.computations();
    const HloComputation* computation = computations[number];
    VisitUse({number, Use::kRoot, 0},
             index_.Of(computation->root_instruction()));
    const size_t next = static_cast<size_t>(number) + 1;
    const int32_t first = index_.First(computation);
    const int32_t last = next < computations.size()
                             ? index_.First(computations[next])
                             : index_.size();
    auto effect = std::lower_bound(analysis_.effects.begin(),
                                   analysis_.effects.end(), first);
    for (; effect != analysis_.effects.end() && *effect < last; ++effect) {
      Visit(*effect);
    }
  }

  void FollowOriginal(int32_t node) {
    const HloInstruction* instruction = index_.at(node);
    const int32_t first = node - instruction->local_id();
    const int32_t number = index_.NumberOf(instruction->parent());
    for (int64_t k = 0; k < instruction->operand_count(); ++k) {
      VisitUse({number, node, static_cast<int32_t>(k)},
               first + instruction->operand(k)->local_id());
    }
    for (const HloInstruction* before : instruction->control_predecessors()) {
      Visit(first + before->local_id());
    }
    for (const HloComputation* called : instruction->called_computations()) {
      VisitComputation(index_.NumberOf(called));
    }
  }

  // Visits what a new node reads that reads decided values: as
  // Capture::FollowDecisions.
  void VisitDecided(int32_t original) {
    const auto found = decided_.find(original);
    if (found != decided_.end()) {
      const std::vector<Replacement>& sites = found->second;
      for (auto it = sites.rbegin(); it != sites.rend(); ++it) {
        relevant_[it->alternative] = 1;
        const Site& site = alternatives_[it->alternative].sites[it->site];
        const int64_t decision = decisions_[it->alternative];
        if (decision > 0 && nodes_.ReadsDecided(site.nodes[decision - 1])) {
          Visit(site.nodes[decision - 1]);
          return;
        }
        if (decision < 0) {
          for (int32_t node : site.nodes) Visit(node);
        }
      }
    }
    Visit(original);
  }

  void FollowNewNode(int32_t node) {
    const bool reads_decided = nodes_.ReadsDecided(node);
    for (int32_t operand : nodes_.OperandsOf(node)) {
      if (reads_decided) {
        VisitDecided(operand);
      } else {
        Visit(operand);
      }
    }
    const NodeTable::NewNode& entry = nodes_.at(node);
    entry.source->VisitCalled(entry.local, &seen_added_,
                              [this](const HloComputation* called) {
                                VisitComputation(index_.NumberOf(called));
                              });
  }

  const Analysis& analysis_;
  const InstructionIndex& index_;
  const NodeTable& nodes_;
  const std::vector<Alternative>& alternatives_;
  const absl::Span<const int64_t> decisions_;
  std::vector<uint8_t>& relevant_;

  std::vector<Replacement> replacements_;
  // Of nodes that read decided values, by original; outermost last.
  absl::flat_hash_map<int32_t, std::vector<Replacement>> decided_;
  std::vector<uint8_t> seen_;              // by node
  std::vector<uint8_t> seen_computation_;  // by computation number
  absl::flat_hash_set<const HloComputation*> seen_added_;
  std::vector<int32_t> stack_;
  std::vector<int32_t> computations_;
};

}  // namespace

absl::StatusOr<std::vector<uint8_t>> Capture::Relevant(
    absl::Span<const int64_t> decisions) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/true));
  std::vector<uint8_t> relevant(alternatives_.size(), 0);
  if (alternatives_.empty()) return relevant;
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (alternatives_[a].kind != AlternativeKind::kPass) continue;
    relevant[a] = 1;
    // Accepting an indivisible pass makes all other decisions irrelevant.
    if (decisions[a] > 0) return relevant;
  }
  DecidedWalk(*analysis_, nodes_, alternatives_, decisions, &relevant).Run();
  return relevant;
}

}  // namespace hloenv
