// SPDX-License-Identifier: Apache-2.0
// Watches what a pass does to one module: which values it declares equal and
// which instructions it removes.
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

// Installs the hooks that recorders need; any number of calls.
absl::Status InstallRecorderHooks();

// Records, between construction and Stop, the changes that this thread makes to
// `module`. Recorders on one thread may nest; each sees its own module
// only.
//
// Instructions are told apart by address, which is safe although freed memory
// is used again: `module->Cleanup()` is observed, and an address that it frees
// stands for another instruction afterwards.
class Recorder {
 public:
  explicit Recorder(xla::HloModule* module);
  ~Recorder() { Stop(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Ends the recording; what was recorded stays.
  void Stop();
  // Whether nothing was replaced or removed.
  bool is_empty() const { return tokens_.empty() && removed_.empty(); }

  bool removed_any() const { return !removed_.empty(); }

  // For instructions that the module held at construction: whether one has been
  // removed since.
  bool WasRemoved(const xla::HloInstruction* instruction) const {
    return removed_.contains(instruction);
  }
  // For computations that the module held at construction.
  bool WasRemoved(const xla::HloComputation* computation) const {
    return removed_computations_.contains(computation);
  }
  // Whether the pass declared the two values equal, directly or through a
  // chain: `before` was in the module at construction (it may be gone now),
  // `after` is in it now.
  bool DeclaredEqual(const xla::HloInstruction* before,
                     const xla::HloInstruction* after);

  // Whether the pass may have changed the value of `before`, or of what it
  // declared equal to it, by giving an instruction another operand that it
  // never declared equal to the old one. What it declared equal to `before`
  // then may not be equal to what `before` was at construction.
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
  bool WasThere(const xla::HloInstruction* instruction);

  xla::HloModule* module_;
  Recorder* outer_;
  bool is_recording_ = true;
  absl::flat_hash_set<const xla::HloComputation*> computations_;
  // First removal of each address: before it, the address meant the instruction
  // that was there at construction, or a newer one that nobody asks for.
  absl::flat_hash_set<const xla::HloInstruction*> removed_;
  absl::flat_hash_set<const xla::HloComputation*> removed_computations_;
  // Removed but not freed yet, by computation.
  absl::flat_hash_map<const xla::HloComputation*,
                      std::vector<const xla::HloInstruction*>>
      pending_;
  std::vector<const xla::HloInstruction*> there_;  // at construction
  bool is_sorted_ = false;
  // Union-find over values that were declared equal to something.
  struct Token {
    int32_t parent;
    bool has_changed;  // of the parent: see MayHaveChanged
    const xla::HloComputation* computation;
  };
  std::vector<Token> tokens_;
  absl::flat_hash_map<const xla::HloInstruction*, int32_t> token_of_;
  static constexpr int32_t kNoToken = -1;
  // Tokens of addresses that were freed: the first instruction at each address.
  absl::flat_hash_map<const xla::HloInstruction*, int32_t> freed_token_of_;
};

}  // namespace hloenv
