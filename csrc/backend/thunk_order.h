// SPDX-License-Identifier: Apache-2.0
// Whether the CPU runs the thunks (kernels, library calls, loops) of a
// computation sequentially or concurrently.
//
// XLA's ThunkExecutor runs a thunk sequence as a dataflow graph: a thunk starts
// when its operands are ready, on any thread, which costs more per thunk than
// small thunks take. It runs a sequence in order only if it is short, if all
// buffers are small, or if each thunk depends on the previous one. Here a
// computation is marked for sequential execution by a frontend attribute
// (hloenv_execution="in_order") of one of its instructions, which text, protos
// and clones keep. The mark stays with the instruction: set it when the
// computations of a module no longer change. Other backends ignore it.
#pragma once

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace xla::cpu {
class ThunkExecutor;
}  // namespace xla::cpu

namespace hloenv {

// Whether `instruction` only names an existing value and becomes no thunk.
bool IsFree(const xla::HloInstruction& instruction);

// Whether ThunkExecutor would run the thunks of `computation` as a dataflow
// graph, as far as it is known before copy insertion; with elements of
// `element_bytes` bytes if that is not 0.
bool RunsAsGraph(const xla::HloComputation& computation,
                 int64_t element_bytes = 0);

// How many of `executor` and the executors of its loops, branches and calls run
// their thunks as a dataflow graph.
int64_t NumGraphs(const xla::cpu::ThunkExecutor& executor);

void MarkSequential(xla::HloInstruction* instruction);
void ClearOrder(xla::HloModule* module);
// Whether an instruction of `computation`, or of a fusion in it, is marked.
bool IsSequential(const xla::HloComputation& computation);
// The names of these computations, including fused ones.
absl::flat_hash_set<std::string> SequentialComputations(
    const xla::HloModule& module);

// While this object exists, executors that XLA creates on this thread apply the
// marks of one module. Scopes nest; the innermost applies.
class ThunkOrderScope {
 public:
  ThunkOrderScope();
  ~ThunkOrderScope();
  ThunkOrderScope(const ThunkOrderScope&) = delete;
  ThunkOrderScope& operator=(const ThunkOrderScope&) = delete;

  // HookError if XLA's executor cannot be hooked.
  absl::Status Enter(const xla::HloModule& module);

 private:
  // Of the scope around this.
  const absl::flat_hash_set<std::string>* const outer_;
  absl::flat_hash_set<std::string> in_order_;  // steps, by name
};

}  // namespace hloenv
