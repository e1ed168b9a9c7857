// SPDX-License-Identifier: Apache-2.0
// A run of one pass on a clone, compared with the original.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "hlo/analysis.h"
#include "hlo/module.h"
#include "passes/pipeline.h"
#include "rewrite/compared.h"
#include "rewrite/use.h"

namespace hloenv {

class Recorder;

// A pass to run on a shadow, with the name that its choices show.
struct ShadowPass {
  std::string name;
  std::function<absl::StatusOr<bool>(xla::HloModule* module)> run;
};

// Creates pass objects for `spec`. Errors: those of MakeRunnable.
absl::StatusOr<ShadowPass> MakeShadowPass(const PipelineSpec& spec);

// A use that read `original` and, after the pass, reads `replacement`.
struct RewiredUse {
  Use use;
  int32_t original;
  const xla::HloInstruction* replacement;  // in the shadow
};

class Shadow {
 public:
  // Clones `module`, which must outlive the result, runs `pass` on the clone
  // and compares. PassError when the pass fails.
  static absl::StatusOr<std::unique_ptr<Shadow>> Run(const Module& module,
                                                     const ShadowPass& pass);

  const std::string& name() const { return name_; }
  bool changed() const { return changed_; }
  // Of the original; valid only if changed().
  const Analysis& analysis() const { return *analysis_; }
  const xla::HloModule& hlo() const { return *hlo_; }

  // Why the changes of this pass cannot be separated; empty when they can.
  const std::string& indivisible_reason() const { return indivisible_reason_; }
  bool is_indivisible() const { return !indivisible_reason_.empty(); }

  // PassError if the pass made a valid module invalid.
  const absl::Status& validity() const { return validity_; }

  // Sorted by use. Empty when `is_indivisible()`.
  const std::vector<RewiredUse>& rewired_uses() const { return rewired_uses_; }

  // The original of a shadow instruction that is unchanged except for rewired
  // operands; -1 for a new instruction.
  int32_t OriginOf(const xla::HloInstruction* instruction) const {
    return origin_[index_->Of(instruction)];
  }
  // The original of a shadow computation with the same parameters and result,
  // or null.
  const xla::HloComputation* OriginOf(
      const xla::HloComputation* computation) const;

  // Makes the image of `original` count as a new instruction, which
  // replacements read instead of the original. For breaking cycles.
  void Detach(int32_t original);
  // As Detach, for those of the originals that survive. Finds the rewired uses
  // again; returns whether any survives.
  bool DetachAll(const std::vector<int32_t>& originals);
  // Finds the rewired uses; call again after Detach.
  void CollectRewiredUses();

 private:
  Shadow() = default;

  void MapImages(const xla::HloCloneContext& images);
  void FindRewiredUses();
  void CollectUsesOfRewritten();

  // shadow_compare.cc
  void Compare(Recorder* recorder);
  std::string ModuleLevelChange() const;
  void ForgetRemoved(const Recorder& recorder);
  void CompareComputations(Recorder* recorder);
  bool CompareComputation(int32_t number, Recorder* recorder);
  bool KeepsItsSignature(int32_t number) const;
  void FindSurvivors(int32_t number, std::vector<int32_t>* rewired,
                     std::vector<int32_t>* reshaped);
  void CompareOperands(int32_t number, int32_t i, Recorder* recorder);
  bool CompareRoot(int32_t number, Recorder* recorder);
  bool SameControl(const xla::HloInstruction& original,
                   const xla::HloInstruction& image) const;
  bool HasChanges(int32_t number, size_t num_rewired) const;
  bool KeepsItsCallers(int32_t number) const;
  void DropNewValues();
  std::string ReplacedEffect() const;
  void FindOrigins();
  std::string AddedEffect() const;

  // shadow_comparisons.cc
  using RewiredOperands =
      absl::flat_hash_map<std::pair<int32_t, int64_t>, const RewiredUse*>;
  // Detaches what picks from one new value for both sides of a comparison, if
  // not all of it would be rewired by one decision. Returns whether any was.
  bool KeepComparisonsWhole();
  bool DetachSplit(const Picks& picks, const RewiredOperands& rewired);

  // A use whose shadow operand is not the image of its original operand.
  struct RewiredEdge {
    Use use;
    int32_t original;
    const xla::HloInstruction* replacement;
    // The pass may have changed the original in place before it declared the
    // two equal.
    bool is_doubtful;
  };

  const Analysis* analysis_ = nullptr;  // null if the pass changed nothing
  std::string name_;
  bool changed_ = false;
  std::string indivisible_reason_;
  absl::Status validity_;
  std::unique_ptr<xla::HloModule> hlo_;
  std::unique_ptr<InstructionIndex> index_;  // of the shadow
  // By original instruction number: its image, null if that was removed.
  std::vector<const xla::HloInstruction*> image_;
  // The images at the time of cloning. Some are freed, so only compare the
  // pointers.
  std::vector<const xla::HloInstruction*> original_image_;
  std::vector<uint8_t> survives_;  // by original instruction number
  // By original computation number: its image, null if the image's parameters
  // or result differ from the original's.
  std::vector<const xla::HloComputation*> computation_image_;
  std::vector<int32_t> origin_;  // by shadow instruction number
  std::vector<RewiredEdge> rewired_edges_;
  std::vector<RewiredUse> rewired_uses_;
};

}  // namespace hloenv
