// SPDX-License-Identifier: Apache-2.0
// Which passes XLA's pipeline skips after decisions, and which it always runs.
// Determined by skipping each pass on real and on small modules, and compiling
// and running the result.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "pipeline/xla_pipeline.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal.h"
#include "xla/service/call_graph.h"
#include "xla/service/call_inliner.h"

namespace hloenv {
namespace {

// algsimp removes transposes of scalars; the fusion emitter crashes on the
// empty permutation.
absl::Status RemoveEmptyTransposes(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* instruction :
         computation->MakeInstructionPostOrder()) {
      if (instruction->opcode() == xla::HloOpcode::kTranspose &&
          instruction->dimensions().empty()) {
        HLOENV_RETURN_IF_ERROR(computation->ReplaceInstruction(
            instruction, instruction->mutable_operand(0)));
      }
    }
  }
  return absl::OkStatus();
}

// The simplifiers expand tuple constants to tuples of constants;
// literal-canonicalizer and the backend crash on tuple constants.
absl::Status ExpandTupleConstants(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    // Elements that are tuples are appended and expanded in turn.
    std::vector<xla::HloInstruction*> left =
        computation->MakeInstructionPostOrder();
    while (!left.empty()) {
      xla::HloInstruction* constant = left.back();
      left.pop_back();
      if (constant->opcode() != xla::HloOpcode::kConstant ||
          !constant->shape().IsTuple()) {
        continue;
      }
      std::vector<xla::HloInstruction*> elements;
      const int64_t size = constant->shape().tuple_shapes().size();
      for (int64_t i = 0; i < size; ++i) {
        xla::LiteralSlice element(constant->literal(), {i});
        elements.push_back(computation->AddInstruction(
            xla::HloInstruction::CreateConstant(element.Clone())));
      }
      left.insert(left.end(), elements.begin(), elements.end());
      HLOENV_RETURN_IF_ERROR(computation->ReplaceWithNewInstruction(
          constant, xla::HloInstruction::CreateTuple(elements)));
    }
  }
  return absl::OkStatus();
}

// Puts what calls run in their place, until the computation has no call.
absl::Status InlineCalls(xla::HloComputation* computation) {
  std::vector<xla::HloInstruction*> calls;
  do {
    for (xla::HloInstruction* call : calls) {
      HLOENV_RETURN_IF_ERROR(xla::CallInliner::Inline(call).status());
    }
    calls.clear();
    for (xla::HloInstruction* each : computation->instructions()) {
      if (each->opcode() == xla::HloOpcode::kCall) calls.push_back(each);
    }
  } while (!calls.empty());
  return absl::OkStatus();
}

// call-inliner removes calls from what is applied to elements, as by a
// reduction, a scatter or a sort; the backend has no code for them there.
absl::Status InlineAppliedCalls(xla::HloModule* module) {
  for (xla::HloComputation* caller : module->MakeComputationPostOrder()) {
    for (xla::HloInstruction* instruction : caller->instructions()) {
      if (xla::GetInstructionCallContext(instruction->opcode()) !=
          xla::CallContext::kEmbedded) {
        continue;
      }
      for (xla::HloComputation* applied : instruction->called_computations()) {
        HLOENV_RETURN_IF_ERROR(InlineCalls(applied));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<SkipRule>& SkipRules() {
  static const auto* rules = new std::vector<SkipRule>({
      {"algsimp", "batch-dot-simplification",
       "removes degenerate batch dimensions from dots, as algsimp does",
       /*makes_the_same=*/true},
      {"algsimp", "tuple-simplifier", "looks through tuples, as algsimp does",
       /*makes_the_same=*/true},
      {"algsimp", "zero_sized_hlo_elimination",
       "replaces arrays without elements, as algsimp does",
       /*makes_the_same=*/true},
      {"fusion", "cpu_multi_output_fusion",
       "would apply rejected fusions, with several outputs"},
      {"general-fusion", "cpu_multi_output_fusion",
       "would apply rejected fusions, with several outputs"},
      {"general-fusion", "fusion", "would apply rejected fusions"},
  });
  return *rules;
}

const std::vector<NeededPass>& NeededPasses() {
  static constexpr absl::string_view kNoEmitter =
      "the backend has no code for the operations that it expands";
  static const auto* passes = new std::vector<NeededPass>({
      {"all_to_all_decomposer", kNoEmitter},
      {"batched_gather_scatter_normalizer",
       "XLA's gather and scatter simplifiers do not support batch dimensions"},
      {"batchnorm_expander", kNoEmitter},
      {"bitcast_dtypes_expander",
       "the backend crashes on casts that change the number of elements"},
      {"cholesky_expander", kNoEmitter},
      {"comparison-expander", "the backend compares floats in no total order"},
      {"conditional-to-select",
       "the backend has no conditionals in what an operation applies"},
      {"convolution-group-converter",
       "the backend has no convolutions with batch groups"},
      {"copy-insertion", "without its copies, buffers are overwritten in use"},
      {"dce",
       "the backend would run dead code, and copy insertion does not support "
       "it"},
      {"dot_decomposer", "the backend supports canonical dots only"},
      {"dynamic-index-splitter",
       "the backend crashes on dynamic slices with one array of indices"},
      {"dynamic_padder", "the backend does not support dynamic shapes"},
      {"eigh_expander", kNoEmitter},
      {"flatten-call-graph", "copy insertion needs a flat call graph"},
      {"float-normalization-*",
       "the backend has no arithmetic in the types that it removes"},
      {"fusion-wrapper",
       "the backend has code for some operations in fusions only"},
      {"gather_simplifier",
       "the backend crashes on gathers that are not simple"},
      {"layout-assignment", "the backend needs layouts"},
      {"logistic-expander", kNoEmitter},
      {"operand_upcaster",
       "the backend reads operands as if they had the type of the result"},
      {"qr_expander", kNoEmitter},
      {"result_caster",
       "the backend writes results as if they had the type of the operands"},
      {"rng-bit-generator-expander", kNoEmitter},
      {"rng-expander", kNoEmitter},
      {"scatter_simplifier",
       "the backend crashes on scatters that are not simple"},
      {"select_and_scatter_expander", kNoEmitter},
      {"sharding-remover", kNoEmitter},
      {"stochastic_convert_decomposer", kNoEmitter},
      {"sub-byte-size-setter",
       "the backend packs elements smaller than a byte"},
      {"topk-decomposer", kNoEmitter},
      {"triangular_solve_expander", kNoEmitter},
  });
  return *passes;
}

absl::Status LegalizeBefore(absl::string_view pass, xla::HloModule* module) {
  // After fusion, the transposes are inside fusion computations.
  if (pass == "fusion") {
    HLOENV_RETURN_IF_ERROR(InlineAppliedCalls(module));
    return RemoveEmptyTransposes(module);
  }
  if (pass == "literal-canonicalizer") return ExpandTupleConstants(module);
  return absl::OkStatus();
}

namespace {

absl::Status CheckFusionLayouts(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    const xla::HloInstruction* root = computation->root_instruction();
    if (!computation->IsFusionComputation() ||
        root->opcode() != xla::HloOpcode::kTuple) {
      continue;
    }
    for (int64_t i = 0; i < root->operand_count(); ++i) {
      const xla::Shape& computed = root->operand(i)->shape();
      if (xla::Shape::Equal().MinorToMajorOnlyInLayout()(
              computed, root->shape().tuple_shapes(i))) {
        continue;
      }
      return Error(
          kCompileError,
          absl::StrCat(
              "XLA's layout assignment gives result ", i, " of the fusion '",
              computation->FusionInstruction()->name(), "' the layout of ",
              root->shape().tuple_shapes(i).ToString(/*print_layout=*/true),
              ", but its body computes ",
              computed.ToString(/*print_layout=*/true),
              ", so the values would be wrong; decide fusions with several "
              "results after layout assignment (run_until('fusion'))"));
    }
  }
  return absl::OkStatus();
}

absl::Status SplitTopK(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* topk : computation->MakeInstructionPostOrder()) {
      if (topk->opcode() != xla::HloOpcode::kTopK) continue;
      std::vector<xla::HloInstruction*> readers;
      for (xla::HloInstruction* user : topk->users()) {
        if (user->opcode() != xla::HloOpcode::kGetTupleElement) {
          readers.push_back(user);
        }
      }
      const bool is_root = topk->IsRoot();
      if (readers.empty() && !is_root) continue;
      std::vector<xla::HloInstruction*> elements;
      for (int64_t i = 0;
           i < static_cast<int64_t>(topk->shape().tuple_shapes().size()); ++i) {
        elements.push_back(computation->AddInstruction(
            xla::HloInstruction::CreateGetTupleElement(topk, i)));
      }
      xla::HloInstruction* tuple = computation->AddInstruction(
          xla::HloInstruction::CreateTuple(elements));
      for (xla::HloInstruction* reader : readers) {
        HLOENV_RETURN_IF_ERROR(topk->ReplaceUseWith(reader, tuple));
      }
      if (is_root) computation->set_root_instruction(tuple);
    }
  }
  return absl::OkStatus();
}

// Makes rng-bit-generators that return only the bits return the next state too.
absl::Status AddRandomStates(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* bits : computation->MakeInstructionPostOrder()) {
      if (bits->opcode() != xla::HloOpcode::kRngBitGenerator ||
          bits->shape().IsTuple()) {
        continue;
      }
      xla::HloInstruction* state = bits->mutable_operand(0);
      xla::HloInstruction* both =
          computation->AddInstruction(bits->CloneWithNewOperands(
              xla::ShapeUtil::MakeTupleShape({state->shape(), bits->shape()}),
              {state}));
      HLOENV_RETURN_IF_ERROR(computation->ReplaceWithNewInstruction(
          bits, xla::HloInstruction::CreateGetTupleElement(both, 1)));
    }
  }
  return absl::OkStatus();
}

// HLO lets the bounds of a clamp be scalars; the fusion emitter crashes on
// them.
absl::Status BroadcastClampBounds(xla::HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* clamp : computation->MakeInstructionPostOrder()) {
      if (clamp->opcode() != xla::HloOpcode::kClamp) continue;
      for (int64_t i : {0, 2}) {
        xla::HloInstruction* bound = clamp->mutable_operand(i);
        if (bound->shape().dimensions() == clamp->shape().dimensions()) {
          continue;
        }
        const absl::Span<const int64_t> kNone;
        xla::Shape shape = clamp->shape();
        shape.set_element_type(bound->shape().element_type());
        HLOENV_RETURN_IF_ERROR(clamp->ReplaceOperandWithDifferentShape(
            i, computation->AddInstruction(
                   xla::HloInstruction::CreateBroadcast(shape, bound, kNone))));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WorkAroundBugsBefore(absl::string_view pass,
                                  xla::HloModule* module) {
  if (pass == "topk-decomposer") return SplitTopK(module);
  if (pass == "rng-bit-generator-expander") return AddRandomStates(module);
  if (pass == "fusion") return BroadcastClampBounds(module);
  if (pass == "shape-canonicalizer") return CheckFusionLayouts(*module);
  return absl::OkStatus();
}

bool IsNeeded(absl::string_view name) {
  for (const NeededPass& pass : NeededPasses()) {
    absl::string_view stem = pass.name;
    const bool is_prefix = absl::ConsumeSuffix(&stem, "*");
    if (is_prefix ? absl::StartsWith(name, stem) : name == stem) return true;
  }
  return false;
}

DecidedPasses ReadDecided(const std::vector<std::string>& entries) {
  DecidedPasses passes;
  absl::flat_hash_set<std::string> against;  // passes decided against
  for (const std::string& entry : entries) {
    if (const size_t at = entry.find('!'); at != std::string::npos) {
      const absl::string_view run = absl::string_view(entry).substr(at + 1);
      passes.replaced[entry.substr(0, at)] = {absl::StartsWith(run, "1"),
                                              absl::EndsWith(run, "=")};
      continue;
    }
    const size_t at = entry.find('?');
    const std::string name = entry.substr(0, at);
    if (at == std::string::npos) {
      passes.skipped.insert(name);
      against.insert(name);
    } else if (at + 1 < entry.size()) {
      passes.rejected.insert(entry.substr(at + 1));
      passes.filtered.insert(name);
      against.insert(name);
    }
  }
  for (const SkipRule& rule : SkipRules()) {
    if (!against.contains(rule.decided)) continue;
    const bool is_filter =
        rule.makes_the_same && !passes.skipped.contains(rule.decided);
    (is_filter ? passes.filtered : passes.skipped)
        .insert(std::string(rule.skipped));
  }
  for (auto* names : {&passes.skipped, &passes.filtered}) {
    absl::erase_if(*names,
                   [](const std::string& name) { return IsNeeded(name); });
  }
  return passes;
}

}  // namespace hloenv
