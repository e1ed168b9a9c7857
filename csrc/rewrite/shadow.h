// SPDX-License-Identifier: Apache-2.0
// A run of one pass on a clone, compared with the original.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/analysis.h"
#include "hlo/module.h"
#include "passes/pipeline.h"
#include "rewrite/use.h"

namespace hloenv {

class Recorder;

// What a shadow runs, under the name that choices show for it.
struct ShadowPass {
  std::string name;
  std::function<absl::StatusOr<bool>(xla::HloModule* module)> run;
};

// New pass objects for `spec`. The errors of MakeRunnable.
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
  // Of the original; only if the pass changed something.
  const Analysis& analysis() const { return *analysis_; }
  const xla::HloModule& hlo() const { return *hlo_; }

  // Why the changes of this pass cannot be separated; empty when they can.
  const std::string& indivisible_reason() const { return indivisible_reason_; }
  bool is_indivisible() const { return !indivisible_reason_.empty(); }

  // Why the pass makes an invalid module of a valid one; empty if it does not.
  const std::string& invalid_reason() const { return invalid_reason_; }

  // Sorted by use. Empty when `is_indivisible()`.
  const std::vector<RewiredUse>& rewired_uses() const { return rewired_uses_; }

  // The original that a shadow instruction stands for, unchanged but for the
  // rewired uses at its operands; -1 for a new instruction.
  int32_t OriginOf(const xla::HloInstruction* instruction) const {
    return origin_[index_->Of(instruction)];
  }
  // The original that stands for a shadow computation with the same parameters
  // and result, or null.
  const xla::HloComputation* OriginOf(
      const xla::HloComputation* computation) const;

  // From now on the image of `original` counts as a new instruction, and
  // replacements read it instead of the original. For breaking cycles.
  void Detach(int32_t original);
  // Finds the rewired uses again, after calls of Detach.
  void CollectRewiredUses();

 private:
  Shadow() = default;

  void MapImages(const xla::HloCloneContext& images);
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
  void DropOtherValues();
  std::string ReplacedEffect() const;
  void FindOrigins();
  std::string AddedEffect() const;

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
  std::string invalid_reason_;
  std::unique_ptr<xla::HloModule> hlo_;
  std::unique_ptr<InstructionIndex> index_;  // of the shadow
  // By original instruction number: its image, null once that is removed.
  std::vector<const xla::HloInstruction*> image_;
  // The same as they were cloned; only compared, for some are freed by now.
  std::vector<const xla::HloInstruction*> original_image_;
  std::vector<uint8_t> survives_;  // by original instruction number
  // By original computation number: its image, null unless the image takes and
  // gives the same.
  std::vector<const xla::HloComputation*> computation_image_;
  std::vector<int32_t> origin_;  // by shadow instruction number
  std::vector<RewiredEdge> rewired_edges_;
  std::vector<RewiredUse> rewired_uses_;
};

}  // namespace hloenv
