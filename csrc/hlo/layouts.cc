// SPDX-License-Identifier: Apache-2.0
#include "hlo/layouts.h"

namespace hloenv {

bool DependsOnLayouts(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() == xla::HloOpcode::kBitcast &&
          !xla::Shape::Equal().IgnoreElementType()(
              instruction->shape(), instruction->operand(0)->shape())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace hloenv
