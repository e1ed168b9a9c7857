// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/region.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "backend/single_kernel.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_clone_context.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/transforms/expanders/dynamic_index_splitter.h"
#include "xla/hlo/transforms/simplifiers/hlo_dce.h"
#include "xla/service/scatter_expander.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

// Settings of the backend for a thunk, as the number of its threads, have no
// meaning inside a kernel; a loop keeps its trip count.
void ClearBackendConfigs(HloModule* module) {
  for (HloComputation* computation : module->computations()) {
    for (HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != HloOpcode::kWhile) {
        instruction->clear_backend_config();
      }
    }
  }
}

// Replaces a fusion by its instructions.
absl::Status Inline(HloInstruction* fusion) {
  HloComputation* computation = fusion->parent();
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> copies;
  for (const HloInstruction* fused :
       fusion->fused_instructions_computation()->MakeInstructionPostOrder()) {
    if (fused->opcode() == HloOpcode::kParameter) {
      copies[fused] = fusion->mutable_operand(fused->parameter_number());
      continue;
    }
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : fused->operands()) {
      operands.push_back(copies.at(operand));
    }
    copies[fused] = computation->AddInstruction(
        fused->CloneWithNewOperands(fused->shape(), operands));
  }
  return computation->ReplaceInstruction(
      fusion, copies.at(fusion->fused_expression_root()));
}

// Whether a fusion reduces something and then reads the result more than once,
// as softmax does. The emitter of single kernels would reduce again for each
// element that reads it.
bool RepeatsReduction(const HloInstruction& fusion) {
  const auto size_of = [](const HloInstruction* instruction) {
    const xla::Shape* shape = &instruction->shape();
    while (shape->IsTuple() && !shape->tuple_shapes().empty()) {
      shape = &shape->tuple_shapes(0);
    }
    return shape->IsArray() ? xla::ShapeUtil::ElementsIn(*shape) : int64_t{0};
  };
  const int64_t size = size_of(fusion.fused_expression_root());
  return absl::c_any_of(fusion.fused_instructions(), [&](const auto* fused) {
    switch (fused->opcode()) {
      case HloOpcode::kDot:
      case HloOpcode::kReduce:
      case HloOpcode::kReduceWindow:
        return size_of(fused) < size || fused->user_count() > 1;
      default:
        return false;
    }
  });
}

bool HasScatter(const HloInstruction& fusion) {
  return absl::c_any_of(fusion.fused_instructions(), [](const auto* fused) {
    return fused->opcode() == HloOpcode::kScatter;
  });
}

absl::Status RunPass(xla::HloPassInterface&& pass, HloModule* module) {
  return Annotate(pass.Run(module).status(), kPassError, pass.name());
}

}  // namespace

Region::Region(const std::vector<const HloInstruction*>& members,
               std::vector<const HloInstruction*> results)
    : results_(std::move(results)) {
  xla::HloModuleConfig config;
  config.set_debug_options(
      members.front()->GetModule()->config().debug_options());
  module_ = std::make_unique<HloModule>("region", std::move(config));
  HloComputation::Builder builder("region");
  xla::HloCloneContext context(module_.get(), /*suffix=*/"");
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> copies;
  const absl::flat_hash_set<const HloInstruction*> inside(members.begin(),
                                                          members.end());
  for (const HloInstruction* member : members) {
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : member->operands()) {
      HloInstruction*& copy = copies[operand];
      if (copy == nullptr && operand->opcode() == HloOpcode::kConstant) {
        copy = builder.AddInstruction(operand->Clone());
      } else if (copy == nullptr) {
        copy = builder.AddInstruction(HloInstruction::CreateParameter(
            static_cast<int64_t>(reads_.size()), operand->shape(), "param"));
        reads_.push_back(operand);
      }
      operands.push_back(copy);
    }
    copies[member] = builder.AddInstruction(
        member->CloneWithNewOperands(member->shape(), operands, &context));
  }
  HloInstruction* root = copies.at(results_.front());
  if (results_.size() > 1) {
    std::vector<HloInstruction*> elements;
    for (const HloInstruction* result : results_) {
      elements.push_back(copies.at(result));
    }
    root = builder.AddInstruction(HloInstruction::CreateTuple(elements));
  }
  module_->AddEntryComputationWithLayouts(builder.Build(root));
  ClearBackendConfigs(module_.get());
}

absl::Status Region::UndoFusions() {
  for (HloComputation* computation : module_->MakeNonfusionComputations()) {
    for (HloInstruction* instruction :
         computation->MakeInstructionPostOrder()) {
      if (instruction->opcode() == HloOpcode::kFusion &&
          (!instruction->IsLoopFusion() || HasScatter(*instruction) ||
           RepeatsReduction(*instruction))) {
        HLOENV_RETURN_IF_ERROR(Inline(instruction));
      }
    }
  }
  return RunPass(xla::HloDCE(), module_.get());
}

absl::Status Region::ExpandScatters() {
  HLOENV_RETURN_IF_ERROR(
      RunPass(xla::ScatterExpander(xla::ScatterExpander::kEliminateAllScatters),
              module_.get()));
  HLOENV_RETURN_IF_ERROR(RunPass(xla::DynamicIndexSplitter(), module_.get()));
  return RunPass(xla::HloDCE(), module_.get());
}

absl::StatusOr<std::vector<HloInstruction*>> Region::Call(ImageOf image) const {
  std::vector<HloInstruction*> operands;
  for (const HloInstruction* read : reads_) operands.push_back(image(read));
  HloComputation* caller = operands.front()->parent();
  xla::HloCloneContext context(caller->parent(), /*suffix=*/"");
  HloComputation* callee = caller->parent()->DeepCloneComputation(
      module_->entry_computation(), &context);
  HloInstruction* call = caller->AddInstruction(HloInstruction::CreateCall(
      callee->root_instruction()->shape(), operands, callee));
  call->set_metadata(results_.back()->metadata());
  MarkSingleKernel(call);
  if (results_.size() == 1) return std::vector<HloInstruction*>{call};
  std::vector<HloInstruction*> elements;
  for (const HloInstruction* result : results_) {
    elements.push_back(
        caller->AddInstruction(HloInstruction::CreateGetTupleElement(
            result->shape(), call, static_cast<int64_t>(elements.size()))));
    result->SetupDerivedInstruction(elements.back());
  }
  return elements;
}

}  // namespace hloenv
