// SPDX-License-Identifier: Apache-2.0
// Adds replacements to a copy of the captured module.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "hlo/analysis.h"
#include "hlo/module.h"
#include "rewrite/node_table.h"
#include "rewrite/use.h"
#include "xla/hlo/ir/hlo_clone_context.h"

namespace hloenv {

// The module and the table must outlive the object.
class Materializer {
 public:
  // Works on a new clone of `original`.
  Materializer(const Module& original, const NodeTable& nodes);
  // Works in place on `module`, of which `original` is a clone; `images` maps
  // from `original` to `module`.
  Materializer(const Module& original, const NodeTable& nodes,
               xla::HloModule* module,
               std::unique_ptr<xla::HloCloneContext> images);

  xla::HloModule* hlo() { return hlo_; }
  // Returns the clone; null if the object works in place.
  std::unique_ptr<xla::HloModule> Take() { return std::move(owned_); }

  // Marks `node` and all new nodes below it for BuildNeeded.
  void Need(int32_t node);
  absl::Status BuildNeeded();

  // The instruction of `node`; null for a new node that is not built.
  xla::HloInstruction* Get(int32_t node) const {
    return nodes_.IsOriginal(node)
               ? ImageOf(original_.analysis().index.at(node))
               : built_[node - nodes_.num_originals()];
  }
  // Null for unused numbers and in computations without callers.
  const xla::HloInstruction* FindImage(int32_t original) const;

  xla::HloInstruction* Read(const Use& use) const;
  absl::Status Rewire(const Use& use, xla::HloInstruction* value);

  // For RewriteSource::Build.

  xla::HloInstruction* ImageOf(const xla::HloInstruction* original) const {
    return images_->GetInstruction(original);
  }
  xla::HloComputation* ImageOf(const xla::HloComputation* original) const {
    return images_->GetComputation(original);
  }
  // Maps computations of the source's shadow to those that its nodes call in
  // hlo(); `map` fills it on the first call.
  xla::HloCloneContext* ContextOf(
      const RewriteSource* source,
      absl::FunctionRef<void(xla::HloCloneContext*)> map);
  void SetBuilt(int32_t node, xla::HloInstruction* instruction) {
    built_[node - nodes_.num_originals()] = instruction;
  }

 private:
  xla::HloComputation* ComputationImage(int32_t number) const {
    return ImageOf(original_.analysis().index.computations()[number]);
  }

  const Module& original_;
  const NodeTable& nodes_;
  std::unique_ptr<xla::HloModule> owned_;  // null in place
  xla::HloModule* hlo_;
  std::unique_ptr<xla::HloCloneContext> images_;
  std::vector<xla::HloInstruction*> built_;  // by new node
  std::vector<uint8_t> needed_;              // by new node
  absl::flat_hash_map<const RewriteSource*,
                      std::unique_ptr<xla::HloCloneContext>>
      contexts_;
};

}  // namespace hloenv
