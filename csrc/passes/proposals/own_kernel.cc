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

absl::StatusOr<std::vector<HloInstruction*>> AllInOwnKernels(
    absl::Span<HloInstruction* const> operands, const KernelsBody& body) {
  size_t count = 0;
  const auto tuple = [&](absl::Span<HloInstruction* const> parameters)
      -> absl::StatusOr<HloInstruction*> {
    HLOENV_ASSIGN_OR_RETURN(const std::vector<HloInstruction*> results,
                            body(parameters));
    count = results.size();
    return results.front()->parent()->AddInstruction(
        HloInstruction::CreateTuple(results));
  };
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * call, InOwnKernel(operands, tuple));
  std::vector<HloInstruction*> results;
  for (size_t i = 0; i < count; ++i) {
    results.push_back(call->parent()->AddInstruction(
        HloInstruction::CreateGetTupleElement(call, static_cast<int64_t>(i))));
  }
  return results;
}

}  // namespace hloenv
