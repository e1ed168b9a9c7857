// SPDX-License-Identifier: Apache-2.0
// How the CPU backend computes a dot, decided one dot at a time.
//
// XLA's DotImplementationStrategy chooses between a call of Eigen and tiled
// LLVM IR for a whole module, by xla_cpu_multi_thread_eigen: tiled LLVM IR for
// small matrix products where that flag is off. Here each dot may carry the
// choice in a frontend attribute (hloenv_dot="loops"), which text, protos and
// clones keep. Other backends ignore the attribute.
#pragma once

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

// What a dot needs before the backend can emit tiled LLVM IR for it.
enum class LoopsFor {
  kNothing,  // it cannot, or it does so anyway
  kAsIs,
  kTransposed,  // the operands whose contracted dimension is in the way
};
LoopsFor LoopsForDot(const xla::HloInstruction& dot);

// Whether the dimension that is contracted has to change places with the other
// one, in operand 0 or 1 of a dot that is kAsIs or kTransposed.
bool HasToBeTransposed(const xla::HloInstruction& dot, int64_t operand);

void MarkForLoops(xla::HloInstruction* dot);
void ClearMark(xla::HloInstruction* instruction);
// Whether any dot of `module` is marked.
bool HasMarkedDots(const xla::HloModule& module);

// While it lives, the backend follows the marks of one module that this thread
// compiles, and writes no loops for dots whose layouts they do not look at.
// Scopes nest; the innermost counts.
class DotLoweringScope {
 public:
  DotLoweringScope();
  ~DotLoweringScope();
  DotLoweringScope(const DotLoweringScope&) = delete;
  DotLoweringScope& operator=(const DotLoweringScope&) = delete;

  // HookError if XLA's backend cannot be hooked.
  absl::Status Enter(xla::HloModule* module);

 private:
  const xla::HloModule* const outer_;  // the module of the scope around this
};

}  // namespace hloenv
