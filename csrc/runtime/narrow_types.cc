// SPDX-License-Identifier: Apache-2.0
#include "runtime/narrow_types.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/primitive_util.h"

namespace hloenv {
namespace {

bool HasBits(const xla::Shape& shape, int bits) {
  if (shape.IsTuple()) {
    return absl::c_any_of(shape.tuple_shapes(), [bits](const auto& each) {
      return HasBits(each, bits);
    });
  }
  return shape.IsArray() &&
         xla::primitive_util::IsIntegralType(shape.element_type()) &&
         xla::primitive_util::BitWidth(shape.element_type()) == bits;
}

}  // namespace

absl::Status CheckNarrowTypes(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* each : computation->instructions()) {
      const bool is_moved = each->opcode() == xla::HloOpcode::kConcatenate ||
                            each->opcode() == xla::HloOpcode::kSort;
      if (!HasBits(each->shape(), 1) &&
          !(is_moved && HasBits(each->shape(), 2))) {
        continue;
      }
      return Error(
          kCompileError,
          absl::StrCat("instruction '", each->name(), "' of '", module.name(),
                       "' is a ", xla::HloOpcodeString(each->opcode()),
                       " of integers of one or two bits, for which "
                       "XLA's CPU backend has no code; convert them "
                       "to s4 or u4 before it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace hloenv
