// SPDX-License-Identifier: Apache-2.0
#include "workarounds/trivial_window.h"

#include "absl/strings/str_cat.h"
#include "support/hooks.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/transforms/simplifiers/algebraic_simplifier.h"

namespace hloenv {
namespace {

using xla::AlgebraicSimplifierVisitor;
using xla::HloInstruction;

bool CropsWithoutReducing(const xla::Window& window) {
  bool crops = false;
  for (const xla::WindowDimension& dimension : window.dimensions()) {
    if (dimension.size() != 1) return false;
    crops |= dimension.padding_low() < 0 || dimension.padding_high() < 0;
  }
  return crops;
}

absl::Status (*handle_reduce_window)(AlgebraicSimplifierVisitor*,
                                     HloInstruction*);
absl::Status HandleReduceWindow(AlgebraicSimplifierVisitor* visitor,
                                HloInstruction* reduce_window) {
  if (CropsWithoutReducing(reduce_window->window())) return absl::OkStatus();
  return handle_reduce_window(visitor, reduce_window);
}

}  // namespace

absl::Status CheckNoTrivialWindow(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != xla::HloOpcode::kReduceWindow ||
          !CropsWithoutReducing(instruction->window())) {
        continue;
      }
      return Error(kCompileError,
                   absl::StrCat("jaxlib's XLA ends the process on %",
                                instruction->name(),
                                ", windows of one element with a negative "
                                "padding; use a slice, or engine='wheel'"));
    }
  }
  return absl::OkStatus();
}

absl::Status InstallTrivialWindow() {
  static auto* group = new HookGroup({
      {"_ZN3xla26AlgebraicSimplifierVisitor18HandleReduceWindowEPNS_"
       "14HloInstructionE",
       reinterpret_cast<void*>(HandleReduceWindow),
       reinterpret_cast<void**>(&handle_reduce_window), /*is_virtual=*/true},
  });
  return group->Install();
}

}  // namespace hloenv
