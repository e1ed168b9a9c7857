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

namespace {

absl::StatusOr<HloInstruction*> InCall(
    const std::string& name, absl::Span<HloInstruction* const> operands,
    const KernelBody& body) {
  HloComputation* caller = operands.front()->parent();
  HloComputation::Builder builder(name);
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
  return caller->AddInstruction(
      HloInstruction::CreateCall(root->shape(), operands, computation));
}

absl::StatusOr<std::vector<HloInstruction*>> AllIn(
    const std::string& name, absl::Span<HloInstruction* const> operands,
    const KernelsBody& body) {
  size_t count = 0;
  const auto tuple = [&](absl::Span<HloInstruction* const> parameters)
      -> absl::StatusOr<HloInstruction*> {
    HLOENV_ASSIGN_OR_RETURN(const std::vector<HloInstruction*> results,
                            body(parameters));
    count = results.size();
    return results.front()->parent()->AddInstruction(
        HloInstruction::CreateTuple(results));
  };
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * call, InCall(name, operands, tuple));
  std::vector<HloInstruction*> results;
  for (size_t i = 0; i < count; ++i) {
    results.push_back(call->parent()->AddInstruction(
        HloInstruction::CreateGetTupleElement(call, static_cast<int64_t>(i))));
  }
  return results;
}

void KeepWhole(HloInstruction* call) {
  call->set_frontend_attribute("inlineable", "false");
}

constexpr char kOwnKernel[] = "own_kernel";

}  // namespace

absl::StatusOr<HloInstruction*> InOwnKernel(
    absl::Span<HloInstruction* const> operands, const KernelBody& body) {
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * call,
                          InCall(kOwnKernel, operands, body));
  KeepWhole(call);
  return call;
}

absl::StatusOr<std::vector<HloInstruction*>> AllInOwnKernels(
    absl::Span<HloInstruction* const> operands, const KernelsBody& body) {
  HLOENV_ASSIGN_OR_RETURN(std::vector<HloInstruction*> results,
                          AllIn(kOwnKernel, operands, body));
  KeepWhole(results.front()->mutable_operand(0));
  return results;
}

absl::StatusOr<std::vector<HloInstruction*>> AllInCall(
    absl::Span<HloInstruction* const> operands, const KernelsBody& body) {
  return AllIn("called", operands, body);
}

}  // namespace hloenv
