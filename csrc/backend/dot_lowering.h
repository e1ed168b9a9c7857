// SPDX-License-Identifier: Apache-2.0
// Selects the lowering of single dots in the CPU backend.
//
// XLA's DotImplementationStrategy chooses between an Eigen call and tiled LLVM
// IR for all dots of a module: tiled LLVM IR for small matrix products if
// xla_cpu_multi_thread_eigen is off. Here a frontend attribute
// (hloenv_dot="loops") selects tiled LLVM IR for one dot. Text, protos and
// clones keep the attribute. Other backends ignore it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

// A matrix is thin up to this number of rows or columns: XLA's backend writes
// its products as simpler loops.
inline constexpr int64_t kThin = 3;

// What a dot needs before the backend can emit tiled LLVM IR for it.
enum class LoopsFor {
  kNothing,  // not possible, or already the default
  kAsIs,
  kTransposed,  // needs transposed operands; see HasToBeTransposed
};
LoopsFor LoopsForDot(const xla::HloInstruction& dot);

// Whether the contracted and the free dimension of operand 0 or 1 of a dot that
// is kAsIs or kTransposed must be swapped.
bool HasToBeTransposed(const xla::HloInstruction& dot, int64_t operand);

void MarkForLoops(xla::HloInstruction* dot);
void ClearMark(xla::HloInstruction* instruction);
// Whether any dot of `module` is marked.
bool HasMarkedDots(const xla::HloModule& module);

// While this object exists, the backend applies the marks of one module that
// this thread compiles, and emits no tiled LLVM IR for dots with unsupported
// layouts. Scopes nest; the innermost applies.
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
