// SPDX-License-Identifier: Apache-2.0
#include "rewrite/shadow.h"

#include "hlo/read.h"
#include "rewrite/recorder.h"
#include "support/quiet.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

}  // namespace

absl::StatusOr<ShadowPass> MakeShadowPass(const PipelineSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(std::shared_ptr<xla::HloPassInterface> pass,
                          MakeRunnable(spec));
  return ShadowPass{spec.name,
                    [pass](HloModule* module) { return pass->Run(module); }};
}

absl::StatusOr<std::unique_ptr<Shadow>> Shadow::Run(const Module& module,
                                                    const ShadowPass& pass) {
  QuietScope scope;
  HLOENV_RETURN_IF_ERROR(InstallRecorderHooks());
  std::unique_ptr<Shadow> shadow(new Shadow);
  shadow->name_ = pass.name;
  auto [clone, images] = module.hlo().CloneWithContext(/*suffix=*/"");
  shadow->hlo_ = std::move(clone);
  const int64_t num_instructions = shadow->hlo_->instruction_count();
  Recorder recorder(shadow->hlo_.get());
  absl::StatusOr<bool> changed = pass.run(shadow->hlo_.get());
  recorder.Stop();
  if (!changed.ok()) {
    return Annotate(changed.status(), kPassError,
                    absl::StrCat("pass '", pass.name, "' failed on module '",
                                 module.name(), "'"));
  }
  // `changed` alone is not reliable: float-normalization gives each all-reduce
  // its own reducer and returns false. A pass is assumed to have changed
  // nothing if it returns false and did not replace, remove or add an
  // instruction; the invariant tests check that.
  shadow->changed_ = *changed || !recorder.is_empty() ||
                     shadow->hlo_->instruction_count() != num_instructions;
  if (!shadow->changed_) return shadow;
  // Frees removed instructions and makes ids dense. Calls from this library are
  // not hooked, so notify the recorder.
  shadow->hlo_->Cleanup();
  recorder.OnComputationsFreed();
  shadow->validity_ = CheckStillValid(module, shadow->hlo_.get(), pass.name);
  shadow->analysis_ = &module.analysis();
  shadow->MapImages(*images);
  shadow->Compare(&recorder);
  return shadow;
}

// Looks up the originals in order, because iteration over the context is in
// hash order.
void Shadow::MapImages(const xla::HloCloneContext& images) {
  const InstructionIndex& index = analysis_->index;
  image_.assign(index.size(), nullptr);
  computation_image_.assign(index.computations().size(), nullptr);
  for (size_t c = 0; c < index.computations().size(); ++c) {
    const HloComputation* original = index.computations()[c];
    computation_image_[c] = images.FindComputation(original);
    if (computation_image_[c] == nullptr) continue;
    const int32_t first = index.First(original);
    for (const HloInstruction* instruction : original->instructions()) {
      image_[first + instruction->local_id()] =
          images.FindInstruction(instruction);
    }
  }
}

const HloComputation* Shadow::OriginOf(
    const HloComputation* computation) const {
  for (size_t i = 0; i < computation_image_.size(); ++i) {
    if (computation_image_[i] == computation) {
      return analysis_->index.computations()[i];
    }
  }
  return nullptr;
}

void Shadow::Detach(int32_t original) {
  survives_[original] = 0;
  origin_[index_->Of(image_[original])] = -1;
}

bool Shadow::DetachAll(const std::vector<int32_t>& originals) {
  bool changed = false;
  for (int32_t original : originals) {
    if (survives_[original] == 0) continue;
    Detach(original);
    changed = true;
  }
  if (changed) CollectRewiredUses();
  return changed;
}

void Shadow::CollectRewiredUses() {
  do FindRewiredUses();
  while (KeepComparisonsWhole());
}

void Shadow::FindRewiredUses() {
  rewired_uses_.clear();
  for (const RewiredEdge& edge : rewired_edges_) {
    if (edge.use.user != Use::kRoot && survives_[edge.use.user] == 0) continue;
    rewired_uses_.push_back({edge.use, edge.original, edge.replacement});
  }
  CollectUsesOfRewritten();
  std::sort(
      rewired_uses_.begin(), rewired_uses_.end(),
      [](const RewiredUse& a, const RewiredUse& b) { return a.use < b.use; });
}

// Uses of operands that were changed in place.
void Shadow::CollectUsesOfRewritten() {
  for (size_t c = 0; c < computation_image_.size(); ++c) {
    if (computation_image_[c] == nullptr) continue;
    const HloComputation* original = analysis_->index.computations()[c];
    const int32_t first = analysis_->index.First(original);
    for (const HloInstruction* operand : original->instructions()) {
      const int32_t o = first + operand->local_id();
      if (survives_[o] != 0 || image_[o] == nullptr) continue;
      for (const HloInstruction* user : operand->users()) {
        const int32_t u = first + user->local_id();
        if (survives_[u] == 0) continue;
        for (int64_t k = 0; k < user->operand_count(); ++k) {
          if (user->operand(k) == operand &&
              image_[u]->operand(k) == image_[o]) {
            rewired_uses_.push_back(
                {Use{static_cast<int32_t>(c), u, static_cast<int32_t>(k)}, o,
                 image_[o]});
          }
        }
      }
      if (original->root_instruction() == operand &&
          computation_image_[c]->root_instruction() == image_[o]) {
        rewired_uses_.push_back(
            {Use{static_cast<int32_t>(c), Use::kRoot, 0}, o, image_[o]});
      }
    }
  }
}

}  // namespace hloenv
