// SPDX-License-Identifier: Apache-2.0
#include "hlo/indexing.h"

namespace hloenv {

bool HasBatchedIndexing(const xla::HloComputation& computation) {
  for (const xla::HloInstruction* instruction : computation.instructions()) {
    if (instruction->opcode() == xla::HloOpcode::kGather &&
        !instruction->gather_dimension_numbers()
             .operand_batching_dims()
             .empty()) {
      return true;
    }
    if (instruction->opcode() == xla::HloOpcode::kScatter &&
        !instruction->scatter_dimension_numbers()
             .input_batching_dims()
             .empty()) {
      return true;
    }
  }
  return false;
}

bool HasBatchedIndexing(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    if (HasBatchedIndexing(*computation)) return true;
  }
  return false;
}

}  // namespace hloenv
