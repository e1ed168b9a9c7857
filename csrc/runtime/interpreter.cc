// SPDX-License-Identifier: Apache-2.0
#include "runtime/interpreter.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "hlo/indexing.h"
#include "hlo/layouts.h"
#include "support/status.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/pass/hlo_pass_interface.h"
#include "xla/hlo/transforms/expanders/cholesky_expander.h"
#include "xla/hlo/utils/hlo_query.h"
#include "xla/service/batched_gather_scatter_normalizer.h"
#include "xla/service/triangular_solve_expander.h"

namespace hloenv {
namespace {

// A copy of `shape` whose arrays are all row-major.
xla::Shape RowMajor(const xla::Shape& shape) {
  xla::Shape result = shape;
  xla::LayoutUtil::SetToDefaultLayout(&result);
  return result;
}

absl::Status FillLeaves(absl::Span<const Bytes> inputs, size_t* next,
                        xla::Literal* literal) {
  absl::Status status;
  xla::ShapeUtil::ForEachSubshape(
      literal->shape(), [&](const xla::Shape& leaf, const xla::ShapeIndex& at) {
        if (leaf.IsTuple() || !status.ok()) return;
        if (*next >= inputs.size()) {
          status = Error(kArgumentError,
                         absl::StrCat("the module takes more than the ",
                                      inputs.size(), " given arrays"));
          return;
        }
        const Bytes bytes = inputs[(*next)++];
        if (!leaf.IsArray()) return;
        const auto size = static_cast<size_t>(literal->size_bytes(at));
        if (bytes.size() != size) {
          status = Error(
              kArgumentError,
              absl::StrCat("input ", *next - 1, " has ", bytes.size(),
                           " bytes, but ", leaf.ToString(), " takes ", size));
          return;
        }
        std::memcpy(literal->untyped_data(at), bytes.data(), size);
      });
  return status;
}

// The arguments as row-major literals.
absl::StatusOr<std::vector<xla::Literal>> MakeArguments(
    const Module& module, absl::Span<const Bytes> inputs) {
  std::vector<xla::Literal> literals;
  size_t next = 0;
  for (const xla::HloInstruction* parameter :
       module.hlo().entry_computation()->parameter_instructions()) {
    absl::StatusOr<xla::Literal> made =
        xla::Literal::Make(RowMajor(parameter->shape()));
    if (!made.ok()) {
      return Annotate(made.status(), kExecuteError,
                      "cannot allocate an argument");
    }
    literals.push_back(*std::move(made));
    HLOENV_RETURN_IF_ERROR(FillLeaves(inputs, &next, &literals.back()));
  }
  if (next != inputs.size()) {
    return Error(kArgumentError,
                 absl::StrCat("the module takes ", next, " arrays, but ",
                              inputs.size(), " were given"));
  }
  return literals;
}

absl::StatusOr<xla::Literal> Evaluate(const Module& module,
                                      const std::vector<xla::Literal>& rows,
                                      const OnCustomCall& on_custom_call,
                                      bool use_fast_path) {
  const xla::HloComputation* entry = module.hlo().entry_computation();
  std::vector<xla::Literal> literals;
  std::vector<const xla::Literal*> arguments;
  literals.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    literals.push_back(
        rows[i].Relayout(entry->parameter_instruction(i)->shape()));
    arguments.push_back(&literals.back());
  }
  xla::HloEvaluator evaluator;
  evaluator.set_use_fast_path(use_fast_path);
  if (on_custom_call != nullptr) {
    evaluator.set_custom_call_handler(on_custom_call);
  }
  try {
    return evaluator.Evaluate(*entry, arguments);
  } catch (const absl::BadStatusOrAccess& error) {
    // What a map or a reduction applies is evaluated without a check.
    return error.status();
  }
}

// Replaces fusions that contain batched gathers or scatters with calls, because
// XLA's expanders skip fusion computations.
absl::Status OpenFusions(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->MakeComputationPostOrder()) {
    for (xla::HloInstruction* fusion :
         computation->MakeInstructionPostOrder()) {
      if (fusion->opcode() != xla::HloOpcode::kFusion) continue;
      xla::HloComputation* fused = fusion->fused_instructions_computation();
      if (!HasBatchedIndexing(*fused)) continue;
      HLOENV_RETURN_IF_ERROR(computation->ReplaceWithNewInstruction(
          fusion, xla::HloInstruction::CreateCall(
                      fusion->shape(), fusion->operands(),
                      module->AddEmbeddedComputation(fused->Clone()))));
    }
  }
  return absl::OkStatus();
}

// Whether two shapes are arrays of different layouts, or tuples with such.
bool HaveOtherLayouts(const xla::Shape& a, const xla::Shape& b) {
  return !xla::LayoutUtil::LayoutsInShapesEqual(a, b);
}

// Whether the body of a fusion has other layouts than its operands or its
// result. The evaluator gives the body its operands as they are, so that
// instructions that read bytes (bitcast, fft) read others than they should.
bool HasOtherLayoutsInside(const xla::HloInstruction& fusion) {
  const xla::HloComputation& body = *fusion.fused_instructions_computation();
  for (int64_t i = 0; i < fusion.operand_count(); ++i) {
    if (HaveOtherLayouts(fusion.operand(i)->shape(),
                         body.parameter_instruction(i)->shape())) {
      return true;
    }
  }
  return HaveOtherLayouts(fusion.shape(), body.root_instruction()->shape());
}

// A copy of `value` with the layouts of `shape`.
xla::HloInstruction* WithLayoutsOf(const xla::Shape& shape,
                                   xla::HloInstruction* value) {
  xla::HloComputation* computation = value->parent();
  if (!HaveOtherLayouts(shape, value->shape())) return value;
  if (!shape.IsTuple()) {
    return computation->AddInstruction(
        xla::HloInstruction::CreateUnary(shape, xla::HloOpcode::kCopy, value));
  }
  std::vector<xla::HloInstruction*> elements;
  for (size_t i = 0; i < shape.tuple_shapes().size(); ++i) {
    elements.push_back(WithLayoutsOf(
        shape.tuple_shapes()[i],
        computation->AddInstruction(xla::HloInstruction::CreateGetTupleElement(
            value, static_cast<int64_t>(i)))));
  }
  return computation->AddInstruction(
      xla::HloInstruction::CreateTuple(elements));
}

// Copies operands and results of fusions to the layouts that they are read in.
absl::Status CopyToLayouts(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->MakeComputationPostOrder()) {
    for (xla::HloInstruction* fusion :
         computation->MakeInstructionPostOrder()) {
      if (fusion->opcode() != xla::HloOpcode::kFusion) continue;
      xla::HloComputation* body = fusion->fused_instructions_computation();
      for (int64_t i = 0; i < fusion->operand_count(); ++i) {
        HLOENV_RETURN_IF_ERROR(fusion->ReplaceOperandWith(
            i, WithLayoutsOf(body->parameter_instruction(i)->shape(),
                             fusion->mutable_operand(i))));
      }
      body->set_root_instruction(
          WithLayoutsOf(fusion->shape(), body->root_instruction()));
    }
  }
  return absl::OkStatus();
}

bool HasFusionOfOtherLayouts(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() == xla::HloOpcode::kFusion &&
          HasOtherLayoutsInside(*instruction)) {
        return true;
      }
    }
  }
  return false;
}

bool Contains(const xla::HloModule& module, xla::HloOpcode opcode) {
  return xla::hlo_query::ContainsInstrWithOpcode(module.entry_computation(),
                                                 {opcode});
}

// A copy whose arrays are all row-major. The evaluator reports an error when an
// argument of a called computation has another layout than its parameter. It
// moves values by index, so layouts do not affect values unless an instruction
// depends on the bytes (DependsOnLayouts).
Module WithRowMajorArrays(const Module& module) {
  std::unique_ptr<xla::HloModule> clone = module.CloneHlo();
  for (xla::HloComputation* computation : clone->computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != xla::HloOpcode::kConstant) {
        xla::LayoutUtil::SetToDefaultLayout(instruction->mutable_shape());
      } else if (instruction->shape().IsArray()) {
        instruction->RelayoutConstant(RowMajor(instruction->shape()).layout());
      }
    }
  }
  return Module(std::move(clone));
}

}  // namespace

absl::StatusOr<Module> ForEvaluator(const Module& module) {
  std::vector<std::unique_ptr<xla::HloModulePass>> passes;
  if (HasBatchedIndexing(module.hlo())) {
    passes.push_back(std::make_unique<xla::BatchedGatherScatterNormalizer>());
  }
  if (Contains(module.hlo(), xla::HloOpcode::kCholesky)) {
    passes.push_back(std::make_unique<xla::CholeskyExpander>());
  }
  if (Contains(module.hlo(), xla::HloOpcode::kTriangularSolve)) {
    passes.push_back(std::make_unique<xla::TriangularSolveExpander>());
  }
  const bool has_other_layouts = HasFusionOfOtherLayouts(module.hlo());
  if (passes.empty() && !has_other_layouts) return module;
  std::unique_ptr<xla::HloModule> clone = module.CloneHlo();
  if (has_other_layouts) HLOENV_RETURN_IF_ERROR(CopyToLayouts(clone.get()));
  if (passes.empty()) return Module(std::move(clone));
  HLOENV_RETURN_IF_ERROR(OpenFusions(clone.get()));
  for (const std::unique_ptr<xla::HloModulePass>& pass : passes) {
    absl::StatusOr<bool> changed = pass->Run(clone.get());
    if (!changed.ok()) {
      return Annotate(changed.status(), kExecuteError,
                      absl::StrCat("XLA's ", pass->name(),
                                   " failed, and its evaluator cannot run the "
                                   "module without it"));
    }
  }
  return Module(std::move(clone));
}

absl::StatusOr<std::vector<std::string>> Interpret(
    const Module& given, absl::Span<const Bytes> inputs,
    OnCustomCall on_custom_call, const std::function<void()>& on_attempt) {
  HLOENV_ASSIGN_OR_RETURN(const Module module, ForEvaluator(given));
  HLOENV_ASSIGN_OR_RETURN(const std::vector<xla::Literal> arguments,
                          MakeArguments(module, inputs));
  const auto evaluated = [&](const Module& of, bool use_fast_path) {
    if (on_attempt != nullptr) on_attempt();
    return Evaluate(of, arguments, on_custom_call, use_fast_path);
  };
  absl::StatusOr<xla::Literal> result =
      evaluated(module, /*use_fast_path=*/true);
  // The fast path of dot, and transpose, may return another layout than their
  // shape says; passing that result to a called computation is an error.
  if (!result.ok()) {
    result = evaluated(module, /*use_fast_path=*/false);
  }
  if (!result.ok() && !DependsOnLayouts(module.hlo())) {
    result = evaluated(WithRowMajorArrays(module), /*use_fast_path=*/false);
  }
  if (!result.ok()) {
    return Annotate(result.status(), kExecuteError,
                    absl::StrCat("XLA's evaluator cannot run module '",
                                 module.name(), "'"));
  }
  std::vector<std::string> outputs;
  const xla::Literal rows = result->Relayout(RowMajor(result->shape()));
  xla::ShapeUtil::ForEachSubshape(
      rows.shape(), [&](const xla::Shape& leaf, const xla::ShapeIndex& at) {
        if (leaf.IsTuple()) return;
        if (!leaf.IsArray()) {
          outputs.emplace_back();
          return;
        }
        outputs.emplace_back(static_cast<const char*>(rows.untyped_data(at)),
                             rows.size_bytes(at));
      });
  return outputs;
}

}  // namespace hloenv
