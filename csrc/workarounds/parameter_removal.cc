// SPDX-License-Identifier: Apache-2.0
#include "workarounds/parameter_removal.h"

#include "support/hooks.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

using Cleanup = std::optional<absl::FunctionRef<void(HloInstruction*)>>;
using Callers = std::optional<
    absl::FunctionRef<std::vector<HloInstruction*>(const HloComputation*)>>;

// Calls of RemoveInstructionAndUnusedOperands on the stack. Other code that
// removes parameters updates the callers itself.
thread_local int removals = 0;

// Whether XLA takes operands off such a caller.
bool LosesOperands(const HloInstruction& caller) {
  return (caller.opcode() == HloOpcode::kCall ||
          caller.opcode() == HloOpcode::kFusion ||
          caller.opcode() == HloOpcode::kAsyncStart) &&
         caller.parent() != nullptr && !caller.IsDead();
}

absl::Status (*remove_parameter)(HloComputation*, int64_t);
absl::Status RemoveParameter(HloComputation* computation, int64_t number) {
  if (removals == 0) return remove_parameter(computation, number);
  auto callers = computation->caller_instructions();
  std::sort(callers.begin(), callers.end(),
            [](const HloInstruction* a, const HloInstruction* b) {
              return a->unique_id() < b->unique_id();
            });
  for (HloInstruction* caller : callers) {
    if (!LosesOperands(*caller)) continue;
    HloInstruction* operand = caller->mutable_operand(number);
    if (std::count(caller->operands().begin(), caller->operands().end(),
                   operand) < 2) {
      continue;
    }
    HloInstruction* copy =
        caller->parent()->AddInstruction(HloInstruction::CreateUnary(
            operand->shape(), HloOpcode::kCopy, operand));
    HLOENV_RETURN_IF_ERROR(caller->ReplaceOperandWith(number, copy));
  }
  return remove_parameter(computation, number);
}

absl::Status (*remove_unused)(HloComputation*, HloInstruction*, Cleanup, bool,
                              Callers, bool);
absl::Status RemoveUnused(HloComputation* computation,
                          HloInstruction* instruction, Cleanup cleanup,
                          bool ignore_control_dependencies, Callers callers,
                          bool entry_parameters) {
  ++removals;
  absl::Status status =
      remove_unused(computation, instruction, cleanup,
                    ignore_control_dependencies, callers, entry_parameters);
  --removals;
  return status;
}

}  // namespace

absl::Status InstallParameterRemoval() {
  static auto* group = new HookGroup({
      {"_ZN3xla14HloComputation15RemoveParameterEl",
       reinterpret_cast<void*>(RemoveParameter),
       reinterpret_cast<void**>(&remove_parameter)},
      {"_ZN3xla14HloComputation34RemoveInstructionAndUnusedOperandsEPNS_"
       "14HloInstructionESt8optionalIN4absl12lts_"
       "2025081411FunctionRefIFvS2_EEEEbS3_INS6_IFSt6vectorIS2_"
       "SaIS2_EEPKS0_EEEEb",
       reinterpret_cast<void*>(RemoveUnused),
       reinterpret_cast<void**>(&remove_unused)},
  });
  return group->Install();
}

}  // namespace hloenv
