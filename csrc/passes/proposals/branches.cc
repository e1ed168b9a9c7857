// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/branches.h"

#include <numeric>
#include <vector>

#include "support/status.h"
#include "xla/literal_util.h"
#include "xla/service/hlo_creation_utils.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// A computation of a tuple of arrays.
absl::StatusOr<HloComputation*> BranchOf(xla::HloModule* module,
                                         const xla::Shape& arrays,
                                         const BuildFn& function) {
  HloComputation::Builder builder("branch");
  builder.AddInstruction(HloInstruction::CreateParameter(0, arrays, "arrays"));
  HloComputation* computation = module->AddEmbeddedComputation(builder.Build());
  HloInstruction* parameter = computation->parameter_instruction(0);
  std::vector<HloInstruction*> elements;
  for (size_t i = 0; i < arrays.tuple_shapes().size(); ++i) {
    elements.push_back(
        computation->AddInstruction(HloInstruction::CreateGetTupleElement(
            arrays.tuple_shapes(i), parameter, i)));
  }
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * root, function(elements));
  computation->set_root_instruction(root, /*accept_different_shape=*/true);
  return computation;
}

}  // namespace

absl::StatusOr<HloInstruction*> AllOf(HloInstruction* truths) {
  std::vector<int64_t> dimensions(truths->shape().dimensions().size());
  if (dimensions.empty()) return truths;
  std::iota(dimensions.begin(), dimensions.end(), 0);
  HloInstruction* truth = truths->AddInstruction(
      HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0<bool>(true)));
  return xla::MakeReduceHlo(truths, truth, dimensions, xla::HloOpcode::kAnd);
}

absl::StatusOr<HloInstruction*> IfElse(HloInstruction* condition,
                                       absl::Span<HloInstruction* const> arrays,
                                       const xla::Shape& shape,
                                       const BuildFn& then,
                                       const BuildFn& otherwise) {
  HloComputation* computation = condition->parent();
  HloInstruction* tuple =
      computation->AddInstruction(HloInstruction::CreateTuple(arrays));
  xla::HloModule* module = computation->parent();
  HLOENV_ASSIGN_OR_RETURN(HloComputation * first,
                          BranchOf(module, tuple->shape(), then));
  HLOENV_ASSIGN_OR_RETURN(HloComputation * second,
                          BranchOf(module, tuple->shape(), otherwise));
  return computation->AddInstruction(HloInstruction::CreateConditional(
      shape, condition, tuple, first, tuple, second));
}

}  // namespace hloenv
