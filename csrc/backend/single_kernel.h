// SPDX-License-Identifier: Apache-2.0
// Which computations the CPU backend can emit as one kernel.
//
// A call with the frontend attribute xla_cpu_small_call="true" becomes one LLVM
// function (ThunkEmitter::EmitCallThunk) instead of one thunk per instruction.
// Its emitter is XLA's older IrEmitter, which returns errors or crashes for
// operations that have thunks only. jaxlib follows the attribute too.
#pragma once

#include <cstdint>

namespace xla {
class HloComputation;
class HloInstruction;
}  // namespace xla

namespace hloenv {

// What the emitter of single kernels finds in a computation and all that it
// calls.
struct KernelContents {
  // Whether it emits everything except what the next two fields count.
  bool is_supported = true;
  // Fusions that are not loops: library calls, and a dot with its addend. Their
  // instructions may be emitted one by one.
  int64_t num_other_fusions = 0;
  // Scatters, alone or in fusions, which may be expanded to loops.
  int64_t num_scatters = 0;
  // Instructions that make code, with those in fusions.
  int64_t num_instructions = 0;
};
KernelContents ContentsOf(const xla::HloComputation& computation);
// The same of one instruction, with what it calls.
KernelContents ContentsOf(const xla::HloInstruction& instruction);

void MarkSingleKernel(xla::HloInstruction* call);
bool IsSingleKernel(const xla::HloInstruction& instruction);

}  // namespace hloenv
