// SPDX-License-Identifier: Apache-2.0
#include "workarounds/no_op_transpose.h"

#include <algorithm>

#include "support/hooks.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/transforms/simplifiers/algebraic_simplifier.h"
#include "xla/layout_util.h"

namespace hloenv {
namespace {

using xla::AlgebraicSimplifierVisitor;
using xla::HloInstruction;
using xla::HloOpcode;

// Reaches what is protected in the visitor, and has nothing of its own.
struct Visitor : AlgebraicSimplifierVisitor {
  bool is_layout_sensitive() const { return options_.is_layout_sensitive(); }
  absl::Status ReplaceByCopy(HloInstruction* instruction) {
    return ReplaceWithNewInstruction(
        instruction,
        HloInstruction::CreateUnary(instruction->shape(), HloOpcode::kCopy,
                                    instruction->mutable_operand(0)));
  }
};

bool OnlyChangesLayout(const HloInstruction& transpose) {
  const xla::Shape& from = transpose.operand(0)->shape();
  const xla::Shape& to = transpose.shape();
  return std::is_sorted(transpose.dimensions().begin(),
                        transpose.dimensions().end()) &&
         from.has_layout() && to.has_layout() &&
         !xla::LayoutUtil::Equal(from.layout(), to.layout());
}

absl::Status (*handle_transpose)(AlgebraicSimplifierVisitor*, HloInstruction*);
absl::Status HandleTranspose(AlgebraicSimplifierVisitor* visitor,
                             HloInstruction* transpose) {
  auto* reached = static_cast<Visitor*>(visitor);
  if (reached->is_layout_sensitive() && OnlyChangesLayout(*transpose)) {
    return reached->ReplaceByCopy(transpose);
  }
  return handle_transpose(visitor, transpose);
}

}  // namespace

absl::Status InstallNoOpTranspose() {
  static auto* group = new HookGroup({
      {"_ZN3xla26AlgebraicSimplifierVisitor15HandleTransposeEPNS_"
       "14HloInstructionE",
       reinterpret_cast<void*>(HandleTranspose),
       reinterpret_cast<void**>(&handle_transpose), /*is_virtual=*/true},
  });
  return group->Install();
}

}  // namespace hloenv
