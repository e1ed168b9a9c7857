// SPDX-License-Identifier: Apache-2.0
// Records which values a pass declares equal and which instructions it removes
// in one module.
//
//   before                       calls by algsimp
//   z = f32[4] add(p, zeros)     ReplaceInstruction(z, p): z and p are equal,
//   ROOT n = f32[4] negate(z)      and z is removed
//
// Only such a declaration shows that n, which then reads p for z, computes the
// same value: a pass may also swap the operands of an instruction, or give it
// other ones and compensate elsewhere. Equality is transitive, so the declared
// pairs are kept as a union-find.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"

namespace xla {
class HloComputation;
class HloInstruction;
class HloModule;
}  // namespace xla

namespace hloenv {

// Installs the hooks that recorders need. May be called repeatedly.
absl::Status InstallRecorderHooks();

// Records, between construction and Stop, the changes that this thread makes to
// `module`. Recorders on one thread may nest; each records only its own module.
//
// Addresses identify instructions. This is safe although freed memory is
// reused, because the recorder hooks `module->Cleanup()`: an address that
// Cleanup frees identifies another instruction afterwards.
class Recorder {
 public:
  explicit Recorder(xla::HloModule* module);
  ~Recorder() { Stop(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Ends the recording and keeps its results.
  void Stop();
  // Whether nothing was replaced or removed.
  bool is_empty() const { return tokens_.empty() && removed_.empty(); }

  bool removed_any() const { return !removed_.empty(); }

  // Whether an instruction that existed at construction has been removed since.
  bool WasRemoved(const xla::HloInstruction* instruction) const {
    return removed_.contains(instruction);
  }
  // As above, for computations.
  bool WasRemoved(const xla::HloComputation* computation) const {
    return removed_computations_.contains(computation);
  }
  // Whether the pass declared the two values equal, directly or transitively.
  // `before` was in the module at construction (and may be removed since),
  // `after` is in it now.
  bool DeclaredEqual(const xla::HloInstruction* before,
                     const xla::HloInstruction* after);

  // Whether the pass may have changed the value of `before`, or of a value that
  // it declared equal, by giving an instruction an operand that it never
  // declared equal to the old one. Then values declared equal to `before` may
  // differ from the value of `before` at construction.
  bool MayHaveChanged(const xla::HloInstruction* before);

  // Called by the hooks.
  xla::HloModule* module() const { return module_; }
  Recorder* outer() const { return outer_; }
  void OnReplace(const xla::HloInstruction* before,
                 const xla::HloInstruction* after);
  void OnReplaceOperand(const xla::HloInstruction* user,
                        const xla::HloInstruction* before,
                        const xla::HloInstruction* after);
  void OnRemove(const xla::HloComputation* computation,
                const xla::HloInstruction* instruction);
  void OnCleanup(const xla::HloComputation* computation);
  void OnComputationsFreed();

 private:
  int32_t TokenOf(const xla::HloInstruction* instruction);
  int32_t Find(int32_t token);
  void Forget(const xla::HloInstruction* instruction);
  int32_t FirstTokenOf(const xla::HloInstruction* instruction) const;
  bool ExistedAtStart(const xla::HloInstruction* instruction);

  xla::HloModule* module_;
  Recorder* outer_;
  bool is_recording_ = true;
  absl::flat_hash_set<const xla::HloComputation*> computations_;
  // Addresses of removed instructions. Includes instructions created after
  // construction, which WasRemoved is not called for.
  absl::flat_hash_set<const xla::HloInstruction*> removed_;
  absl::flat_hash_set<const xla::HloComputation*> removed_computations_;
  // Removed instructions that are not freed yet, by computation.
  absl::flat_hash_map<const xla::HloComputation*,
                      std::vector<const xla::HloInstruction*>>
      pending_;
  // Instructions at construction; sorted if is_sorted_.
  std::vector<const xla::HloInstruction*> initial_;
  bool is_sorted_ = false;
  // Union-find over values that were declared equal to something.
  struct Token {
    int32_t parent;
    bool has_changed;  // valid for roots: see MayHaveChanged
    const xla::HloComputation* computation;
  };
  std::vector<Token> tokens_;
  absl::flat_hash_map<const xla::HloInstruction*, int32_t> token_of_;
  static constexpr int32_t kNoToken = -1;
  // For each freed address, the token of the first instruction there.
  absl::flat_hash_map<const xla::HloInstruction*, int32_t> freed_token_of_;
};

}  // namespace hloenv
