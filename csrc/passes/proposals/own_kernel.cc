// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/own_kernel.h"

#include <memory>
#include <string>
#include <vector>

#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

absl::StatusOr<HloInstruction*> InOwnKernel(
    absl::Span<HloInstruction* const> operands, const KernelBody& body) {
  HloComputation* caller = operands.front()->parent();
  HloComputation::Builder builder("own_kernel");
  std::vector<HloInstruction*> parameters;
  for (HloInstruction* operand : operands) {
    const auto number = static_cast<int64_t>(parameters.size());
    parameters.push_back(builder.AddInstruction(HloInstruction::CreateParameter(
        number, operand->shape(), "p" + std::to_string(number))));
  }
  HloComputation* computation = caller->parent()->AddEmbeddedComputation(
      builder.Build(parameters.front()));
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * root, body(parameters));
  computation->set_root_instruction(root, /*accept_different_shape=*/true);
  HloInstruction* call = caller->AddInstruction(
      HloInstruction::CreateCall(root->shape(), operands, computation));
  call->set_frontend_attribute("inlineable", "false");
  return call;
}

}  // namespace hloenv
