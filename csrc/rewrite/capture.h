// SPDX-License-Identifier: Apache-2.0
// The dry run: which rewrites would these passes make on this module?
//
// Each XLA pass runs on a clone of its own (shadow.h). What differs becomes
// alternatives: a use that the pass rewired is a place to decide, and the new
// instructions below it, down to originals, are the replacement. Candidate
// passes propose replacements instead (passes/proposals/candidate.h). Both are
// sources (source.h), which are merged by use, so that what they would make of
// one value becomes competing choices of one alternative.
//
// Nothing is built until it is asked for: a capture is a list of uses and
// replacements over the original module and the sources.
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

// Between the name of a pass and the identity of a rewrite of it that was
// rejected.
inline constexpr absl::string_view kRejects = "?";

// What one choice does.
struct ChoiceInfo {
  std::vector<std::string> passes;
  std::string rule;                       // of a candidate pass, where known
  std::string opcode;                     // of the value that users then read
  std::vector<std::string> instructions;  // names in the alternative graph
  std::vector<std::string> makes_dead;    // names of originals
  bool duplicates_compared = false;       // as Capture::DuplicatesCompared
};

class Capture {
 public:
  // Captures `first`, a pass object of the caller, if given, and then `passes`.
  // Errors: those of making the passes, and PassError when one fails.
  static absl::StatusOr<std::shared_ptr<const Capture>> Run(
      const Module& module, const std::vector<PipelineSpec>& passes,
      const ShadowPass* first = nullptr);

  const Module& module() const { return module_; }
  // Of the module; only when there are alternatives.
  const Analysis& analysis() const { return *analysis_; }
  const std::vector<std::string>& pass_names() const { return pass_names_; }
  const std::vector<Alternative>& alternatives() const { return alternatives_; }
  std::vector<int64_t> NumChoices() const;
  // By pass: why its rewrites are one indivisible decision; empty where they
  // are not.
  std::vector<std::string> IndivisibleReasons() const;

  // [A] the choice of pass `name` at each alternative, 0 where it has none.
  absl::StatusOr<std::vector<int64_t>> DecisionsFor(
      const std::string& name) const;

  // What `decisions` keep XLA's passes from doing: "algsimp?" and the identity
  // of a rewrite each, sorted. Nothing for an alternative with -1, which is
  // left to XLA.
  absl::StatusOr<std::vector<std::string>> Rejected(
      absl::Span<const int64_t> decisions) const;
  // [A] as DecisionsFor, but 0 for rewrites of these identities.
  absl::StatusOr<std::vector<int64_t>> DecisionsWithout(
      const std::string& name,
      const absl::flat_hash_set<std::string>& identities) const;

  // DecisionError unless there is one decision in range for each alternative.
  // `partial` allows -1, undecided.
  absl::Status CheckDecisions(absl::Span<const int64_t> decisions,
                              bool partial) const;

  // [A] 1 where the decision still makes a difference, given the others; an
  // undecided alternative (-1) may go any way.
  absl::StatusOr<std::vector<uint8_t>> Relevant(
      absl::Span<const int64_t> decisions) const;

  // A new module with one choice taken at each alternative and nothing left
  // that no choice reaches. Where the decisions are those of one pass, what it
  // left on its shadow, unless `rebuild`: later XLA passes may depend on the
  // order of instructions and users, which is then that of the pass.
  absl::StatusOr<Module> Apply(absl::Span<const int64_t> decisions,
                               bool rebuild = false) const;

  // The same on `module`, of which the captured one is a clone; `images` leads
  // from that clone back to it, and is left alone when the decisions are at
  // fault. DecisionError when an alternative of kind kPass is accepted.
  absl::Status ApplyInPlace(
      absl::Span<const int64_t> decisions, xla::HloModule* module,
      std::unique_ptr<xla::HloCloneContext>&& images) const;

  // For each choice, originals included, of one alternative after the other: 1
  // where it fuses a copy of a float value that stays, or may stay, for others,
  // and the module compares that value with what it picks from it, as in
  // `x == max(x)`: copies may round differently. Computed on first use, from
  // the alternative graph where there are such comparisons; thread-safe.
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
    // Those of them that stand for originals.
    absl::flat_hash_set<const xla::HloInstruction*> originals;
  };

  explicit Capture(const Module& module) : module_(module) {}

  // Making the capture, in this order.
  absl::Status RunPasses(const std::vector<PipelineSpec>& passes,
                         const ShadowPass* first);
  absl::Status AddName(const std::string& name);
  absl::StatusOr<std::unique_ptr<Shadow>> RunShadow(const ShadowPass& pass);
  // PassError where an XLA pass wrote an invalid module.
  absl::Status CheckValid(const Shadow& shadow) const;
  void AddShadow(std::unique_ptr<Shadow> shadow,
                 std::vector<std::string> xla_passes);
  absl::Status AddCandidates(const PassSpec& spec);
  void NumberNodes();
  Offers CollectOffers() const;
  bool BreakCycles(const Offers& offers);
  std::vector<int32_t> CyclicComponents(const Offers& offers) const;
  void AddPassAlternative();

  // The module that the pass left whose decisions these are; null where they
  // are not those of one pass that ran.
  const xla::HloModule* OwnResult(absl::Span<const int64_t> decisions) const;
  absl::Status Rewrite(absl::Span<const int64_t> decisions,
                       Materializer* result) const;
  absl::Status BuildGraph(BuiltGraph* graph) const;
  absl::Status AddAlternative(int64_t number, Materializer* result) const;
  absl::StatusOr<const BuiltGraph*> GetGraph() const;

  std::string Identity(const Alternative& alternative, int64_t choice) const;

  // By alternative and choice; empty where there are none.
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
