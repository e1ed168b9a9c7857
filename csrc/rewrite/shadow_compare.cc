// SPDX-License-Identifier: Apache-2.0
//
// Compares a shadow with its original: finds the instructions that the pass did
// not change, and the uses that it rewired.
//
//   module                        shadow of algsimp
//   p = f32[] parameter(0)        p
//   two = f32[] constant(2)       two, removed
//   d = f32[] divide(p, two)      d, removed
//                                 half = f32[] constant(0.5)
//                                 m = f32[] multiply(p, half)
//   ROOT n = f32[] negate(d)      ROOT n = f32[] negate(m)
//
// An original survives if its image was not removed and has the same opcode,
// shape and attributes: p and n. If an operand of a survivor is no longer the
// image of the original's operand, the use is rewired: operand 0 of n, from d
// to m. This is correct only because the pass declared d and m equal when it
// replaced d with m (see Recorder), so n has the same value with either
// operand. An instruction with another operand that was not declared equal has
// another value, and is part of a replacement.
#include "absl/algorithm/container.h"
#include "rewrite/equivalence.h"
#include "rewrite/in_place.h"
#include "rewrite/recorder.h"
#include "rewrite/shadow.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

void Shadow::Compare(Recorder* recorder) {
  index_ = std::make_unique<InstructionIndex>(*hlo_);
  origin_.assign(index_->size(), -1);
  indivisible_reason_ = ModuleLevelChange();
  if (is_indivisible()) return;
  original_image_ = image_;
  survives_.assign(analysis_->index.size(), 0);
  ForgetRemoved(*recorder);
  CompareComputations(recorder);
  if (computation_image_[analysis_->index.NumberOf(
          analysis_->hlo.entry_computation())] == nullptr) {
    indivisible_reason_ =
        "it changes the parameters or the result of the entry";
    return;
  }
  DropNewValues();
  indivisible_reason_ = ReplacedEffect();
  if (is_indivisible()) return;
  FindOrigins();
  indivisible_reason_ = AddedEffect();
  if (is_indivisible()) return;
  CollectRewiredUses();
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
    return "it changes the aliasing of inputs and outputs";
  }
  if (before.has_schedule() || after.has_schedule()) {
    return "the module is scheduled, and its schedule does not contain the new "
           "instructions";
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

// Sets removed images and those of dead computations to null.
void Shadow::ForgetRemoved(const Recorder& recorder) {
  const bool any_removed = recorder.removed_any();
  for (size_t c = 0; c < computation_image_.size(); ++c) {
    const HloComputation*& image = computation_image_[c];
    if (analysis_->is_live_computation[c] == 0 ||
        (image != nullptr && recorder.WasRemoved(image))) {
      image = nullptr;
    }
    const HloComputation* original = analysis_->index.computations()[c];
    const int32_t first = analysis_->index.First(original);
    for (const HloInstruction* instruction : original->instructions()) {
      const HloInstruction*& entry = image_[first + instruction->local_id()];
      if (image == nullptr || (any_removed && recorder.WasRemoved(entry))) {
        entry = nullptr;
      }
    }
  }
}

// A computation whose signature changed also changes its callers, so callees
// come first.
void Shadow::CompareComputations(Recorder* recorder) {
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
}

// Fills survives_ and rewired_edges_ for one computation. Returns false if
// parameters or result of the image differ from the original's, so that its
// callers are changed too.
bool Shadow::CompareComputation(int32_t number, Recorder* recorder) {
  if (!KeepsItsSignature(number)) return false;
  const HloComputation* original = analysis_->index.computations()[number];
  const int32_t first = analysis_->index.First(original);
  std::vector<int32_t> rewired;   // survivors with another operand
  std::vector<int32_t> reshaped;  // not removed, but with another shape
  FindSurvivors(number, &rewired, &reshaped);
  // Users of an operand whose shape changed in place have another meaning.
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
    if (survives_[i] != 0) CompareOperands(number, i, recorder);
  }
  return CompareRoot(number, recorder);
}

bool Shadow::KeepsItsSignature(int32_t number) const {
  const HloComputation* original = analysis_->index.computations()[number];
  const HloComputation* image = computation_image_[number];
  const int32_t first = analysis_->index.First(original);
  const bool is_entry = original == analysis_->hlo.entry_computation();
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
  return SameShape(original->root_instruction()->shape(),
                   image->root_instruction()->shape());
}

void Shadow::FindSurvivors(int32_t number, std::vector<int32_t>* rewired,
                           std::vector<int32_t>* reshaped) {
  const HloComputation* original = analysis_->index.computations()[number];
  const int32_t first = analysis_->index.First(original);
  const auto same_computation = [this](const HloComputation* a,
                                       const HloComputation* b) {
    return computation_image_[analysis_->index.NumberOf(a)] == b;
  };
  for (const HloInstruction* instruction : original->instructions()) {
    const int32_t i = first + instruction->local_id();
    const HloInstruction* now = image_[i];
    // Dead code counts as removed: if a pass makes it live again, it is part of
    // the replacement.
    if (analysis_->is_live[i] == 0 || now == nullptr) continue;
    if (!SameInstruction(*instruction, analysis_->has_extras[i] != 0, *now,
                         same_computation) ||
        !SameControl(*instruction, *now)) {
      if (!SameShape(instruction->shape(), now->shape())) {
        reshaped->push_back(i);
      }
      continue;
    }
    survives_[i] = 1;
    for (int64_t k = 0; k < instruction->operand_count(); ++k) {
      if (now->operand(k) !=
          image_[first + instruction->operand(k)->local_id()]) {
        rewired->push_back(i);
        break;
      }
    }
  }
}

// Adds the rewired edges at the operands of survivor `i`. If an operand was not
// declared equal, `i` does not survive.
void Shadow::CompareOperands(int32_t number, int32_t i, Recorder* recorder) {
  const HloInstruction* instruction = analysis_->index.at(i);
  const int32_t first = i - instruction->local_id();
  const size_t num_rewired = rewired_edges_.size();
  for (int64_t k = 0; k < instruction->operand_count(); ++k) {
    const HloInstruction* before = instruction->operand(k);
    const HloInstruction* after = image_[i]->operand(k);
    const int32_t o = first + before->local_id();
    if (after == image_[o]) continue;
    if (!SameShape(before->shape(), after->shape()) ||
        !recorder->DeclaredEqual(original_image_[o], after)) {
      // The pass did not declare the two operands equal, so it changed this
      // instruction in place.
      survives_[i] = 0;
      rewired_edges_.resize(num_rewired);
      return;
    }
    rewired_edges_.push_back({Use{number, i, static_cast<int32_t>(k)}, o, after,
                              recorder->MayHaveChanged(original_image_[o])});
  }
}

// As CompareComputation, for the root alone.
bool Shadow::CompareRoot(int32_t number, Recorder* recorder) {
  const HloComputation* original = analysis_->index.computations()[number];
  const HloInstruction* image_root =
      computation_image_[number]->root_instruction();
  const bool is_entry = original == analysis_->hlo.entry_computation();
  const int32_t r = analysis_->index.First(original) +
                    original->root_instruction()->local_id();
  if (image_root != image_[r]) {
    if (!is_entry && !recorder->DeclaredEqual(original_image_[r], image_root)) {
      return false;
    }
    rewired_edges_.push_back(
        {Use{number, Use::kRoot, 0}, r, image_root, false});
    return true;
  }
  // A computation whose result changed in place may be correct only together
  // with changes of its caller, or of the condition of its loop.
  return survives_[r] != 0 || is_entry;
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

// Whether the pass changed the computation that was just compared.
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

// Whether all callers of a computation still call it. If not, the changes
// inside may be correct only for the remaining callers.
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

// Makes survivors with new values (in_place.h) count as new instructions.
void Shadow::DropNewValues() {
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
    const std::vector<int32_t> others = SurvivorsWithNewValue(
        {*analysis_, static_cast<int32_t>(c), computation_image_[c], image_,
         survives_, rewired, doubtful[c], same_computation});
    for (int32_t other : others) survives_[other] = 0;
  }
}

// Why a replaced instruction makes the changes indivisible; empty if none does.
std::string Shadow::ReplacedEffect() const {
  for (int32_t effect : analysis_->effects) {
    if (survives_[effect] == 0) {
      return absl::StrCat(
          "it replaces '", analysis_->index.at(effect)->name(),
          "', which has side effects that must happen exactly once");
    }
  }
  return "";
}

void Shadow::FindOrigins() {
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
}

static bool HasBuffer(const xla::Shape& shape) {
  return shape.IsTuple()
             ? absl::c_any_of(shape.tuple_shapes(),
                              [](const auto& each) { return HasBuffer(each); })
             : shape.IsBuffer();
}

// Whether its result or an operand has a buffer, of which XLA's verifier checks
// who writes it.
static bool HasBuffer(const HloInstruction& instruction) {
  const auto has = [](const HloInstruction* each) {
    return HasBuffer(each->shape());
  };
  return has(&instruction) || absl::c_any_of(instruction.operands(), has);
}

// As ReplacedEffect, for new instructions. Also finds effects without users,
// such as a dead collective that gets a channel.
std::string Shadow::AddedEffect() const {
  for (const HloComputation* image : computation_image_) {
    if (image == nullptr) continue;
    for (const HloInstruction* instruction : image->instructions()) {
      if (OriginOf(instruction) >= 0) continue;
      if (instruction->HasSideEffect()) {
        return absl::StrCat(
            "it adds '", instruction->name(),
            "', which has side effects that must happen exactly once");
      }
      if (HasBuffer(*instruction)) {
        return absl::StrCat("it adds '", instruction->name(),
                            "', and a buffer has only one writer");
      }
    }
  }
  return "";
}

}  // namespace hloenv
