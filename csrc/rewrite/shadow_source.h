// SPDX-License-Identifier: Apache-2.0
// The rewrites that an XLA pass made on a shadow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "rewrite/shadow.h"
#include "rewrite/source.h"

namespace hloenv {

// Each rewired use of the shadow is an offer. Its nodes are the new
// instructions of the shadow below those uses, down to originals.
class ShadowSource final : public RewriteSource {
 public:
  ShadowSource(int32_t number, int32_t pass,
               std::vector<std::string> xla_passes,
               std::unique_ptr<Shadow> shadow);

  void NumberNodes(NodeTable* nodes, EqualNodes* equal_nodes) override;
  void AddOffers(Offers* offers) const override;
  bool BreakCycles(Cycles* cycles) override;
  bool WithdrawFrom(const Cycles& cycles) override;
  bool KeepWhole(int32_t node, const std::vector<int32_t>& readers) override;
  std::vector<int32_t> OperandsOf(int32_t local) const override;
  bool IsFusion(int32_t local) const override;
  std::string KernelOf(int32_t local) const override;
  absl::string_view RuleOf(int32_t local) const override;
  void VisitCalled(
      int32_t local, absl::flat_hash_set<const xla::HloComputation*>* seen,
      absl::FunctionRef<void(const xla::HloComputation*)> visit) const override;
  absl::Status Build(int32_t local, Materializer* result) const override;
  const xla::HloModule* Result() const override { return &shadow_->hlo(); }

 private:
  bool IsNumbered(const xla::HloInstruction* instruction) const {
    return shadow_->OriginOf(instruction) >= 0 ||
           node_of_.contains(instruction);
  }
  // The node of an instruction of the shadow: an original or a new one.
  int32_t NodeOf(const xla::HloInstruction* instruction) const {
    const int32_t origin = shadow_->OriginOf(instruction);
    return origin >= 0 ? origin : node_of_.at(instruction);
  }
  // The original of `computation`, which is in the shadow: a node calls the
  // original instead. Null where each caller has a computation of its own, as
  // fusions and async operations do.
  const xla::HloComputation* CalledOrigin(
      const xla::HloComputation* computation) const;

  std::string NumberBelowRewiredUses(NodeTable* nodes, EqualNodes* equal_nodes);
  int32_t NumberInstruction(const xla::HloInstruction* instruction,
                            NodeTable* nodes, EqualNodes* equal_nodes,
                            absl::flat_hash_set<int32_t>* taken);
  bool IsEqual(const xla::HloInstruction& instruction,
               const EqualNodes::Entry& other) const;
  std::vector<int32_t> OriginalsReadIn(const Cycles& cycles) const;
  void MapComputations(const Materializer& result,
                       xla::HloCloneContext* context) const;

  std::unique_ptr<Shadow> shadow_;
  std::vector<const xla::HloInstruction*> instructions_;  // by local number
  // Nodes of new instructions of the shadow; the node of an earlier source if
  // that has an equal one.
  absl::flat_hash_map<const xla::HloInstruction*, int32_t> node_of_;
};

}  // namespace hloenv
