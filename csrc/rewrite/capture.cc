// SPDX-License-Identifier: Apache-2.0
#include "rewrite/capture.h"

#include <map>

#include "passes/proposals/candidate.h"
#include "rewrite/cycles.h"
#include "rewrite/proposal_source.h"
#include "rewrite/shadow_source.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Node and source of each offer for one use, in source order.
using Choices = std::vector<std::pair<int32_t, int32_t>>;

// Sources that offer the same node share one choice. The result has no uses.
Alternative CompetingChoices(int32_t original, const Choices& choices) {
  Alternative alternative{AlternativeKind::kInstruction, {}, {}};
  Site site{original, {}, {}};
  for (const auto& [node, source] : choices) {
    const auto same = std::find(site.nodes.begin(), site.nodes.end(), node);
    if (same == site.nodes.end()) {
      site.nodes.push_back(node);
      alternative.sources.push_back({source});
    } else {
      alternative.sources[same - site.nodes.begin()].push_back(source);
    }
  }
  alternative.sites.push_back(std::move(site));
  return alternative;
}

// The alternatives of single uses, by original and first use.
//
//   module                       algsimp offers       cse offers
//   a = f32[] add(p, zero)
//   b = f32[] add(p, zero)
//   m = f32[] multiply(b, b)     p for both uses      a for both uses
//   n = f32[] negate(b)          p                    a
//   e = f32[] exponential(a)     p
//
// The three uses of b have the same offers and become one alternative with the
// choices b, p and a; the use of a becomes another one, with a and p. Every
// offer is equal to the value that the use reads, so the choices of different
// uses are independent. Uses of one value with the same offers share one
// alternative, which keeps the number of alternatives small.
std::vector<Alternative> MergeOffers(std::vector<Offer> offers) {
  std::stable_sort(
      offers.begin(), offers.end(),
      [](const Offer& a, const Offer& b) { return a.use < b.use; });
  std::vector<Alternative> alternatives;
  std::map<std::pair<int32_t, Choices>, size_t> alternative_of;
  for (size_t from = 0; from < offers.size();) {
    const Use use = offers[from].use;
    const int32_t original = offers[from].original;
    Choices choices;
    for (; from < offers.size() && offers[from].use == use; ++from) {
      choices.emplace_back(offers[from].node, offers[from].source);
    }
    const auto [it, is_new] = alternative_of.try_emplace(
        std::make_pair(original, choices), alternatives.size());
    if (is_new) alternatives.push_back(CompetingChoices(original, choices));
    alternatives[it->second].sites.front().uses.push_back(use);
  }
  std::stable_sort(alternatives.begin(), alternatives.end(),
                   [](const Alternative& a, const Alternative& b) {
                     return std::tie(a.sites[0].original, a.sites[0].uses[0]) <
                            std::tie(b.sites[0].original, b.sites[0].uses[0]);
                   });
  return alternatives;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Capture>> Capture::Run(
    const Module& module, const std::vector<PipelineSpec>& passes,
    const ShadowPass* first) {
  std::shared_ptr<Capture> capture(new Capture(module));
  HLOENV_RETURN_IF_ERROR(capture->RunPasses(passes, first));
  if (capture->analysis_ == nullptr) return capture;  // nothing changed
  Offers offers;
  do {
    capture->NumberNodes();
    offers = capture->CollectOffers();
  } while (capture->BreakCycles(offers) ||
           capture->KeepComparisonsWhole(offers));
  capture->alternatives_ = MergeOffers(std::move(offers.single));
  for (Alternative& alternative : offers.grouped) {
    capture->alternatives_.push_back(std::move(alternative));
  }
  capture->AddPassAlternative();
  return capture;
}

absl::Status Capture::RunPasses(const std::vector<PipelineSpec>& passes,
                                const ShadowPass* first) {
  if (first != nullptr) {
    HLOENV_RETURN_IF_ERROR(AddName(first->name));
    HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<Shadow> shadow, RunShadow(*first));
    AddShadow(std::move(shadow), {first->name});
  }
  if (passes.empty() && first == nullptr) {
    return Error(kUnknownPassError,
                 "no pass was given; give at least one, as in "
                 "get_alternatives(\"algsimp\")");
  }
  if (!passes.empty()) HLOENV_RETURN_IF_ERROR(CheckUnscheduled(module_.hlo()));
  for (const PipelineSpec& spec : passes) {
    if (spec.given != nullptr) {
      HLOENV_RETURN_IF_ERROR(AddName(spec.name));
      HLOENV_RETURN_IF_ERROR(AddProposals(*spec.given));
    } else if (IsCandidatePipeline(spec)) {
      HLOENV_RETURN_IF_ERROR(AddName(spec.name));
      HLOENV_RETURN_IF_ERROR(
          AddCandidates(std::get<PassSpec>(spec.steps.front())));
    } else {
      HLOENV_ASSIGN_OR_RETURN(const ShadowPass pass, MakeShadowPass(spec));
      HLOENV_RETURN_IF_ERROR(AddName(spec.name));
      HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<Shadow> shadow, RunShadow(pass));
      HLOENV_RETURN_IF_ERROR(shadow->validity());
      AddShadow(std::move(shadow), PassNamesIn(spec));
    }
  }
  return absl::OkStatus();
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

absl::StatusOr<std::unique_ptr<Shadow>> Capture::RunShadow(
    const ShadowPass& pass) {
  HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<Shadow> shadow,
                          Shadow::Run(module_, pass));
  if (shadow->changed()) analysis_ = &module_.analysis();
  return shadow;
}

// Uses the name that was added last.
void Capture::AddShadow(std::unique_ptr<Shadow> shadow,
                        std::vector<std::string> xla_passes) {
  sources_.push_back(std::make_unique<ShadowSource>(
      static_cast<int32_t>(sources_.size()),
      static_cast<int32_t>(pass_names_.size()) - 1, std::move(xla_passes),
      std::move(shadow)));
}

absl::Status Capture::AddCandidates(const PassSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(const Candidates candidates,
                          MakeCandidates(spec, module_.hlo()));
  for (const PassSpec& part : candidates.union_of) {
    HLOENV_ASSIGN_OR_RETURN(const ShadowPass pass,
                            MakeShadowPass(SinglePass(part)));
    HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<Shadow> shadow, RunShadow(pass));
    // Indivisible changes cannot be combined with other choices, and invalid
    // ones cannot be applied.
    if (shadow->is_indivisible() || !shadow->validity().ok()) continue;
    AddShadow(std::move(shadow), {part.name});
  }
  return candidates.pass == nullptr ? absl::OkStatus()
                                    : AddProposals(*candidates.pass);
}

// Uses the name that was added last.
absl::Status Capture::AddProposals(const CandidatePass& pass) {
  HLOENV_ASSIGN_OR_RETURN(std::vector<Proposal> proposals,
                          pass.Propose(module_.hlo()));
  analysis_ = &module_.analysis();
  sources_.push_back(std::make_unique<ProposalSource>(
      static_cast<int32_t>(sources_.size()),
      static_cast<int32_t>(pass_names_.size()) - 1, *analysis_,
      std::move(proposals)));
  return absl::OkStatus();
}

void Capture::NumberNodes() {
  nodes_ = NodeTable(analysis_->index.size());
  EqualNodes equal_nodes(/*has_several_sources=*/sources_.size() > 1);
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    source->NumberNodes(&nodes_, &equal_nodes);
  }
}

Offers Capture::CollectOffers() const {
  Offers offers;
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    source->AddOffers(&offers);
  }
  return offers;
}

// Edges from nodes that read what others are instead of their operands.
void Capture::AddDecidedReads(const Offers& offers,
                              DependencyGraph* graph) const {
  absl::flat_hash_map<int32_t, std::vector<int32_t>> nodes_for;
  const auto add = [&](int32_t original, int32_t node) {
    if (nodes_.ReadsDecided(node)) nodes_for[original].push_back(node);
  };
  for (const Offer& offer : offers.single) add(offer.original, offer.node);
  for (const Alternative& alternative : offers.grouped) {
    for (const Site& site : alternative.sites) {
      add(site.original, site.nodes.front());
    }
  }
  if (nodes_for.empty()) return;
  for (int32_t node = nodes_.num_originals(); node < nodes_.size(); ++node) {
    if (!nodes_.ReadsDecided(node)) continue;
    for (const int32_t operand : nodes_.OperandsOf(node)) {
      const auto found = nodes_for.find(operand);
      if (found == nodes_for.end()) continue;
      for (const int32_t other : found->second) graph->AddEdge(node, other);
    }
  }
}

// By node; empty if no decisions can close a cycle.
std::vector<int32_t> Capture::CyclicComponents(const Offers& offers) const {
  DependencyGraph graph(nodes_.size());
  const auto add_use = [&graph](const Use& use, int32_t node) {
    if (use.user != Use::kRoot) graph.AddEdge(use.user, node);
  };
  for (const Offer& offer : offers.single) add_use(offer.use, offer.node);
  for (const Alternative& alternative : offers.grouped) {
    for (const Site& site : alternative.sites) {
      for (const Use& use : site.uses) add_use(use, site.nodes.front());
    }
  }
  if (graph.is_empty()) return {};
  AddDecidedReads(offers, &graph);
  return graph.CyclicComponents([this](int32_t node,
                                       std::vector<int32_t>* below) {
    if (!nodes_.IsOriginal(node)) {
      const std::vector<int32_t> operands = nodes_.OperandsOf(node);
      below->insert(below->end(), operands.begin(), operands.end());
      return;
    }
    const HloInstruction* instruction = analysis_->index.at(node);
    const int32_t first = node - instruction->local_id();
    for (const HloInstruction* operand : instruction->operands()) {
      below->push_back(first + operand->local_id());
    }
    for (const HloInstruction* before : instruction->control_predecessors()) {
      below->push_back(first + before->local_id());
    }
  });
}

// Finds cycles that some decisions would close, and changes or removes the
// rewrites that close them. Returns whether any source changed.
//
//   module                         offered
//   f2 = s32[] not(x)
//   u = s32[] negate(f2)           f1 for f2
//   z = s32[] multiply(u, zero)
//   b = s32[] add(x, z)
//   f1 = s32[] not(b)              x for b
//
// Accepting the first offer alone makes u read f1, which depends on u through b
// and z. The graph has an edge for each original operand and for each offer.
// The edges of every decided module are a subset of these, so if the graph has
// no cycle, no decided module has one. Each source first breaks cycles itself.
// If no source changed anything, the remaining cycles involve a proposal and an
// XLA pass, and the proposal is withdrawn.
bool Capture::BreakCycles(const Offers& offers) {
  Cycles cycles{CyclicComponents(offers), {}};
  if (cycles.component.empty()) return false;
  bool changed = false;
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    if (source->BreakCycles(&cycles)) changed = true;
  }
  if (changed) return true;
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    if (source->WithdrawFrom(cycles)) changed = true;
  }
  return changed;
}

// Adds one alternative at the entry's root whose choices are the indivisible
// sources.
void Capture::AddPassAlternative() {
  Alternative alternative{AlternativeKind::kPass, {}, {}};
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    if (source->is_indivisible()) {
      alternative.sources.push_back({source->number()});
    }
  }
  if (alternative.sources.empty()) return;
  const HloComputation* entry = analysis_->hlo.entry_computation();
  const int32_t root = analysis_->index.Of(entry->root_instruction());
  alternative.sites.push_back(
      {root,
       {{analysis_->index.NumberOf(entry), Use::kRoot, 0}},
       std::vector<int32_t>(alternative.sources.size(), root)});
  alternatives_.push_back(std::move(alternative));
}

}  // namespace hloenv
