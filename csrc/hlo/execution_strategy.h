// SPDX-License-Identifier: Apache-2.0
// How the CPU runs the steps (kernels, library calls, loops) of a computation.
//
// XLA's executor takes the steps for a graph: each starts when what it reads is
// there, on whichever thread is free, which costs more per step than many steps
// take. It runs them in order, one after the other, only where there are few
// steps, all arrays are tiny or each step reads the one before. Here any
// computation may be told to do so, by a frontend attribute of one of its
// instructions, which text, protos and clones keep. The mark goes where the
// instruction goes: it is for modules whose computations stay as they are.
// Other backends ignore it.
#pragma once

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace xla::cpu {
class ThunkExecutor;
}  // namespace xla::cpu

namespace hloenv {

// Whether `instruction` names a value that is there already: no step.
bool IsFree(const xla::HloInstruction& instruction);

// Whether XLA's executor would take the steps of `computation` for a graph, as
// far as one can tell before the backend has put copies between them; if every
// element took `element_bytes`, where that is not 0.
bool RunsAsGraph(const xla::HloComputation& computation,
                 int64_t element_bytes = 0);

// How many of `executor` and those of the loops, branches and calls in it take
// their steps for a graph.
int64_t NumGraphs(const xla::cpu::ThunkExecutor& executor);

void MarkInOrder(xla::HloInstruction* instruction);
void ClearOrder(xla::HloModule* module);
// Whether an instruction of `computation`, or of a fusion in it, is marked.
bool IsInOrder(const xla::HloComputation& computation);
// The computations that are, by name; fused ones too.
absl::flat_hash_set<std::string> ComputationsInOrder(
    const xla::HloModule& module);

// While it lives, executors that XLA makes on this thread follow the marks of
// one module. Scopes nest; the innermost counts.
class ExecutionScope {
 public:
  ExecutionScope();
  ~ExecutionScope();
  ExecutionScope(const ExecutionScope&) = delete;
  ExecutionScope& operator=(const ExecutionScope&) = delete;

  // HookError if XLA's executor cannot be hooked.
  absl::Status Enter(const xla::HloModule& module);

 private:
  // Of the scope around this.
  const absl::flat_hash_set<std::string>* const outer_;
  absl::flat_hash_set<std::string> in_order_;  // steps, by name
};

}  // namespace hloenv
