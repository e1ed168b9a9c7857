// SPDX-License-Identifier: Apache-2.0
// The sources of a capture's rewrites.
//
// A source is a run of an XLA pass on a clone (ShadowSource) or the proposals
// of a candidate pass (ProposalSource). Both offer replacements of values of
// the captured module, whose new instructions are nodes of one NodeTable.
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
  kPass,         // the module is replaced
};
absl::string_view AlternativeKindName(AlternativeKind kind);

// A value that an alternative may replace, at some or all of its uses.
struct Site {
  int32_t original;            // instruction number
  std::vector<Use> uses;       // ascending
  std::vector<int32_t> nodes;  // node of each choice above 0
};

struct Alternative {
  AlternativeKind kind;
  std::vector<Site> sites;
  // For each choice above 0, the sources that offer it, ascending.
  std::vector<std::vector<int32_t>> sources;

  int64_t num_choices() const {
    return static_cast<int64_t>(sources.size()) + 1;
  }
};

// `use`, which reads `original`, may read `node` instead.
struct Offer {
  Use use;
  int32_t original;
  int32_t node;
  int32_t source;
};

// All that the sources offer, in their order.
struct Offers {
  // Single uses; several uses of one value may become one alternative.
  std::vector<Offer> single;
  // Values that are replaced together. Each alternative has one choice above 0.
  std::vector<Alternative> grouped;
};

// Values that could depend on themselves under some decisions.
struct Cycles {
  // By node: the number of its cycle, -1 outside of cycles.
  std::vector<int32_t> component;
  // Cycles with one kept proposal; see ProposalSource::BreakCycles.
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
  // Why the rewrites are indivisible; empty if they are not. An indivisible
  // source has no nodes and no offers.
  const std::string& indivisible_reason() const { return indivisible_reason_; }
  bool is_indivisible() const { return !indivisible_reason_.empty(); }

  // Adds the nodes of this source to `nodes`; may make the source indivisible.
  // Called for all sources in order, and again after BreakCycles, with the same
  // `equal_nodes`.
  virtual void NumberNodes(NodeTable* nodes, EqualNodes* equal_nodes) = 0;

  // Adds the offers. This and all functions below require NumberNodes.
  virtual void AddOffers(Offers* offers) const = 0;

  // Changes or removes rewrites that close `cycles`. Returns whether any
  // changed; then the nodes must be numbered again.
  virtual bool BreakCycles(Cycles* cycles) = 0;
  // Withdraws proposals in `cycles`. Called if BreakCycles of no source changed
  // anything.
  virtual bool WithdrawFrom(const Cycles& cycles) = 0;

  // `node`, which takes the place of some of `readers` or reads some, also
  // reads a value that another decision may replace for them: they pick from
  // it, and the last compares what they picked with it. Changes or removes the
  // rewrite, so that old bits are not compared with new ones. Returns whether
  // it did: then the nodes must be numbered again.
  virtual bool KeepWhole(int32_t node, const std::vector<int32_t>& readers) = 0;

  // Nodes that a node of this source reads.
  virtual std::vector<int32_t> OperandsOf(int32_t local) const = 0;
  // Whether the node reads what accepted nodes like this are instead of its
  // operands: Proposal::reads_decided.
  virtual bool ReadsDecided(int32_t) const { return false; }
  // Whether the node is a fusion: it computes what was there before.
  virtual bool IsFusion(int32_t local) const = 0;
  // FingerprintKernel of the node; empty if its instruction is not built yet.
  virtual std::string KernelOf(int32_t local) const = 0;
  // The rule that proposes the node; empty if there is none.
  virtual absl::string_view RuleOf(int32_t local) const = 0;
  // Calls `visit` for each computation of the captured module that the node
  // calls, directly or through computations that the source adds. Skips added
  // computations in `seen`, and adds the visited ones to it.
  virtual void VisitCalled(
      int32_t local, absl::flat_hash_set<const xla::HloComputation*>* seen,
      absl::FunctionRef<void(const xla::HloComputation*)> visit) const = 0;
  // Adds the instruction of the node to the module of `result`; a proposal adds
  // those of all its nodes. The operands must be built.
  virtual absl::Status Build(int32_t local, Materializer* result) const = 0;

  // The module after the XLA pass; null for a candidate pass.
  virtual const xla::HloModule* Result() const = 0;

 protected:
  RewriteSource(int32_t number, int32_t pass,
                std::vector<std::string> xla_passes)
      : number_(number), pass_(pass), xla_passes_(std::move(xla_passes)) {}

  void set_indivisible_reason(std::string reason) {
    indivisible_reason_ = std::move(reason);
  }
  // The number of the node `local` in the node table.
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
