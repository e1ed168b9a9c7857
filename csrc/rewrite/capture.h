// SPDX-License-Identifier: Apache-2.0
// Finds the rewrites that passes would make on a module, without changing it.
//
// Each XLA pass runs on a clone of its own (shadow.h), which is compared with
// the original: each use that the pass rewired becomes part of an alternative,
// and the new instructions below the use, down to originals, are the
// replacement. Candidate passes propose replacements instead
// (passes/proposals/candidate.h). Both are sources (source.h). They are merged
// by use, so that different replacements of one value become choices of one
// alternative.
//
// A capture is a list of uses and replacements over the original module and the
// sources; graphs are built on demand.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/analysis.h"
#include "hlo/module.h"
#include "passes/pipeline.h"
#include "rewrite/node_table.h"
#include "rewrite/shadow.h"
#include "rewrite/source.h"

namespace hloenv {

// Separates the name of a pass from the identity of a rejected rewrite of it.
inline constexpr absl::string_view kRejects = "?";

// What one choice does.
struct ChoiceInfo {
  std::vector<std::string> passes;
  std::string rule;                       // of a candidate pass, if known
  std::string opcode;                     // of the replacement value
  std::vector<std::string> instructions;  // names in the alternative graph
  std::vector<std::string> makes_dead;    // names of originals
  bool duplicates_compared = false;       // as Capture::DuplicatesCompared
};

class DependencyGraph;

class Capture {
 public:
  // Captures `first`, a pass object of the caller, if given, and then `passes`.
  // Errors: those of MakeShadowPass, and PassError when a pass fails.
  static absl::StatusOr<std::shared_ptr<const Capture>> Run(
      const Module& module, const std::vector<PipelineSpec>& passes,
      const ShadowPass* first = nullptr);

  const Module& module() const { return module_; }
  // Of the module; valid only when there are alternatives.
  const Analysis& analysis() const { return *analysis_; }
  const std::vector<std::string>& pass_names() const { return pass_names_; }
  const std::vector<Alternative>& alternatives() const { return alternatives_; }
  std::vector<int64_t> NumChoices() const;
  // For each pass, why its rewrites are indivisible; empty if they are not.
  std::vector<std::string> IndivisibleReasons() const;

  // [A] the choice of pass `name` at each alternative, 0 if it has none.
  absl::StatusOr<std::vector<int64_t>> DecisionsFor(
      const std::string& name) const;

  // The rewrites of XLA's passes that `decisions` reject, each as the pass
  // name, kRejects and the identity of the rewrite ("algsimp?1f…"), sorted.
  // None for undecided alternatives (-1).
  absl::StatusOr<std::vector<std::string>> Rejected(
      absl::Span<const int64_t> decisions) const;
  // [A] as DecisionsFor, but 0 for rewrites with these identities.
  absl::StatusOr<std::vector<int64_t>> DecisionsWithout(
      const std::string& name,
      const absl::flat_hash_set<std::string>& identities) const;

  // DecisionError unless there is one decision in range for each alternative.
  // `partial` allows -1, undecided.
  absl::Status CheckDecisions(absl::Span<const int64_t> decisions,
                              bool partial) const;

  // [A] 1 where the decision affects the module, given the other decisions; an
  // undecided alternative (-1) counts as every choice.
  absl::StatusOr<std::vector<uint8_t>> Relevant(
      absl::Span<const int64_t> decisions) const;

  // A new module with one choice taken at each alternative, without dead code.
  // If the decisions equal those of one pass, the module is a copy of that
  // pass's shadow unless `rebuild`: later XLA passes may depend on the order of
  // instructions and users.
  absl::StatusOr<Module> Apply(absl::Span<const int64_t> decisions,
                               bool rebuild = false) const;

  // As Apply, but rewrites `module`, of which the captured module is a clone;
  // `images` maps the clone to `module` and is not moved from when the
  // decisions are invalid. DecisionError when an alternative of kind kPass is
  // accepted.
  absl::Status ApplyInPlace(
      absl::Span<const int64_t> decisions, xla::HloModule* module,
      std::unique_ptr<xla::HloCloneContext>&& images) const;

  // For each choice (including 0) of each alternative in order: 1 if it fuses a
  // copy of a float value of which another copy may remain, and the module
  // compares that value with one selected from it, as in `x == max(x)`: the
  // copies may round differently. Computed on first use; builds the alternative
  // graph if there are such comparisons; thread-safe.
  absl::StatusOr<std::vector<uint8_t>> DuplicatesCompared() const;

  // The alternative graph. Built on first use; thread-safe.
  absl::StatusOr<Module> Graph() const;

  // `choice` counts from 1. Builds the alternative graph.
  absl::StatusOr<ChoiceInfo> Describe(int64_t alternative,
                                      int64_t choice) const;

 private:
  struct BuiltGraph {
    std::optional<Module> module;
    // By node number: its instruction in `module`; null if not built.
    std::vector<const xla::HloInstruction*> instructions;
    // The images of originals among them.
    absl::flat_hash_set<const xla::HloInstruction*> originals;
  };

  explicit Capture(const Module& module) : module_(module) {}

  // Used by Capture::Run, in this order.
  absl::Status RunPasses(const std::vector<PipelineSpec>& passes,
                         const ShadowPass* first);
  absl::Status AddName(const std::string& name);
  absl::StatusOr<std::unique_ptr<Shadow>> RunShadow(const ShadowPass& pass);
  void AddShadow(std::unique_ptr<Shadow> shadow,
                 std::vector<std::string> xla_passes);
  absl::Status AddCandidates(const PassSpec& spec);
  absl::Status AddProposals(const CandidatePass& pass);
  void NumberNodes();
  Offers CollectOffers() const;
  bool BreakCycles(const Offers& offers);
  void AddDecidedReads(const Offers& offers, DependencyGraph* graph) const;
  absl::Status FollowDecisions(absl::Span<const int64_t> decisions,
                               Materializer* result) const;
  std::vector<int32_t> CyclicComponents(const Offers& offers) const;
  // capture_comparisons.cc
  bool KeepComparisonsWhole(const Offers& offers);
  absl::flat_hash_set<int32_t> OriginalsReadFrom(int32_t node) const;
  bool IsFusion(int32_t node) const;
  void AddPassAlternative();

  // The module after a pass whose DecisionsFor equals `decisions`; null if
  // there is none.
  const xla::HloModule* OwnResult(absl::Span<const int64_t> decisions) const;
  absl::Status Rewrite(absl::Span<const int64_t> decisions,
                       Materializer* result) const;
  absl::Status BuildGraph(BuiltGraph* graph) const;
  absl::Status AddAlternative(int64_t number, Materializer* result) const;
  absl::StatusOr<const BuiltGraph*> GetGraph() const;

  std::string Identity(const Alternative& alternative, int64_t choice) const;

  // By alternative and choice; empty if no flag is set.
  using Flags = std::vector<std::vector<uint8_t>>;
  absl::StatusOr<Flags> FindDuplicatesCompared() const;
  absl::StatusOr<const Flags*> GetDuplicatesCompared() const;

  absl::Status CheckChoice(int64_t alternative, int64_t choice) const;
  // Names of the passes of these sources.
  std::vector<std::string> PassNames(const std::vector<int32_t>& sources) const;
  std::string RuleOf(const Alternative& alternative, int64_t choice) const;
  absl::flat_hash_set<int32_t> OriginalsReadBy(const Alternative& alternative,
                                               int64_t choice) const;
  std::vector<std::string> MadeDead(const Alternative& alternative,
                                    int64_t choice) const;

  Module module_;
  const Analysis* analysis_ = nullptr;  // null if no pass changed anything
  std::vector<std::string> pass_names_;
  std::vector<std::unique_ptr<RewriteSource>> sources_;
  NodeTable nodes_;
  std::vector<Alternative> alternatives_;

  mutable std::mutex graph_mutex_;
  mutable std::optional<absl::StatusOr<BuiltGraph>> graph_;
  mutable std::mutex duplicates_mutex_;
  mutable std::optional<absl::StatusOr<Flags>> duplicates_;
};

}  // namespace hloenv
