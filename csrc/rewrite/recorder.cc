// SPDX-License-Identifier: Apache-2.0
#include "rewrite/recorder.h"

#include <mutex>

#include "support/hooks.h"
#include "support/status.h"
#include "workarounds/workarounds.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

thread_local Recorder* current_recorder = nullptr;

// This thread's recorder for `module`; null if there is none.
Recorder* RecorderFor(const HloModule* module) {
  Recorder* recorder = current_recorder;
  while (recorder != nullptr && recorder->module() != module) {
    recorder = recorder->outer();
  }
  return recorder;
}

void RecordReplace(const HloInstruction* before, const HloInstruction* after) {
  if (current_recorder == nullptr || before->parent() == nullptr) return;
  if (Recorder* recorder = RecorderFor(before->parent()->parent())) {
    recorder->OnReplace(before, after);
  }
}

// For each hooked function: a pointer to XLA's function, and its replacement.
// On both ABIs that hloenv supports, a member function can be called as a
// function of `this`.

absl::StatusOr<bool> (*replace_instruction_5)(HloComputation*, HloInstruction*,
                                              HloInstruction*, bool, bool,
                                              bool);
absl::StatusOr<bool> ReplaceInstruction5(HloComputation* computation,
                                         HloInstruction* before,
                                         HloInstruction* after, bool sharding,
                                         bool control, bool remove) {
  RecordReplace(before, after);
  return replace_instruction_5(computation, before, after, sharding, control,
                               remove);
}

absl::Status (*replace_instruction_2)(HloComputation*, HloInstruction*,
                                      HloInstruction*);
absl::Status ReplaceInstruction2(HloComputation* computation,
                                 HloInstruction* before,
                                 HloInstruction* after) {
  RecordReplace(before, after);
  return replace_instruction_2(computation, before, after);
}

absl::StatusOr<bool> (*replace_different_5)(HloComputation*, HloInstruction*,
                                            HloInstruction*, bool, bool, bool);
absl::StatusOr<bool> ReplaceDifferent5(HloComputation* computation,
                                       HloInstruction* before,
                                       HloInstruction* after, bool sharding,
                                       bool control, bool remove) {
  RecordReplace(before, after);
  return replace_different_5(computation, before, after, sharding, control,
                             remove);
}

absl::Status (*replace_different_2)(HloComputation*, HloInstruction*,
                                    HloInstruction*);
absl::Status ReplaceDifferent2(HloComputation* computation,
                               HloInstruction* before, HloInstruction* after) {
  RecordReplace(before, after);
  return replace_different_2(computation, before, after);
}

absl::Status (*replace_all_uses)(HloInstruction*, HloInstruction*,
                                 absl::string_view);
absl::Status ReplaceAllUses(HloInstruction* before, HloInstruction* after,
                            absl::string_view trigger) {
  RecordReplace(before, after);
  return replace_all_uses(before, after, trigger);
}

absl::Status (*replace_all_uses_different)(HloInstruction*, HloInstruction*);
absl::Status ReplaceAllUsesDifferent(HloInstruction* before,
                                     HloInstruction* after) {
  RecordReplace(before, after);
  return replace_all_uses_different(before, after);
}

absl::Status (*replace_uses)(HloInstruction*, absl::Span<HloInstruction* const>,
                             HloInstruction*);
absl::Status ReplaceUses(HloInstruction* before,
                         absl::Span<HloInstruction* const> users,
                         HloInstruction* after) {
  RecordReplace(before, after);
  return replace_uses(before, users, after);
}

absl::Status (*replace_uses_different)(HloInstruction*,
                                       absl::Span<HloInstruction* const>,
                                       HloInstruction*);
absl::Status ReplaceUsesDifferent(HloInstruction* before,
                                  absl::Span<HloInstruction* const> users,
                                  HloInstruction* after) {
  RecordReplace(before, after);
  return replace_uses_different(before, users, after);
}

absl::Status (*replace_use)(HloInstruction*, HloInstruction*, HloInstruction*);
absl::Status ReplaceUse(HloInstruction* before, HloInstruction* user,
                        HloInstruction* after) {
  RecordReplace(before, after);
  return replace_use(before, user, after);
}

absl::Status (*replace_use_at)(HloInstruction*, HloInstruction*, int,
                               HloInstruction*);
absl::Status ReplaceUseAt(HloInstruction* before, HloInstruction* user,
                          int index, HloInstruction* after) {
  RecordReplace(before, after);
  return replace_use_at(before, user, index, after);
}

absl::Status (*replace_use_different)(HloInstruction*, HloInstruction*,
                                      HloInstruction*);
absl::Status ReplaceUseDifferent(HloInstruction* before, HloInstruction* user,
                                 HloInstruction* after) {
  RecordReplace(before, after);
  return replace_use_different(before, user, after);
}

absl::Status (*replace_use_different_at)(HloInstruction*, HloInstruction*, int,
                                         HloInstruction*);
absl::Status ReplaceUseDifferentAt(HloInstruction* before, HloInstruction* user,
                                   int index, HloInstruction* after) {
  RecordReplace(before, after);
  return replace_use_different_at(before, user, index, after);
}

void RecordReplaceOperand(const HloInstruction* user, int64_t index,
                          const HloInstruction* after) {
  if (current_recorder == nullptr || user->parent() == nullptr) return;
  if (Recorder* recorder = RecorderFor(user->parent()->parent())) {
    recorder->OnReplaceOperand(user, user->operand(index), after);
  }
}

absl::Status (*replace_operand)(HloInstruction*, int64_t, HloInstruction*);
absl::Status ReplaceOperand(HloInstruction* user, int64_t index,
                            HloInstruction* after) {
  RecordReplaceOperand(user, index, after);
  return replace_operand(user, index, after);
}

absl::Status (*replace_operand_different)(HloInstruction*, int64_t,
                                          HloInstruction*);
absl::Status ReplaceOperandDifferent(HloInstruction* user, int64_t index,
                                     HloInstruction* after) {
  RecordReplaceOperand(user, index, after);
  return replace_operand_different(user, index, after);
}

absl::Status (*remove_instruction)(HloComputation*, HloInstruction*, bool);
absl::Status RemoveInstruction(HloComputation* computation,
                               HloInstruction* instruction, bool unchecked) {
  Recorder* recorder = current_recorder == nullptr
                           ? nullptr
                           : RecorderFor(computation->parent());
  if (recorder == nullptr) {
    return remove_instruction(computation, instruction, unchecked);
  }
  absl::Status status = remove_instruction(computation, instruction, unchecked);
  // The next Cleanup frees it, so the address is still valid.
  if (status.ok()) recorder->OnRemove(computation, instruction);
  return status;
}

void (*cleanup)(HloComputation*);
void Cleanup(HloComputation* computation) {
  if (current_recorder != nullptr) {
    if (Recorder* recorder = RecorderFor(computation->parent())) {
      recorder->OnCleanup(computation);
    }
  }
  cleanup(computation);
}

void (*cleanup_computations)(HloModule*);
void CleanupComputations(HloModule* module) {
  cleanup_computations(module);
  if (current_recorder != nullptr) {
    if (Recorder* recorder = RecorderFor(module)) {
      recorder->OnComputationsFreed();
    }
  }
}

template <typename Function>
Hook MakeHook(const char* symbol, Function* replacement, Function** original) {
  return {symbol, reinterpret_cast<void*>(replacement),
          reinterpret_cast<void**>(original)};
}

#define HLOENV_SPAN "N4absl12lts_202508144SpanIKPS0_EE"
#define HLOENV_STRING_VIEW "St17basic_string_viewIcSt11char_traitsIcEE"

HookGroup& RecorderHooks() {
  static auto* group = new HookGroup({
      MakeHook(
          "_ZN3xla14HloComputation18ReplaceInstructionEPNS_14HloInstructionE"
          "S2_bbb",
          ReplaceInstruction5, &replace_instruction_5),
      MakeHook(
          "_ZN3xla14HloComputation18ReplaceInstructionEPNS_14HloInstructionE"
          "S2_",
          ReplaceInstruction2, &replace_instruction_2),
      MakeHook("_ZN3xla14HloComputation36ReplaceInstructionWithDifferentShapeE"
               "PNS_14HloInstructionES2_bbb",
               ReplaceDifferent5, &replace_different_5),
      MakeHook("_ZN3xla14HloComputation36ReplaceInstructionWithDifferentShapeE"
               "PNS_14HloInstructionES2_",
               ReplaceDifferent2, &replace_different_2),
      MakeHook(
          "_ZN3xla14HloInstruction18ReplaceAllUsesWithEPS0_" HLOENV_STRING_VIEW,
          ReplaceAllUses, &replace_all_uses),
      MakeHook("_ZN3xla14HloInstruction32ReplaceAllUsesWithDifferentShapeEPS0_",
               ReplaceAllUsesDifferent, &replace_all_uses_different),
      MakeHook("_ZN3xla14HloInstruction15ReplaceUsesWithE" HLOENV_SPAN "S4_",
               ReplaceUses, &replace_uses),
      MakeHook("_ZN3xla14HloInstruction32ReplaceAllUsesWithDifferentShape"
               "E" HLOENV_SPAN "S4_",
               ReplaceUsesDifferent, &replace_uses_different),
      MakeHook("_ZN3xla14HloInstruction14ReplaceUseWithEPS0_S1_", ReplaceUse,
               &replace_use),
      MakeHook("_ZN3xla14HloInstruction14ReplaceUseWithEPS0_iS1_", ReplaceUseAt,
               &replace_use_at),
      MakeHook("_ZN3xla14HloInstruction28ReplaceUseWithDifferentShapeEPS0_S1_",
               ReplaceUseDifferent, &replace_use_different),
      MakeHook("_ZN3xla14HloInstruction28ReplaceUseWithDifferentShapeEPS0_iS1_",
               ReplaceUseDifferentAt, &replace_use_different_at),
      MakeHook("_ZN3xla14HloInstruction18ReplaceOperandWithElPS0_",
               ReplaceOperand, &replace_operand),
      MakeHook(
          "_ZN3xla14HloInstruction32ReplaceOperandWithDifferentShapeElPS0_",
          ReplaceOperandDifferent, &replace_operand_different),
      MakeHook("_ZN3xla14HloComputation21RemoveInstructionImplEPNS_"
               "14HloInstructionEb",
               RemoveInstruction, &remove_instruction),
      MakeHook("_ZN3xla14HloComputation7CleanupEv", Cleanup, &cleanup),
      MakeHook("_ZN3xla9HloModule19CleanupComputationsEv", CleanupComputations,
               &cleanup_computations),
  });
  return *group;
}

}  // namespace

absl::Status InstallRecorderHooks() {
  HLOENV_RETURN_IF_ERROR(InstallWorkarounds());
  return RecorderHooks().Install();
}

Recorder::Recorder(HloModule* module)
    : module_(module), outer_(current_recorder) {
  for (const HloComputation* computation : module->computations()) {
    computations_.insert(computation);
    for (const HloInstruction* instruction : computation->instructions()) {
      initial_.push_back(instruction);
    }
  }
  current_recorder = this;
}

void Recorder::Stop() {
  if (is_recording_) current_recorder = outer_;
  is_recording_ = false;
}

int32_t Recorder::TokenOf(const HloInstruction* instruction) {
  auto [it, is_new] =
      token_of_.try_emplace(instruction, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back({it->second, false, instruction->parent()});
  return it->second;
}

int32_t Recorder::Find(int32_t token) {
  while (tokens_[token].parent != token) {
    tokens_[token].parent = tokens_[tokens_[token].parent].parent;
    token = tokens_[token].parent;
  }
  return token;
}

void Recorder::OnReplace(const HloInstruction* before,
                         const HloInstruction* after) {
  const int32_t a = Find(TokenOf(before));
  const int32_t b = Find(TokenOf(after));
  tokens_[a].parent = b;
  tokens_[b].has_changed |= tokens_[a].has_changed;
}

void Recorder::OnReplaceOperand(const HloInstruction* user,
                                const HloInstruction* before,
                                const HloInstruction* after) {
  if (before == after) return;
  // The pass may still be constructing an instruction that it has not used.
  if (!token_of_.contains(user) && !ExistedAtStart(user)) return;
  if (Find(TokenOf(before)) == Find(TokenOf(after))) return;
  tokens_[Find(TokenOf(user))].has_changed = true;
}

// Whether an instruction had this address at construction.
bool Recorder::ExistedAtStart(const HloInstruction* instruction) {
  if (initial_.empty()) return false;
  if (!is_sorted_) std::sort(initial_.begin(), initial_.end());
  is_sorted_ = true;
  return std::binary_search(initial_.begin(), initial_.end(), instruction);
}

void Recorder::OnRemove(const HloComputation* computation,
                        const HloInstruction* instruction) {
  removed_.insert(instruction);
  pending_[computation].push_back(instruction);
}

void Recorder::Forget(const HloInstruction* instruction) {
  auto it = token_of_.find(instruction);
  if (it == token_of_.end()) {
    freed_token_of_.try_emplace(instruction, kNoToken);
    return;
  }
  freed_token_of_.try_emplace(instruction, it->second);
  token_of_.erase(it);
}

void Recorder::OnCleanup(const HloComputation* computation) {
  auto it = pending_.find(computation);
  if (it == pending_.end()) return;
  for (const HloInstruction* instruction : it->second) Forget(instruction);
  pending_.erase(it);
}

void Recorder::OnComputationsFreed() {
  absl::flat_hash_set<const HloComputation*> now;
  for (const HloComputation* computation : module_->computations()) {
    now.insert(computation);
  }
  for (const HloComputation* computation : computations_) {
    if (!now.contains(computation)) removed_computations_.insert(computation);
  }
  std::vector<const HloInstruction*> gone;
  for (const auto& [instruction, token] : token_of_) {
    if (!now.contains(tokens_[token].computation)) gone.push_back(instruction);
  }
  for (const HloInstruction* instruction : gone) Forget(instruction);
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (now.contains(it->first)) {
      ++it;
    } else {
      pending_.erase(it++);
    }
  }
}

// The token of an instruction that existed at construction.
int32_t Recorder::FirstTokenOf(const HloInstruction* instruction) const {
  // If the address was reused, use the first instruction there.
  auto it = freed_token_of_.find(instruction);
  if (it != freed_token_of_.end()) return it->second;
  it = token_of_.find(instruction);
  return it == token_of_.end() ? kNoToken : it->second;
}

bool Recorder::DeclaredEqual(const HloInstruction* before,
                             const HloInstruction* after) {
  if (before == after && !removed_.contains(before)) return true;
  auto b = token_of_.find(after);
  if (b == token_of_.end()) return false;
  const int32_t a = FirstTokenOf(before);
  return a != kNoToken && Find(a) == Find(b->second);
}

bool Recorder::MayHaveChanged(const HloInstruction* before) {
  const int32_t token = FirstTokenOf(before);
  return token != kNoToken && tokens_[Find(token)].has_changed;
}

}  // namespace hloenv
