// SPDX-License-Identifier: Apache-2.0
#include "rewrite/capture.h"

#include <functional>
#include <map>

#include "rewrite/cycles.h"
#include "rewrite/equivalence.h"
#include "support/status.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

absl::string_view AlternativeKindName(AlternativeKind kind) {
  switch (kind) {
    case AlternativeKind::kInstruction:
      return "instruction";
    case AlternativeKind::kSites:
      return "sites";
    case AlternativeKind::kPass:
      return "pass";
  }
  return "";
}

absl::StatusOr<std::shared_ptr<const Capture>> Capture::Run(
    const Module& module, const std::vector<PipelineSpec>& passes,
    const ShadowPass* first) {
  std::shared_ptr<Capture> capture(new Capture(module));
  HLOENV_RETURN_IF_ERROR(capture->RunPasses(passes, first));
  if (capture->analysis_ == nullptr) return capture;  // nothing changed
  do {
    capture->CollectNodes();
  } while (capture->BreakCycles());
  capture->MakeAlternatives();
  return capture;
}

absl::Status Capture::RunPasses(const std::vector<PipelineSpec>& passes,
                                const ShadowPass* first) {
  if (first != nullptr) {
    HLOENV_RETURN_IF_ERROR(AddName(first->name));
    HLOENV_RETURN_IF_ERROR(AddShadow(*first, {first->name}));
  }
  if (passes.empty() && first == nullptr) {
    return Error(kUnknownPassError,
                 "no pass was given; name at least one, as in "
                 "get_alternatives(\"algsimp\")");
  }
  if (!passes.empty()) HLOENV_RETURN_IF_ERROR(CheckUnscheduled(module_.hlo()));
  for (const PipelineSpec& spec : passes) {
    if (IsCandidatePipeline(spec)) {
      HLOENV_RETURN_IF_ERROR(AddName(spec.name));
      HLOENV_RETURN_IF_ERROR(
          AddCandidates(std::get<PassSpec>(spec.steps.front())));
    } else {
      HLOENV_ASSIGN_OR_RETURN(const ShadowPass pass, MakeShadowPass(spec));
      HLOENV_RETURN_IF_ERROR(AddName(spec.name));
      HLOENV_RETURN_IF_ERROR(AddShadow(pass, PassNamesIn(spec)));
      HLOENV_RETURN_IF_ERROR(CheckValid(*passes_.back().shadow));
    }
  }
  return absl::OkStatus();
}

absl::Status Capture::CheckValid(const Shadow& shadow) const {
  if (shadow.invalid_reason().empty()) return absl::OkStatus();
  return Error(
      kPassError,
      absl::StrCat("pass '", shadow.name(), "' makes an invalid module of '",
                   module_.name(), "', which is valid (a bug of XLA's): ",
                   shadow.invalid_reason(),
                   "; leave the pass out, or run it elsewhere"));
}

absl::Status Capture::AddName(const std::string& name) {
  if (std::find(pass_names_.begin(), pass_names_.end(), name) !=
      pass_names_.end()) {
    return Error(kUnknownPassError,
                 absl::StrCat("'", name,
                              "' was given twice; put passes with other "
                              "options into pipelines with their own names"));
  }
  pass_names_.push_back(name);
  return absl::OkStatus();
}

// Under the name that was added last.
absl::Status Capture::AddShadow(const ShadowPass& shadow_pass,
                                std::vector<std::string> xla_names) {
  Pass pass;
  pass.xla_names = std::move(xla_names);
  pass.name = static_cast<int32_t>(pass_names_.size()) - 1;
  HLOENV_ASSIGN_OR_RETURN(pass.shadow, Shadow::Run(module_, shadow_pass));
  if (pass.shadow->changed()) analysis_ = &module_.analysis();
  pass.indivisible_reason = pass.shadow->indivisible_reason();
  passes_.push_back(std::move(pass));
  return absl::OkStatus();
}

absl::Status Capture::AddCandidates(const PassSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(const Candidates candidates,
                          MakeCandidates(spec, module_.hlo()));
  for (const PassSpec& part : candidates.union_of) {
    HLOENV_ASSIGN_OR_RETURN(const ShadowPass pass,
                            MakeShadowPass(SinglePass(part)));
    HLOENV_RETURN_IF_ERROR(AddShadow(pass, {part.name}));
    // An indivisible change is no choice beside others, and an invalid one
    // is none at all.
    if (!passes_.back().indivisible_reason.empty() ||
        !passes_.back().shadow->invalid_reason().empty()) {
      passes_.pop_back();
    }
  }
  if (candidates.pass == nullptr) return absl::OkStatus();
  Pass pass;
  pass.name = static_cast<int32_t>(pass_names_.size()) - 1;
  HLOENV_ASSIGN_OR_RETURN(pass.proposals,
                          candidates.pass->Propose(module_.hlo()));
  analysis_ = &module_.analysis();
  for (const Proposal& proposal : pass.proposals) {
    // Nothing reads the values of dead code.
    const bool is_live = std::all_of(
        proposal.originals.begin(), proposal.originals.end(),
        [this](const HloInstruction* original) {
          return analysis_->is_live[analysis_->index.Of(original)] != 0;
        });
    pass.is_dropped.push_back(is_live ? 0 : 1);
  }
  passes_.push_back(std::move(pass));
  return absl::OkStatus();
}

const HloComputation* Capture::CalledOrigin(const Pass& pass,
                                            const HloComputation* computation) {
  if (computation->IsFusionComputation() || computation->IsAsyncComputation()) {
    return nullptr;
  }
  return pass.shadow->OriginOf(computation);
}

int32_t Capture::NodeOf(const Pass& pass,
                        const HloInstruction* instruction) const {
  const int32_t origin = pass.shadow->OriginOf(instruction);
  return origin >= 0 ? origin : pass.node_of.at(instruction);
}

std::vector<int32_t> Capture::OperandsOf(int32_t node) const {
  const Node& entry = NewNode(node);
  const Pass& pass = passes_[entry.pass];
  std::vector<int32_t> operands;
  if (entry.instruction == nullptr) {
    for (const HloInstruction* read : pass.proposals[entry.proposal].reads) {
      operands.push_back(analysis_->index.Of(read));
    }
  } else {
    for (const HloInstruction* operand : entry.instruction->operands()) {
      operands.push_back(NodeOf(pass, operand));
    }
  }
  return operands;
}

std::vector<Use> Capture::UsesOf(int32_t original) const {
  const HloInstruction* instruction = analysis_->index.at(original);
  const HloComputation* computation = instruction->parent();
  const int32_t number = analysis_->index.NumberOf(computation);
  const int32_t first = analysis_->index.First(computation);
  std::vector<Use> uses;
  if (computation->root_instruction() == instruction) {
    uses.push_back({number, Use::kRoot, 0});
  }
  for (const HloInstruction* user : instruction->users()) {
    const int32_t u = first + user->local_id();
    if (analysis_->is_live[u] == 0) continue;
    for (int64_t k = 0; k < user->operand_count(); ++k) {
      if (user->operand(k) == instruction) {
        uses.push_back({number, u, static_cast<int32_t>(k)});
      }
    }
  }
  std::sort(uses.begin(), uses.end());
  return uses;
}

void Capture::CollectNodes() {
  nodes_.clear();
  equal_nodes_.clear();
  for (size_t p = 0; p < passes_.size(); ++p) {
    Pass& pass = passes_[p];
    pass.node_of.clear();
    if (pass.shadow == nullptr) {
      pass.first_node.assign(pass.proposals.size(), -1);
      for (size_t i = 0; i < pass.proposals.size(); ++i) {
        if (pass.is_dropped[i] != 0) continue;
        pass.first_node[i] =
            num_originals() + static_cast<int32_t>(nodes_.size());
        for (size_t o = 0; o < pass.proposals[i].originals.size(); ++o) {
          nodes_.push_back({static_cast<int32_t>(p), nullptr,
                            static_cast<int32_t>(i), static_cast<int32_t>(o)});
        }
      }
      continue;
    }
    if (!pass.indivisible_reason.empty()) continue;
    const size_t num_nodes = nodes_.size();
    pass.indivisible_reason = CollectShadowNodes(static_cast<int32_t>(p));
    if (!pass.indivisible_reason.empty()) {
      nodes_.resize(num_nodes);
      equal_nodes_.clear();  // may name the nodes that are gone
    }
  }
}

// Numbers the new instructions below the rewired uses of one shadow, operands
// first. Returns why that cannot be done, or nothing.
std::string Capture::CollectShadowNodes(int32_t p) {
  Pass& pass = passes_[p];
  const bool merges = passes_.size() > 1;
  const size_t num_nodes_before = nodes_.size();
  absl::flat_hash_set<int32_t> taken;  // equal nodes that this pass has used
  std::vector<const HloInstruction*> stack;
  std::vector<int32_t> operands;
  for (const RewiredUse& rewired : pass.shadow->rewired_uses()) {
    stack.push_back(rewired.replacement);
    while (!stack.empty()) {
      const HloInstruction* top = stack.back();
      if (pass.shadow->OriginOf(top) >= 0 || pass.node_of.contains(top)) {
        stack.pop_back();
        continue;
      }
      const size_t depth = stack.size();
      for (auto it = top->operands().rbegin(); it != top->operands().rend();
           ++it) {
        if (pass.shadow->OriginOf(*it) < 0 && !pass.node_of.contains(*it)) {
          stack.push_back(*it);
        }
      }
      if (stack.size() != depth) continue;
      stack.pop_back();
      if (top->opcode() == HloOpcode::kParameter) {
        return "it adds a parameter";
      }
      if (top->HasSideEffect()) {
        return absl::StrCat("it adds '", top->name(),
                            "', which has side effects that must happen "
                            "exactly once");
      }
      if (top->HasControlDependencies()) {
        return absl::StrCat("it adds '", top->name(),
                            "', which has control dependencies");
      }
      int32_t equal = -1;
      if (merges) {
        operands.clear();
        for (const HloInstruction* operand : top->operands()) {
          operands.push_back(NodeOf(pass, operand));
        }
        const uint64_t hash =
            absl::HashOf(top->opcode(), top->shape(), operands);
        std::vector<int32_t>& same_hash = equal_nodes_[hash];
        for (int32_t node : same_hash) {
          if (node < num_originals() + static_cast<int32_t>(num_nodes_before) &&
              !taken.contains(node) && SameNewNode(pass, top, node)) {
            equal = node;
            taken.insert(node);
            break;
          }
        }
        if (equal < 0) {
          same_hash.push_back(num_originals() +
                              static_cast<int32_t>(nodes_.size()));
        }
      }
      if (equal < 0) {
        equal = num_originals() + static_cast<int32_t>(nodes_.size());
        nodes_.push_back({p, top, -1, -1});
      }
      pass.node_of[top] = equal;
    }
  }
  return "";
}

// Whether `instruction`, new in the shadow of `pass`, is what `node` of an
// earlier pass is. Their operands have the same hash only.
bool Capture::SameNewNode(const Pass& pass, const HloInstruction* instruction,
                          int32_t node) const {
  const HloInstruction* other = NewNode(node).instruction;
  if (other == nullptr) return false;
  const Pass& other_pass = passes_[NewNode(node).pass];
  // Without operands, as constants are, equal nodes may stand in different
  // computations.
  if (pass.shadow->OriginOf(instruction->parent()) !=
      other_pass.shadow->OriginOf(other->parent())) {
    return false;
  }
  if (instruction->operand_count() != other->operand_count()) return false;
  for (int64_t i = 0; i < instruction->operand_count(); ++i) {
    if (NodeOf(pass, instruction->operand(i)) !=
        NodeOf(other_pass, other->operand(i))) {
      return false;
    }
  }
  // Which callers share a computation is part of what a pass gives: the merged
  // node would have the other pass's say in that.
  const auto is_called_once = [](const HloComputation* computation) {
    const auto& callers = computation->caller_computations();
    return callers.size() == 1 && callers.begin()->second == 1;
  };
  const std::function<bool(const HloComputation*, const HloComputation*)>
      same_computation = [&](const HloComputation* a, const HloComputation* b) {
        const HloComputation* left = CalledOrigin(pass, a);
        const HloComputation* right = CalledOrigin(other_pass, b);
        if (left != nullptr || right != nullptr) return left == right;
        return is_called_once(a) && is_called_once(b) &&
               a->Equal(*b, /*is_layout_sensitive=*/true, same_computation);
      };
  return SameInstruction(*instruction, HasExtras(*instruction), *other,
                         same_computation);
}

// Finds cycles that mixed decisions could close and removes their cause.
// Returns whether anything changed.
bool Capture::BreakCycles() {
  // Every use that some pass rewires, with what it may read instead.
  DependencyGraph graph(num_originals() + static_cast<int32_t>(nodes_.size()));
  const auto add_use = [&](const Use& use, int32_t node) {
    if (use.user != Use::kRoot) graph.AddEdge(use.user, node);
  };
  bool has_any = false;
  for (const Pass& pass : passes_) {
    if (pass.shadow == nullptr) {
      for (size_t i = 0; i < pass.proposals.size(); ++i) {
        if (pass.is_dropped[i] != 0) continue;
        has_any = true;
        for (size_t o = 0; o < pass.proposals[i].originals.size(); ++o) {
          const int32_t node = pass.first_node[i] + static_cast<int32_t>(o);
          for (const Use& use :
               UsesOf(analysis_->index.Of(pass.proposals[i].originals[o]))) {
            add_use(use, node);
          }
        }
      }
    } else if (pass.indivisible_reason.empty()) {
      for (const RewiredUse& rewired : pass.shadow->rewired_uses()) {
        has_any = true;
        add_use(rewired.use, NodeOf(pass, rewired.replacement));
      }
    }
  }
  if (!has_any) return false;
  const std::vector<int32_t> component =
      graph.CyclicComponents([this](int32_t node, std::vector<int32_t>* below) {
        if (!IsOriginal(node)) {
          const std::vector<int32_t> operands = OperandsOf(node);
          below->insert(below->end(), operands.begin(), operands.end());
          return;
        }
        const HloInstruction* instruction = analysis_->index.at(node);
        const int32_t first = node - instruction->local_id();
        for (const HloInstruction* operand : instruction->operands()) {
          below->push_back(first + operand->local_id());
        }
        for (const HloInstruction* before :
             instruction->control_predecessors()) {
          below->push_back(first + before->local_id());
        }
      });
  if (component.empty()) return false;

  const auto in_cycle = [&](int32_t a, int32_t b) {
    return component[a] >= 0 && component[a] == component[b];
  };
  bool changed = false;
  absl::flat_hash_set<int32_t> kept;  // components that keep one proposal
  for (Pass& pass : passes_) {
    if (pass.shadow == nullptr) {
      for (size_t i = 0; i < pass.proposals.size(); ++i) {
        if (pass.is_dropped[i] != 0) continue;
        const size_t num_outputs = pass.proposals[i].originals.size();
        for (size_t o = 0; o < num_outputs; ++o) {
          const int32_t c = component[pass.first_node[i] + o];
          if (c >= 0 && !kept.insert(c).second) {
            pass.is_dropped[i] = 1;
            changed = true;
            break;
          }
        }
      }
      continue;
    }
    if (!pass.indivisible_reason.empty()) continue;
    // Originals that a replacement reads and that depend on it in turn: from
    // now on the replacement brings its own copy, as the shadow has one.
    std::vector<int32_t> detach;
    for (const auto& [instruction, node] : pass.node_of) {
      if (component[node] < 0) continue;
      for (const HloInstruction* operand : instruction->operands()) {
        const int32_t below = NodeOf(pass, operand);
        if (IsOriginal(below) && in_cycle(node, below)) detach.push_back(below);
      }
    }
    for (const RewiredUse& rewired : pass.shadow->rewired_uses()) {
      const int32_t node = NodeOf(pass, rewired.replacement);
      if (rewired.use.user != Use::kRoot && IsOriginal(node) &&
          in_cycle(rewired.use.user, node)) {
        detach.push_back(node);
      }
    }
    std::sort(detach.begin(), detach.end());
    detach.erase(std::unique(detach.begin(), detach.end()), detach.end());
    for (int32_t original : detach) {
      changed = true;
      if (std::binary_search(analysis_->effects.begin(),
                             analysis_->effects.end(), original) ||
          analysis_->index.at(original)->HasControlDependencies()) {
        pass.indivisible_reason =
            absl::StrCat("parts of it would need a second copy of '",
                         analysis_->index.at(original)->name(),
                         "', which has side effects or control dependencies");
        break;
      }
      pass.shadow->Detach(original);
    }
    if (!detach.empty() && pass.indivisible_reason.empty()) {
      pass.shadow->CollectRewiredUses();
    }
  }
  if (!changed) {
    // A proposal that closes a cycle with a pass: the pass is kept.
    for (Pass& pass : passes_) {
      for (size_t i = 0; i < pass.proposals.size(); ++i) {
        if (pass.is_dropped[i] == 0 && component[pass.first_node[i]] >= 0) {
          pass.is_dropped[i] = 1;
          changed = true;
        }
      }
    }
  }
  return changed;
}

void Capture::MakeAlternatives() {
  // What each rewired use may read: (node, pass), in the order of the passes.
  struct Offer {
    Use use;
    int32_t original;
    int32_t node;
    int32_t pass;
  };
  std::vector<Offer> offers;
  std::vector<Alternative> together;
  for (size_t p = 0; p < passes_.size(); ++p) {
    const Pass& pass = passes_[p];
    const auto number = static_cast<int32_t>(p);
    if (pass.shadow == nullptr) {
      for (size_t i = 0; i < pass.proposals.size(); ++i) {
        if (pass.is_dropped[i] != 0) continue;
        const Proposal& proposal = pass.proposals[i];
        if (proposal.originals.size() == 1) {
          const int32_t original = analysis_->index.Of(proposal.originals[0]);
          for (const Use& use : UsesOf(original)) {
            offers.push_back({use, original, pass.first_node[i], number});
          }
          continue;
        }
        Alternative alternative{AlternativeKind::kSites, {}, {{number}}};
        for (size_t o = 0; o < proposal.originals.size(); ++o) {
          const int32_t original = analysis_->index.Of(proposal.originals[o]);
          alternative.sites.push_back(
              {original,
               UsesOf(original),
               {pass.first_node[i] + static_cast<int32_t>(o)}});
        }
        together.push_back(std::move(alternative));
      }
    } else if (pass.indivisible_reason.empty()) {
      for (const RewiredUse& rewired : pass.shadow->rewired_uses()) {
        offers.push_back({rewired.use, rewired.original,
                          NodeOf(pass, rewired.replacement), number});
      }
    }
  }
  std::stable_sort(
      offers.begin(), offers.end(),
      [](const Offer& a, const Offer& b) { return a.use < b.use; });

  // Uses of one value with the same offers share one alternative.
  std::map<std::pair<int32_t, std::vector<std::pair<int32_t, int32_t>>>, size_t>
      alternative_of;
  for (size_t from = 0; from < offers.size();) {
    std::vector<std::pair<int32_t, int32_t>> key;
    size_t to = from;
    while (to < offers.size() && offers[to].use == offers[from].use) {
      key.emplace_back(offers[to].node, offers[to].pass);
      ++to;
    }
    const int32_t original = offers[from].original;
    const Use use = offers[from].use;
    from = to;
    auto [it, is_new] = alternative_of.try_emplace(
        std::make_pair(original, key), alternatives_.size());
    if (is_new) {
      Alternative alternative{AlternativeKind::kInstruction, {}, {}};
      Site site{original, {}, {}};
      for (const auto& [node, pass] : key) {
        auto same = std::find(site.nodes.begin(), site.nodes.end(), node);
        if (same == site.nodes.end()) {
          site.nodes.push_back(node);
          alternative.passes.push_back({pass});
        } else {
          alternative.passes[same - site.nodes.begin()].push_back(pass);
        }
      }
      alternative.sites.push_back(std::move(site));
      alternatives_.push_back(std::move(alternative));
    }
    alternatives_[it->second].sites.front().uses.push_back(use);
  }
  std::stable_sort(alternatives_.begin(), alternatives_.end(),
                   [](const Alternative& a, const Alternative& b) {
                     return std::tie(a.sites[0].original, a.sites[0].uses[0]) <
                            std::tie(b.sites[0].original, b.sites[0].uses[0]);
                   });
  for (Alternative& alternative : together) {
    alternatives_.push_back(std::move(alternative));
  }

  Alternative whole{AlternativeKind::kPass, {}, {}};
  for (size_t p = 0; p < passes_.size(); ++p) {
    if (!passes_[p].indivisible_reason.empty() &&
        passes_[p].shadow->changed()) {
      whole.passes.push_back({static_cast<int32_t>(p)});
    }
  }
  if (!whole.passes.empty()) {
    const HloComputation* entry = analysis_->hlo.entry_computation();
    const int32_t root = analysis_->index.Of(entry->root_instruction());
    whole.sites.push_back({root,
                           {{analysis_->index.NumberOf(entry), Use::kRoot, 0}},
                           std::vector<int32_t>(whole.passes.size(), root)});
    alternatives_.push_back(std::move(whole));
  }
}

}  // namespace hloenv
