// SPDX-License-Identifier: Apache-2.0
#include "rewrite/prune.h"

#include "hlo/order.h"
#include "support/status.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

absl::Status Prune(xla::HloModule* module) {
  // Callers first: removing a call may remove its computation.
  std::vector<HloComputation*> order = CalleesFirst(*module);
  std::vector<HloInstruction*> dead;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    HloComputation* computation = *it;
    const auto is_dead = [computation](const HloInstruction* instruction) {
      return instruction->user_count() == 0 &&
             instruction != computation->root_instruction() &&
             instruction->opcode() != xla::HloOpcode::kParameter &&
             !instruction->HasControlDependencies() &&
             !instruction->HasSideEffect();
    };
    for (HloInstruction* instruction : computation->instructions()) {
      if (is_dead(instruction)) dead.push_back(instruction);
    }
    while (!dead.empty()) {
      HloInstruction* instruction = dead.back();
      dead.pop_back();
      const std::vector<HloInstruction*> operands(
          instruction->operands().begin(), instruction->operands().end());
      HLOENV_RETURN_IF_ERROR(computation->ForceRemoveInstruction(instruction));
      // Operand order, not hash order: removing a user reorders the remaining
      // users of a value, and the results of passes depend on that order.
      absl::flat_hash_set<const HloInstruction*> seen;
      for (HloInstruction* operand : operands) {
        if (is_dead(operand) && seen.insert(operand).second) {
          dead.push_back(operand);
        }
      }
    }
  }
  return module->RemoveUnusedComputations();
}

}  // namespace hloenv
