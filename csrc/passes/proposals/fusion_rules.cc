// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/fusion_rules.h"

#include "xla/hlo/analysis/alias_info.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/transforms/simplifiers/gather_simplifier.h"
#include "xla/service/instruction_fusion.h"

namespace xla::emitters {
// From codegen/emitters/elemental_hlo_to_mlir.h, which includes MLIR's headers.
bool IsSupportedElementalOp(HloOpcode opcode);
}  // namespace xla::emitters

namespace hloenv {

namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;
using xla::ShapeUtil;

const xla::AliasInfo& CpuAliasInfo() {
  static const auto* info = new xla::AliasInfo();
  return *info;
}

// Excludes packed types of fewer than eight bits and memory spaces other than
// the default.
bool IsStaticArray(const Shape& shape) {
  if (shape.has_layout() &&
      shape.layout().memory_space() != xla::Layout::kDefaultMemorySpace) {
    return false;
  }
  return shape.IsArray() && shape.is_static() &&
         !ShapeUtil::IsZeroElementArray(shape) &&
         (shape.element_type() == xla::PRED ||
          xla::primitive_util::BitWidth(shape.element_type()) >= 8);
}

// Reductions of several arrays have a tuple result.
bool IsLoopResult(const Shape& shape) {
  if (!shape.IsTuple()) return IsStaticArray(shape);
  return !shape.tuple_shapes().empty() &&
         std::all_of(shape.tuple_shapes().begin(), shape.tuple_shapes().end(),
                     IsStaticArray);
}

bool IsLoopOpcode(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kBroadcast:
    case HloOpcode::kConcatenate:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kDynamicUpdateSlice:
    case HloOpcode::kGather:
    case HloOpcode::kIota:
    case HloOpcode::kPad:
    case HloOpcode::kReduce:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
    case HloOpcode::kTranspose:
      return true;
    case HloOpcode::kConstant:
    case HloOpcode::kFusion:
      return false;
    default:
      return instruction.IsElementwise();
  }
}

// The emitter supports only the forms that dynamic-index-splitter and
// gather_simplifier produce; it fails a CHECK on other gathers.
bool IsCanonical(const HloInstruction& instruction) {
  if (const auto* gather =
          xla::DynCast<xla::HloGatherInstruction>(&instruction)) {
    return xla::GatherSimplifier::IsSimplifiedGather(gather);
  }
  if (const auto* dynamic =
          xla::DynCast<xla::HloDynamicIndexInstruction>(&instruction)) {
    const auto indices = dynamic->index_operands();
    return std::all_of(indices.begin(), indices.end(),
                       [](const HloInstruction* index) {
                         return ShapeUtil::IsScalar(index->shape());
                       });
  }
  return true;
}

// Reducers and mapped functions are emitted element by element too.
bool CallsOnlyElementalOps(const HloInstruction& instruction) {
  for (const xla::HloComputation* callee : instruction.called_computations()) {
    for (const HloInstruction* inner : callee->instructions()) {
      if (!xla::emitters::IsSupportedElementalOp(inner->opcode()) ||
          !CallsOnlyElementalOps(*inner)) {
        return false;
      }
    }
  }
  return true;
}

bool IsFree(const HloInstruction& instruction) {
  return !instruction.HasControlDependencies() &&
         !instruction.HasSideEffect() && !instruction.has_backend_config();
}

bool HasArrayOperands(const HloInstruction& instruction) {
  const auto& operands = instruction.operands();
  return std::all_of(operands.begin(), operands.end(),
                     [](const HloInstruction* operand) {
                       return IsStaticArray(operand->shape());
                     });
}

// The emitter of loops compares floats by value, whatever their order is.
bool IsTotalOrder(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kCompare) return false;
  const auto& compare = *xla::Cast<xla::HloCompareInstruction>(&instruction);
  return compare.order() == xla::Comparison::Order::kTotal &&
         ShapeUtil::ElementIsFloating(compare.operand(0)->shape());
}

bool IsLoopOperation(const HloInstruction& instruction) {
  return IsLoopOpcode(instruction) && instruction.IsFusible() &&
         !IsTotalOrder(instruction) &&
         xla::emitters::IsSupportedElementalOp(instruction.opcode()) &&
         IsFree(instruction) && IsLoopResult(instruction.shape()) &&
         HasArrayOperands(instruction) && IsCanonical(instruction) &&
         CallsOnlyElementalOps(instruction);
}

bool IsLoopFusion(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kFusion &&
         instruction.IsLoopFusion() && IsFree(instruction) &&
         IsLoopResult(instruction.shape()) && HasArrayOperands(instruction);
}

// Dots and scatters have emitters of their own, which compute only the fusion's
// root.
bool HasLoopRoot(const HloInstruction& fusion) {
  const HloOpcode root = fusion.fused_expression_root()->opcode();
  return root != HloOpcode::kDot && root != HloOpcode::kScatter;
}

// Whether the emitter of scatters would have to compute the array that it
// scatters into from `producer`. It updates the fusion's operand in place, and
// would leave memory as it is where that array is computed inside the fusion.
bool IsScatteredInto(const HloInstruction& producer,
                     const HloInstruction& consumer) {
  if (consumer.opcode() != HloOpcode::kFusion) return false;
  const HloInstruction* root = consumer.fused_expression_root();
  if (root->opcode() != HloOpcode::kScatter) return false;
  std::vector<const HloInstruction*> stack(
      root->operands().begin(),
      root->operands().begin() +
          xla::Cast<xla::HloScatterInstruction>(root)->scatter_operand_count());
  absl::flat_hash_set<const HloInstruction*> seen;
  while (!stack.empty()) {
    const HloInstruction* top = stack.back();
    stack.pop_back();
    if (!seen.insert(top).second) continue;
    if (top->opcode() == HloOpcode::kParameter &&
        consumer.operand(top->parameter_number()) == &producer) {
      return true;
    }
    stack.insert(stack.end(), top->operands().begin(), top->operands().end());
  }
  return false;
}

// A dot of a vector and `producer`, which need not be stored if fused. The
// backend's other dots are library calls.
bool IsDotOfVectorAnd(const HloInstruction& dot,
                      const HloInstruction& producer) {
  if (dot.opcode() != HloOpcode::kDot || !IsFree(dot) ||
      !IsLoopResult(dot.shape()) || !HasArrayOperands(dot) ||
      dot.shape().dimensions().size() > 1 || dot.operand(0) == dot.operand(1)) {
    return false;
  }
  const int vector = dot.operand(0) == &producer ? 1 : 0;
  return dot.operand(vector)->shape().dimensions().size() == 1;
}

// In-place updates overwrite an operand while the loop runs, so no other
// instruction in the loop may read that operand, except where XLA's rule shows
// that it reads only the elements about to be overwritten.
bool KeepsInPlaceOperand(const HloInstruction& producer,
                         const HloInstruction& consumer) {
  if (!xla::InstructionFusion::ShouldFuseInPlaceOp(
           &producer, &consumer, &CpuAliasInfo(), std::nullopt)
           .CanFuse()) {
    return false;
  }
  if (consumer.opcode() != HloOpcode::kFusion &&
      producer.opcode() != HloOpcode::kFusion) {
    return true;
  }
  // XLA's rule accepts elementwise producers, which is not safe inside a
  // fusion, where it depends on the users of the value.
  for (const auto& pair :
       CpuAliasInfo().GetInPlaceInputOutputPairs(&consumer)) {
    if (producer.IsUserOf(consumer.operand(pair.first.operand_number))) {
      return false;
    }
  }
  return true;
}

// Operations that a simplifier may rewrite as a view of their first operand if
// the sizes are equal.
bool MayBeView(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kBitcastConvert:
    case HloOpcode::kBroadcast:
    case HloOpcode::kConcatenate:
    case HloOpcode::kConvert:
    case HloOpcode::kCopy:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kPad:
    case HloOpcode::kReduce:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
    case HloOpcode::kTranspose: {
      const Shape& operand = instruction.operand(0)->shape();
      return instruction.shape().IsArray() && operand.IsArray() &&
             ShapeUtil::ByteSizeOfElements(instruction.shape()) ==
                 ShapeUtil::ByteSizeOfElements(operand);
    }
    case HloOpcode::kOptimizationBarrier:
      return true;
    default:
      return false;
  }
}

// Finds the instruction of whose buffer another may be a view: itself, or the
// source of its value through views, tuples and calls.
class BufferSources {
 public:
  const HloInstruction* Of(const HloInstruction* instruction) {
    while (true) {
      if (MayBeView(*instruction)) {
        instruction = instruction->operand(0);
      } else if (instruction->opcode() == HloOpcode::kGetTupleElement) {
        const HloInstruction* tuple = Of(instruction->operand(0));
        if (tuple->opcode() != HloOpcode::kTuple) return instruction;
        instruction = tuple->operand(instruction->tuple_index());
      } else if (instruction->opcode() == HloOpcode::kCall) {
        const HloInstruction* result = OfRoot(*instruction->to_apply());
        if (result->opcode() != HloOpcode::kParameter) return instruction;
        instruction = instruction->operand(result->parameter_number());
      } else {
        return instruction;
      }
    }
  }

 private:
  // Once for each computation, which may be called often.
  const HloInstruction* OfRoot(const xla::HloComputation& computation) {
    const auto found = of_roots_.find(&computation);
    if (found != of_roots_.end()) return found->second;
    const HloInstruction* source = Of(computation.root_instruction());
    of_roots_[&computation] = source;
    return source;
  }

  absl::flat_hash_map<const xla::HloComputation*, const HloInstruction*>
      of_roots_;
};

bool UpdatesInPlace(const HloInstruction& instruction) {
  return !CpuAliasInfo().GetInPlaceInputOutputPairs(&instruction).empty();
}

}  // namespace

bool IsScalarConstant(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kConstant &&
         instruction.shape().IsArray() &&
         ShapeUtil::IsEffectiveScalar(instruction.shape()) &&
         !instruction.HasControlDependencies();
}

bool IsOfConstant(const HloInstruction& instruction) {
  const HloInstruction& number = instruction.opcode() == HloOpcode::kBroadcast
                                     ? *instruction.operand(0)
                                     : instruction;
  return IsScalarConstant(number) && ShapeUtil::IsScalar(number.shape());
}

bool IsLoopFusible(const HloInstruction& instruction) {
  return IsLoopOperation(instruction) || IsLoopFusion(instruction);
}

bool CanFuseIntoLoop(const HloInstruction& producer,
                     const HloInstruction& consumer) {
  // As XLA: do not fuse a computation's root into a user of it.
  if (producer.IsRoot() || !IsLoopFusible(producer) ||
      !producer.shape().IsArray()) {
    return false;
  }
  if (producer.opcode() == HloOpcode::kFusion && !HasLoopRoot(producer)) {
    return false;
  }
  if (!IsLoopFusible(consumer) && !IsDotOfVectorAnd(consumer, producer)) {
    return false;
  }
  return !IsScatteredInto(producer, consumer) &&
         KeepsInPlaceOperand(producer, consumer);
}

bool CanFuseIntoOutput(const HloInstruction& producer,
                       const HloInstruction& consumer) {
  if (consumer.opcode() != HloOpcode::kAdd ||
      producer.opcode() != HloOpcode::kDot || producer.IsRoot()) {
    return false;
  }
  if (!IsFree(consumer) || !IsFree(producer) ||
      !IsLoopResult(consumer.shape()) || !HasArrayOperands(producer) ||
      consumer.operand(0) == consumer.operand(1)) {
    return false;
  }
  return !ShapeUtil::ElementIsComplex(producer.shape()) &&
         producer.shape().element_type() != xla::PRED &&
         producer.shape().dimensions().size() <= 1 &&
         producer.dot_dimension_numbers().lhs_batch_dimensions().empty();
}

bool CanShareLoop(const HloInstruction& first, const HloInstruction& second) {
  for (const HloInstruction* instruction : {&first, &second}) {
    if (!IsLoopFusible(*instruction) || !instruction->shape().IsArray() ||
        UpdatesInPlace(*instruction)) {
      return false;
    }
    if (instruction->opcode() == HloOpcode::kFusion &&
        !HasLoopRoot(*instruction)) {
      return false;
    }
  }
  return first.shape() == second.shape();
}

bool MayReadOneBufferTwice(absl::Span<const HloInstruction* const> operands) {
  BufferSources sources_of;
  absl::flat_hash_set<const HloInstruction*> sources;
  for (const HloInstruction* operand : operands) {
    if (!sources.insert(sources_of.Of(operand)).second) return true;
  }
  return false;
}

int64_t FusedSize(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kFusion) return 1;
  int64_t size = 0;
  for (const HloInstruction* fused : instruction.fused_instructions()) {
    if (fused->opcode() != HloOpcode::kParameter &&
        fused->opcode() != HloOpcode::kConstant) {
      ++size;
    }
  }
  return size;
}

int64_t FusedReductions(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kFusion) {
    return instruction.opcode() == HloOpcode::kReduce ? 1 : 0;
  }
  int64_t reductions = 0;
  for (const HloInstruction* fused : instruction.fused_instructions()) {
    if (fused->opcode() == HloOpcode::kReduce) ++reductions;
  }
  return reductions;
}

}  // namespace hloenv
