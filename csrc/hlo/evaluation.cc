// SPDX-License-Identifier: Apache-2.0
#include "hlo/evaluation.h"

#include <memory>
#include <vector>

#include "xla/hlo/evaluator/hlo_evaluator.h"

namespace hloenv {

using xla::HloInstruction;

absl::StatusOr<xla::Literal> EvaluatedOn(
    const HloInstruction& instruction, const xla::Shape& shape,
    absl::Span<const xla::Literal* const> operands) {
  std::vector<std::unique_ptr<HloInstruction>> constants;
  std::vector<HloInstruction*> images;
  for (const xla::Literal* operand : operands) {
    constants.push_back(HloInstruction::CreateConstant(operand->Clone()));
    images.push_back(constants.back().get());
  }
  xla::HloEvaluator evaluator;
  return evaluator.Evaluate(
      instruction.CloneWithNewOperands(shape, images).get(), {},
      /*recursively_evaluate_nonconstant_operands=*/true);
}

}  // namespace hloenv
