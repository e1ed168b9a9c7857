// SPDX-License-Identifier: Apache-2.0
// The dry run: which rewrites would these passes make on this module?
//
// Each XLA pass runs for real on its own clone (shadow.h). What differs becomes
// alternatives: a use that the pass rewired is a place to decide, and the new
// instructions below it, down to originals, are the replacement. Several passes
// are merged by use, so that what they would make of one value becomes
// competing choices of one alternative.
//
// Nothing is built until it is asked for: a capture is a list of uses and
// replacements over the original module and the shadows.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/analysis.h"
#include "hlo/module.h"
#include "passes/pipeline.h"
#include "passes/proposals/candidate.h"
#include "rewrite/shadow.h"

namespace hloenv {

// Between the name of a pass and the identity of a rewrite of it that was
// rejected.
inline constexpr absl::string_view kRejects = "?";

enum class AlternativeKind {
  kInstruction,  // one value is replaced
  kSites,        // several values are replaced together
  kPass,         // the whole module is
};
absl::string_view AlternativeKindName(AlternativeKind kind);

// One value that an alternative may replace, at some or all of its uses.
struct Site {
  int32_t original;            // instruction number
  std::vector<Use> uses;       // ascending
  std::vector<int32_t> nodes;  // of each choice above 0: node number
};

struct Alternative {
  AlternativeKind kind;
  std::vector<Site> sites;
  // Of each choice above 0: numbers of the passes that propose it, ascending.
  std::vector<std::vector<int32_t>> passes;

  int64_t num_choices() const {
    return static_cast<int64_t>(passes.size()) + 1;
  }
};

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
  // Captures `first`, a pass object that somebody else made, if given, and then
  // `passes`. Errors: those of making the passes, and PassError when one fails.
  static absl::StatusOr<std::shared_ptr<const Capture>> Run(
      const Module& module, const std::vector<PipelineSpec>& passes,
      const ShadowPass* first = nullptr);

  const Module& module() const { return module_; }
  // Of the module; only when there are alternatives.
  const Analysis& analysis() const { return *analysis_; }
  const std::vector<std::string>& pass_names() const { return pass_names_; }
  const std::vector<Alternative>& alternatives() const { return alternatives_; }
  std::vector<int64_t> NumChoices() const;
  // Why a pass can only be taken or left as a whole; empty if it is taken
  // apart.
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
  // left on its shadow, unless `rebuild`: later passes of XLA's may depend on
  // the order of instructions and users, which is then the pass's.
  absl::StatusOr<Module> Apply(absl::Span<const int64_t> decisions,
                               bool rebuild = false) const;

  // The same on `module`, of which the captured one is a clone; `images` leads
  // from that clone back to it, and is left alone when the decisions are at
  // fault. DecisionError when a whole pass is accepted.
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
  friend class Materializer;

  explicit Capture(const Module& module) : module_(module) {}

  // A new instruction: of a shadow, or one output of a proposal.
  struct Node {
    int32_t pass;
    const xla::HloInstruction* instruction;  // null for a proposal's
    int32_t proposal;
    int32_t output;
  };
  struct Pass {
    int32_t name = 0;  // in pass_names_; the parts of a union share theirs
    std::vector<std::string> xla_names;  // of the passes that ran
    std::unique_ptr<Shadow> shadow;      // null for a candidate pass
    std::vector<Proposal> proposals;
    std::vector<uint8_t> is_dropped;  // by proposal: it would close a cycle
    std::vector<int32_t> first_node;  // by proposal
    std::string indivisible_reason;
    // Shadow instruction to node number, for new ones.
    absl::flat_hash_map<const xla::HloInstruction*, int32_t> node_of;
  };
  struct BuiltGraph {
    std::optional<Module> module;
    // By node number: its instruction in `module`; null if not built.
    std::vector<const xla::HloInstruction*> instructions;
    // Those of them that stand for originals.
    absl::flat_hash_set<const xla::HloInstruction*> originals;
  };

  int32_t num_originals() const {
    return analysis_ == nullptr ? 0 : analysis_->index.size();
  }
  bool IsOriginal(int32_t node) const { return node < num_originals(); }
  const Node& NewNode(int32_t node) const {
    return nodes_[node - num_originals()];
  }

  absl::Status RunPasses(const std::vector<PipelineSpec>& passes,
                         const ShadowPass* first);
  // PassError where a pass of XLA's wrote an invalid module.
  absl::Status CheckValid(const Shadow& shadow) const;
  absl::Status AddName(const std::string& name);
  absl::Status AddShadow(const ShadowPass& pass,
                         std::vector<std::string> xla_names);
  absl::Status AddCandidates(const PassSpec& spec);
  // The shadow of the pass whose decisions these are, or null.
  const Shadow* OwnShadow(absl::Span<const int64_t> decisions) const;
  absl::Status Rewrite(absl::Span<const int64_t> decisions,
                       class Materializer* result) const;
  void CollectNodes();
  std::string CollectShadowNodes(int32_t pass);
  bool SameNewNode(const Pass& pass, const xla::HloInstruction* instruction,
                   int32_t node) const;
  bool BreakCycles();
  void MakeAlternatives();
  // The original that a new instruction of `pass` may call in the place of
  // `computation` of its shadow. None for the bodies of fusions and async
  // operations, which have one caller each.
  static const xla::HloComputation* CalledOrigin(
      const Pass& pass, const xla::HloComputation* computation);
  // Node that a shadow instruction of `pass` is: an original or a new node.
  int32_t NodeOf(const Pass& pass,
                 const xla::HloInstruction* instruction) const;
  // Nodes that a new node reads.
  std::vector<int32_t> OperandsOf(int32_t node) const;
  std::vector<Use> UsesOf(int32_t original) const;
  absl::Status BuildGraph(BuiltGraph* graph) const;
  absl::StatusOr<const BuiltGraph*> GetGraph() const;
  std::string Identity(const Alternative& alternative, int64_t choice) const;
  // By alternative and choice; empty where there are none.
  using Flags = std::vector<std::vector<uint8_t>>;
  absl::StatusOr<Flags> FindDuplicatesCompared() const;
  absl::StatusOr<const Flags*> GetDuplicatesCompared() const;
  std::vector<std::string> PassNames(const std::vector<int32_t>& passes) const;
  std::vector<std::string> MadeDead(const Alternative& alternative,
                                    int64_t choice) const;

  Module module_;
  const Analysis* analysis_ = nullptr;  // null if no pass changed anything
  std::vector<std::string> pass_names_;
  std::vector<Pass> passes_;
  std::vector<Node> nodes_;
  // Merging equal choices of several passes: nodes by a hash of what they are.
  absl::flat_hash_map<uint64_t, std::vector<int32_t>> equal_nodes_;
  std::vector<Alternative> alternatives_;

  mutable std::mutex graph_mutex_;
  mutable std::optional<absl::StatusOr<BuiltGraph>> graph_;
  mutable std::mutex duplicates_mutex_;
  mutable std::optional<absl::StatusOr<Flags>> duplicates_;
};

}  // namespace hloenv
