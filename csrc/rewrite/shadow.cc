// SPDX-License-Identifier: Apache-2.0
#include "rewrite/shadow.h"

#include <tuple>

#include "rewrite/equivalence.h"
#include "rewrite/in_place.h"
#include "rewrite/recorder.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/service/hlo_verifier.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

// What XLA's verifier has against `after`, if it accepts `before`. (Some of
// XLA's passes do not expect fusions, and write invalid ones.)
std::string NewInvalidity(const Module& before, HloModule* after) {
  xla::HloVerifier verifier(/*layout_sensitive=*/false,
                            /*allow_mixed_precision=*/true);
  const absl::Status status = verifier.Run(after).status();
  if (status.ok() || !before.Verify().ok()) return "";
  return std::string(status.message());
}

}  // namespace

absl::StatusOr<ShadowPass> MakeShadowPass(const PipelineSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(std::shared_ptr<xla::HloPassInterface> pass,
                          MakeRunnable(spec));
  return ShadowPass{spec.name,
                    [pass](HloModule* module) { return pass->Run(module); }};
}

absl::StatusOr<std::unique_ptr<Shadow>> Shadow::Run(const Module& module,
                                                    const ShadowPass& pass) {
  QuietLogs quiet;
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
  // A pass that says that it changed nothing is believed, if it did not
  // replace, remove or add anything either (float-normalization gives each
  // all-reduce its own reducer and does not say so); the law tests find those
  // that lie.
  shadow->changed_ = *changed || !recorder.is_empty() ||
                     shadow->hlo_->instruction_count() != num_instructions;
  if (!shadow->changed_) return shadow;
  // Frees what the pass removed and makes ids dense. Our own calls do not go
  // through the library's GOT, so the recorder has to be told.
  shadow->hlo_->Cleanup();
  recorder.OnComputationsFreed();
  shadow->invalid_reason_ = NewInvalidity(module, shadow->hlo_.get());
  shadow->analysis_ = &module.analysis();
  shadow->MapImages(*images);
  shadow->Compare(&recorder);
  return shadow;
}

// Looks up the original's instructions one by one: their numbers are at hand,
// while the context's own order is that of a hash table.
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

std::string Shadow::ModuleLevelChange() const {
  const HloModule& before = analysis_->hlo;
  const HloModule& after = *hlo_;
  if (before.config().has_entry_computation_layout() !=
          after.config().has_entry_computation_layout() ||
      (before.config().has_entry_computation_layout() &&
       before.entry_computation_layout() != after.entry_computation_layout())) {
    return "it changes the entry layout";
  }
  if (before.input_output_alias_config().ToString() !=
          after.input_output_alias_config().ToString() ||
      before.buffer_donor_config().ToString() !=
          after.buffer_donor_config().ToString()) {
    return "it changes which inputs and outputs share memory";
  }
  if (before.has_schedule() || after.has_schedule()) {
    return "the module is scheduled, and parts of a rewrite have no place in "
           "the schedule";
  }
  const auto& left = before.frontend_attributes().map();
  const auto& right = after.frontend_attributes().map();
  if (left.size() != right.size()) return "it changes the module's attributes";
  for (const auto& [key, value] : left) {
    auto it = right.find(key);
    if (it == right.end() || it->second != value) {
      return "it changes the module's attributes";
    }
  }
  if (before.config().replica_count() != after.config().replica_count() ||
      before.config().num_partitions() != after.config().num_partitions()) {
    return "it changes the number of replicas or partitions";
  }
  return "";
}

bool Shadow::SameControl(const HloInstruction& original,
                         const HloInstruction& image) const {
  const auto& before = original.control_predecessors();
  const auto& after = image.control_predecessors();
  if (before.empty() && after.empty()) return true;
  if (before.size() != after.size()) return false;
  for (const HloInstruction* predecessor : before) {
    const HloInstruction* expected = image_[analysis_->index.Of(predecessor)];
    if (std::find(after.begin(), after.end(), expected) == after.end()) {
      return false;
    }
  }
  return true;
}

// Fills survives_ and rewired_edges_ for one computation. Returns false when
// the image does not take and give the same as the original any more, so that
// its callers have to change.
bool Shadow::CompareComputation(int32_t number, Recorder* recorder) {
  const HloComputation* original = analysis_->index.computations()[number];
  const HloComputation* image = computation_image_[number];
  const bool is_entry = original == analysis_->hlo.entry_computation();
  const int32_t first = analysis_->index.First(original);
  if (is_entry != (image == hlo_->entry_computation())) return false;
  if (original->num_parameters() != image->num_parameters()) return false;
  for (int64_t i = 0; i < original->num_parameters(); ++i) {
    const HloInstruction* parameter = original->parameter_instruction(i);
    if (image->parameter_instruction(i) !=
            image_[first + parameter->local_id()] ||
        !SameShape(parameter->shape(),
                   image->parameter_instruction(i)->shape())) {
      return false;
    }
  }
  const HloInstruction* root = original->root_instruction();
  const HloInstruction* image_root = image->root_instruction();
  if (!SameShape(root->shape(), image_root->shape())) return false;

  const auto same_computation = [this](const HloComputation* a,
                                       const HloComputation* b) {
    return computation_image_[analysis_->index.NumberOf(a)] == b;
  };
  std::vector<int32_t> rewired;   // survivors with another operand
  std::vector<int32_t> reshaped;  // still there, but of another shape
  for (const HloInstruction* instruction : original->instructions()) {
    const int32_t i = first + instruction->local_id();
    const HloInstruction* now = image_[i];
    // Dead code counts as gone: a pass may bring it back to life, and then what
    // it reads is what the pass left there.
    if (analysis_->is_live[i] == 0 || now == nullptr) continue;
    if (!SameInstruction(*instruction, analysis_->has_extras[i] != 0, *now,
                         same_computation) ||
        !SameControl(*instruction, *now)) {
      if (!SameShape(instruction->shape(), now->shape())) reshaped.push_back(i);
      continue;
    }
    survives_[i] = 1;
    for (int64_t k = 0; k < instruction->operand_count(); ++k) {
      if (now->operand(k) !=
          image_[first + instruction->operand(k)->local_id()]) {
        rewired.push_back(i);
        break;
      }
    }
  }
  // Users of what changed its shape in place mean something else now.
  for (int32_t o : reshaped) {
    for (const HloInstruction* user : analysis_->index.at(o)->users()) {
      const int32_t u = first + user->local_id();
      if (survives_[u] == 0) continue;
      for (const HloInstruction* operand : image_[u]->operands()) {
        if (operand == image_[o]) survives_[u] = 0;
      }
    }
  }
  for (int32_t i : rewired) {
    if (survives_[i] == 0) continue;
    const HloInstruction* instruction = analysis_->index.at(i);
    const size_t num_rewired = rewired_edges_.size();
    for (int64_t k = 0; k < instruction->operand_count(); ++k) {
      const HloInstruction* before = instruction->operand(k);
      const HloInstruction* after = image_[i]->operand(k);
      const int32_t o = first + before->local_id();
      if (after == image_[o]) continue;
      if (!SameShape(before->shape(), after->shape()) ||
          !recorder->DeclaredEqual(original_image_[o], after)) {
        // Nobody said that the two operands are equal: the pass changed this
        // instruction in place, and only its own value is the same.
        survives_[i] = 0;
        rewired_edges_.resize(num_rewired);
        break;
      }
      rewired_edges_.push_back({Use{number, i, static_cast<int32_t>(k)}, o,
                                after,
                                recorder->MayHaveChanged(original_image_[o])});
    }
  }
  const int32_t r = first + root->local_id();
  if (image_root != image_[r]) {
    if (!is_entry && !recorder->DeclaredEqual(original_image_[r], image_root)) {
      return false;
    }
    rewired_edges_.push_back(
        {Use{number, Use::kRoot, 0}, r, image_root, false});
  } else if (survives_[r] == 0 && !is_entry) {
    // A computation whose result changed in place may be right only together
    // with its caller, or with the condition of its loop.
    return false;
  }
  return true;
}

// Whether the pass changed anything in a computation that was just compared.
bool Shadow::HasChanges(int32_t number, size_t num_rewired) const {
  if (rewired_edges_.size() != num_rewired) return true;
  const HloComputation* original = analysis_->index.computations()[number];
  const int32_t first = analysis_->index.First(original);
  for (const HloInstruction* instruction : original->instructions()) {
    const int32_t i = first + instruction->local_id();
    if (analysis_->is_live[i] != 0 && survives_[i] == 0) return true;
  }
  return false;
}

// Whether all that called a computation still do. Otherwise what the pass did
// inside may be right for those callers only that are left.
bool Shadow::KeepsItsCallers(int32_t number) const {
  const HloComputation* original = analysis_->index.computations()[number];
  const HloComputation* image = computation_image_[number];
  for (const auto& [caller, count] : original->caller_computations()) {
    const int32_t first = analysis_->index.First(caller);
    for (const HloInstruction* instruction : caller->instructions()) {
      const int32_t i = first + instruction->local_id();
      if (analysis_->is_live[i] == 0) continue;
      const auto& called = instruction->called_computations();
      for (size_t k = 0; k < called.size(); ++k) {
        if (called[k] != original) continue;
        const HloInstruction* now = image_[i];
        if (now == nullptr || now->called_computations().size() <= k ||
            now->called_computations()[k] != image) {
          return false;
        }
      }
    }
  }
  return true;
}

void Shadow::Compare(Recorder* recorder) {
  index_ = std::make_unique<InstructionIndex>(*hlo_);
  origin_.assign(index_->size(), -1);
  indivisible_reason_ = ModuleLevelChange();
  if (is_indivisible()) return;
  original_image_ = image_;
  survives_.assign(analysis_->index.size(), 0);
  const bool any_removed = recorder->removed_any();
  for (size_t c = 0; c < computation_image_.size(); ++c) {
    const HloComputation*& image = computation_image_[c];
    if (analysis_->is_live_computation[c] == 0 ||
        (image != nullptr && recorder->WasRemoved(image))) {
      image = nullptr;
    }
    const HloComputation* original = analysis_->index.computations()[c];
    const int32_t first = analysis_->index.First(original);
    for (const HloInstruction* instruction : original->instructions()) {
      const HloInstruction*& entry = image_[first + instruction->local_id()];
      if (image == nullptr || (any_removed && recorder->WasRemoved(entry))) {
        entry = nullptr;
      }
    }
  }
  // A computation that turns out unstable changes its callers, which may make
  // theirs unstable in turn. Callees first, so that one round is nearly always
  // enough.
  for (int32_t number : analysis_->post_order) {
    if (computation_image_[number] == nullptr) continue;
    const size_t num_rewired = rewired_edges_.size();
    if (CompareComputation(number, recorder) &&
        (!HasChanges(number, num_rewired) || KeepsItsCallers(number))) {
      continue;
    }
    rewired_edges_.resize(num_rewired);
    computation_image_[number] = nullptr;
    const HloComputation* original = analysis_->index.computations()[number];
    const int32_t first = analysis_->index.First(original);
    for (const HloInstruction* instruction : original->instructions()) {
      survives_[first + instruction->local_id()] = 0;
    }
  }
  if (computation_image_[analysis_->index.NumberOf(
          analysis_->hlo.entry_computation())] == nullptr) {
    indivisible_reason_ =
        "it changes the parameters or the result of the entry";
    return;
  }
  DropOtherValues();
  for (int32_t effect : analysis_->effects) {
    if (survives_[effect] == 0) {
      indivisible_reason_ = absl::StrCat(
          "it replaces '", analysis_->index.at(effect)->name(),
          "', which has side effects that must happen exactly once");
      return;
    }
  }
  for (size_t c = 0; c < computation_image_.size(); ++c) {
    if (computation_image_[c] == nullptr) continue;
    const HloComputation* original = analysis_->index.computations()[c];
    const int32_t first = analysis_->index.First(original);
    const int32_t image_first = index_->First(computation_image_[c]);
    for (const HloInstruction* instruction : original->instructions()) {
      const int32_t i = first + instruction->local_id();
      if (survives_[i] != 0) origin_[image_first + image_[i]->local_id()] = i;
    }
  }
  // No use leads to an effect that nothing reads, as where a dead collective
  // gets a channel.
  for (const HloComputation* image : computation_image_) {
    if (image == nullptr) continue;
    for (const HloInstruction* instruction : image->instructions()) {
      if (OriginOf(instruction) < 0 && instruction->HasSideEffect()) {
        indivisible_reason_ = absl::StrCat(
            "it adds '", instruction->name(),
            "', which has side effects that must happen exactly once");
        return;
      }
    }
  }
  CollectRewiredUses();
}

// Takes survivors that hold values of the pass's own for new instructions.
void Shadow::DropOtherValues() {
  absl::flat_hash_set<std::pair<int32_t, int64_t>> rewired;
  std::vector<std::vector<int32_t>> doubtful(computation_image_.size());
  for (const RewiredEdge& edge : rewired_edges_) {
    rewired.insert({edge.use.user, edge.use.operand});
    if (edge.is_doubtful) {
      doubtful[edge.use.computation].push_back(edge.use.user);
    }
  }
  const auto same_computation = [this](const HloComputation* a,
                                       const HloComputation* b) {
    return computation_image_[analysis_->index.NumberOf(a)] == b ||
           a->Equal(*b, /*is_layout_sensitive=*/true);
  };
  for (size_t c = 0; c < computation_image_.size(); ++c) {
    if (computation_image_[c] == nullptr) continue;
    const std::vector<int32_t> others = SurvivorsOfOtherValue(
        {*analysis_, static_cast<int32_t>(c), computation_image_[c], image_,
         survives_, rewired, doubtful[c], same_computation});
    for (int32_t other : others) survives_[other] = 0;
  }
}

void Shadow::Detach(int32_t original) {
  survives_[original] = 0;
  origin_[index_->Of(image_[original])] = -1;
}

void Shadow::CollectRewiredUses() {
  rewired_uses_.clear();
  for (const RewiredEdge& edge : rewired_edges_) {
    if (edge.use.user != Use::kRoot && survives_[edge.use.user] == 0) continue;
    rewired_uses_.push_back({edge.use, edge.original, edge.replacement});
  }
  // Operands that are still in place, but were rewritten there.
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
  std::sort(
      rewired_uses_.begin(), rewired_uses_.end(),
      [](const RewiredUse& a, const RewiredUse& b) { return a.use < b.use; });
}

}  // namespace hloenv
