// SPDX-License-Identifier: Apache-2.0
// Where the rewrites of a capture come from.
//
// A source is a run of an XLA pass on a copy (ShadowSource) or the proposals of
// a candidate pass (ProposalSource). Both offer replacements of values of the
// captured module, whose new instructions are nodes of one table.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rewrite/node_table.h"
#include "rewrite/use.h"

namespace xla {
class HloComputation;
class HloModule;
}  // namespace xla

namespace hloenv {

class Materializer;

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
  // Of each choice above 0: numbers of the sources that offer it, ascending.
  std::vector<std::vector<int32_t>> sources;

  int64_t num_choices() const {
    return static_cast<int64_t>(sources.size()) + 1;
  }
};

// `use`, which reads `original`, may read `node`.
struct Offer {
  Use use;
  int32_t original;
  int32_t node;
  int32_t source;
};

// All that the sources offer, in their order.
struct Offers {
  // Each use on its own; those of one value may become one alternative.
  std::vector<Offer> single;
  // Values that are replaced together. Each alternative has one choice.
  std::vector<Alternative> grouped;
};

// Values that could depend on themselves if decisions were mixed.
struct Cycles {
  // By node: the number of its cycle, -1 outside of cycles.
  std::vector<int32_t> component;
  // Cycles in which one proposal stays; see ProposalSource::BreakCycles.
  absl::flat_hash_set<int32_t> kept;

  bool Share(int32_t a, int32_t b) const {
    return component[a] >= 0 && component[a] == component[b];
  }
};

// `local` numbers the nodes of the source from 0, in the order of the table.
class RewriteSource {
 public:
  virtual ~RewriteSource() = default;
  RewriteSource(const RewriteSource&) = delete;
  RewriteSource& operator=(const RewriteSource&) = delete;

  // Position among the sources of the capture.
  int32_t number() const { return number_; }
  // Position in Capture::pass_names. The parts of a union share theirs.
  int32_t pass() const { return pass_; }
  // The XLA passes that ran to make the rewrites; none for a candidate pass.
  const std::vector<std::string>& xla_passes() const { return xla_passes_; }
  // Why the rewrites cannot be separated; empty when they can. An indivisible
  // source has no nodes and no offers.
  const std::string& indivisible_reason() const { return indivisible_reason_; }
  bool is_indivisible() const { return !indivisible_reason_.empty(); }

  // Adds the nodes of this source to `nodes`; may make the source indivisible.
  // Sources are called in their order, which starts again after cycles were
  // broken. `equal_nodes` passes from one to the next.
  virtual void NumberNodes(NodeTable* nodes, EqualNodes* equal_nodes) = 0;

  // Adds what is offered. Needs the nodes' numbers, as all that follow.
  virtual void AddOffers(Offers* offers) const = 0;

  // Removes what closes `cycles`. Returns whether anything changed; then the
  // nodes have to be numbered again.
  virtual bool BreakCycles(Cycles* cycles) = 0;
  // The last resort, when BreakCycles of no source found anything to remove.
  virtual bool WithdrawFrom(const Cycles& cycles) = 0;

  // Nodes that a node of this source reads.
  virtual std::vector<int32_t> OperandsOf(int32_t local) const = 0;
  // FingerprintKernel of the node; empty where nothing is built yet.
  virtual std::string KernelOf(int32_t local) const = 0;
  // The rule that proposes the node; empty where there is none.
  virtual absl::string_view RuleOf(int32_t local) const = 0;
  // Calls `visit` for each computation of the captured module that the node
  // calls, directly or from computations that the source adds. Leaves out added
  // computations in `seen`, and adds those that it goes through.
  virtual void VisitCalled(
      int32_t local, absl::flat_hash_set<const xla::HloComputation*>* seen,
      absl::FunctionRef<void(const xla::HloComputation*)> visit) const = 0;
  // Adds the instructions of the node to the module of `result`, and those that
  // come with it. The nodes that it reads are there.
  virtual absl::Status Build(int32_t local, Materializer* result) const = 0;

  // The module that the pass left, or null: only an XLA pass that ran leaves
  // one. Every indivisible source has it.
  virtual const xla::HloModule* Result() const = 0;

 protected:
  RewriteSource(int32_t number, int32_t pass,
                std::vector<std::string> xla_passes)
      : number_(number), pass_(pass), xla_passes_(std::move(xla_passes)) {}

  void set_indivisible_reason(std::string reason) {
    indivisible_reason_ = std::move(reason);
  }
  // Number of the node `local`, and of the first one.
  int32_t NodeAt(int32_t local) const { return first_node_ + local; }
  void set_first_node(int32_t node) { first_node_ = node; }

 private:
  const int32_t number_;
  const int32_t pass_;
  const std::vector<std::string> xla_passes_;
  int32_t first_node_ = 0;
  std::string indivisible_reason_;
};

}  // namespace hloenv
