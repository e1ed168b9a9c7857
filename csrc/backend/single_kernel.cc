// SPDX-License-Identifier: Apache-2.0
// The lists here were determined by compiling each operation of each type as a
// single kernel, with this XLA and with jaxlib 0.10.2.
#include "backend/single_kernel.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "backend/thunk_order.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/layout_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::PrimitiveType;
using xla::Shape;

constexpr char kAttribute[] = "xla_cpu_small_call";
constexpr char kOn[] = "true";

// Where an instruction is.
enum class KernelPlace {
  kControlFlow,  // in the entry, a loop, a branch or a call
  kFusion,
  kScalar,  // in the function of a reduction
};

bool IsSupportedType(PrimitiveType type) {
  switch (type) {
    case xla::PRED:
    case xla::S8:
    case xla::S16:
    case xla::S32:
    case xla::S64:
    case xla::U8:
    case xla::U16:
    case xla::U32:
    case xla::U64:
    case xla::BF16:
    case xla::F16:
    case xla::F32:
    case xla::F64:
    case xla::C64:
    case xla::C128:
      return true;
    default:
      return false;
  }
}

bool IsSupportedArray(const Shape& shape) {
  return shape.IsArray() && shape.is_static() && shape.has_layout() &&
         shape.layout().tiles().empty() && shape.layout().memory_space() == 0 &&
         shape.layout().element_size_in_bits() == 0 &&
         IsSupportedType(shape.element_type());
}

bool IsSupportedShape(const Shape& shape) {
  bool all = true;
  xla::ShapeUtil::ForEachSubshape(
      shape, [&all](const Shape& each, const xla::ShapeIndex&) {
        all = all && (each.IsTuple() || IsSupportedArray(each));
      });
  return all;
}

bool IsBf16(const HloInstruction& instruction) {
  return instruction.shape().IsArray() &&
         instruction.shape().element_type() == xla::BF16;
}

// The type of all operands and of the result; PRIMITIVE_TYPE_INVALID if they
// differ.
PrimitiveType OnlyType(const HloInstruction& instruction) {
  const PrimitiveType type = instruction.shape().element_type();
  for (const HloInstruction* operand : instruction.operands()) {
    if (operand->shape().element_type() != type) {
      return xla::PRIMITIVE_TYPE_INVALID;
    }
  }
  return type;
}

bool IsRowMajor(const Shape& shape) {
  return xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout());
}

// Canonical dots only; batch dimensions must be outermost in memory.
bool IsSupportedDot(const HloInstruction& dot) {
  const xla::DotDimensionNumbers& numbers = dot.dot_dimension_numbers();
  const PrimitiveType type = OnlyType(dot);
  if (type == xla::PRIMITIVE_TYPE_INVALID || type == xla::BF16 ||
      type == xla::PRED || numbers.lhs_contracting_dimensions_size() != 1) {
    return false;
  }
  const int64_t batch = numbers.lhs_batch_dimensions_size();
  for (int64_t i = 0; i < batch; ++i) {
    if (numbers.lhs_batch_dimensions(i) != i ||
        numbers.rhs_batch_dimensions(i) != i) {
      return false;
    }
  }
  // One free dimension at most, as dot_decomposer leaves it.
  for (const HloInstruction* operand : dot.operands()) {
    if (static_cast<int64_t>(operand->shape().dimensions().size()) >
        batch + 2) {
      return false;
    }
  }
  return batch == 0 ||
         (IsRowMajor(dot.shape()) && IsRowMajor(dot.operand(0)->shape()) &&
          IsRowMajor(dot.operand(1)->shape()));
}

bool IsSupportedConvolution(const HloInstruction& convolution) {
  const PrimitiveType type = OnlyType(convolution);
  return (type == xla::F16 || type == xla::F32 || type == xla::F64) &&
         convolution.feature_group_count() == 1 &&
         convolution.batch_group_count() == 1;
}

bool IsSupportedConvert(const HloInstruction& convert) {
  const auto is_complex = [](const HloInstruction& each) {
    return xla::primitive_util::IsComplexType(each.shape().element_type());
  };
  return is_complex(convert) || !is_complex(*convert.operand(0));
}

bool HasNegativePadding(const HloInstruction& pad) {
  return std::any_of(pad.padding_config().dimensions().begin(),
                     pad.padding_config().dimensions().end(),
                     [](const auto& dimension) {
                       return dimension.edge_padding_low() < 0 ||
                              dimension.edge_padding_high() < 0;
                     });
}

// Operations that move elements, of any type.
bool Moves(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kBitcast:
    case HloOpcode::kBroadcast:
    case HloOpcode::kConcatenate:
    case HloOpcode::kConstant:
    case HloOpcode::kConvert:
    case HloOpcode::kCopy:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kDynamicUpdateSlice:
    case HloOpcode::kGather:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kPad:
    case HloOpcode::kParameter:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kSelect:
    case HloOpcode::kSlice:
    case HloOpcode::kTranspose:
    case HloOpcode::kTuple:
      return true;
    default:
      return false;
  }
}

bool IsSupportedElementwise(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAbs:
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kAtan2:
    case HloOpcode::kCbrt:
    case HloOpcode::kCeil:
    case HloOpcode::kClamp:
    case HloOpcode::kClz:
    case HloOpcode::kCompare:
    case HloOpcode::kComplex:
    case HloOpcode::kCos:
    case HloOpcode::kDivide:
    case HloOpcode::kErf:
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
    case HloOpcode::kFloor:
    case HloOpcode::kImag:
    case HloOpcode::kIota:
    case HloOpcode::kIsFinite:
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kPopulationCount:
    case HloOpcode::kPower:
    case HloOpcode::kReal:
    case HloOpcode::kReducePrecision:
    case HloOpcode::kRemainder:
    case HloOpcode::kRoundNearestAfz:
    case HloOpcode::kRoundNearestEven:
    case HloOpcode::kRsqrt:
    case HloOpcode::kShiftLeft:
    case HloOpcode::kShiftRightArithmetic:
    case HloOpcode::kShiftRightLogical:
    case HloOpcode::kSign:
    case HloOpcode::kSin:
    case HloOpcode::kSqrt:
    case HloOpcode::kSubtract:
    case HloOpcode::kTan:
    case HloOpcode::kTanh:
    case HloOpcode::kXor:
      return true;
    default:
      return false;
  }
}

// Without what the instruction calls.
bool IsSupported(const HloInstruction& instruction, KernelPlace place) {
  const HloOpcode opcode = instruction.opcode();
  switch (opcode) {
    case HloOpcode::kConvert:
      return IsSupportedConvert(instruction);
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kDynamicUpdateSlice:
      // One scalar per dimension, not one array of them.
      return instruction.operands().back()->shape().dimensions().empty();
    case HloOpcode::kPad:
      return !HasNegativePadding(instruction);
    case HloOpcode::kBitcastConvert:
      return xla::primitive_util::BitWidth(
                 instruction.shape().element_type()) ==
             xla::primitive_util::BitWidth(
                 instruction.operand(0)->shape().element_type());
    case HloOpcode::kDot:
      return place != KernelPlace::kScalar && IsSupportedDot(instruction);
    case HloOpcode::kConvolution:
      return place == KernelPlace::kControlFlow &&
             IsSupportedConvolution(instruction);
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
      return place != KernelPlace::kScalar;
    case HloOpcode::kMap:
    case HloOpcode::kCall:
    case HloOpcode::kConditional:
    case HloOpcode::kWhile:
      return place == KernelPlace::kControlFlow;
    default:
      break;
  }
  if (Moves(opcode)) return true;
  // float-normalization leaves no arithmetic in bf16.
  return IsSupportedElementwise(opcode) && !IsBf16(instruction);
}

// Nested calls, and instructions, beyond which nothing is supported.
constexpr int kMaxNestedCalls = 256;
constexpr int64_t kMaxCounted = int64_t{1} << 40;

// Inspects each computation once for each place, however often it is called.
class Inspection {
 public:
  void Add(const HloComputation& computation, KernelPlace place) {
    const auto key = std::make_pair(&computation, place);
    const auto found = of_computations_.find(key);
    if (found != of_computations_.end()) {
      Add(found->second);
      return;
    }
    if (++depth_ > kMaxNestedCalls) contents_.is_supported = false;
    const KernelContents outside = std::exchange(contents_, {});
    if (depth_ <= kMaxNestedCalls) {
      for (const HloInstruction* instruction : computation.instructions()) {
        Add(*instruction, place);
      }
    }
    --depth_;
    const KernelContents inside = std::exchange(contents_, outside);
    of_computations_[key] = inside;
    Add(inside);
  }

  void Add(const HloInstruction& instruction, KernelPlace place) {
    if (!IsFree(instruction)) ++contents_.num_instructions;
    if (!IsSupportedShape(instruction.shape()) ||
        instruction.HasControlDependencies()) {
      contents_.is_supported = false;
      return;
    }
    if (instruction.opcode() == HloOpcode::kFusion) {
      AddFusion(instruction, place);
      return;
    }
    if (instruction.opcode() == HloOpcode::kScatter) {
      ++contents_.num_scatters;
    } else if (!IsSupported(instruction, place)) {
      contents_.is_supported = false;
      return;
    }
    const bool has_code = instruction.opcode() == HloOpcode::kCall ||
                          instruction.opcode() == HloOpcode::kConditional ||
                          instruction.opcode() == HloOpcode::kWhile;
    for (const HloComputation* callee : instruction.called_computations()) {
      Add(*callee, has_code ? KernelPlace::kControlFlow : KernelPlace::kScalar);
    }
  }

  const KernelContents& contents() const { return contents_; }

 private:
  void AddFusion(const HloInstruction& fusion, KernelPlace place) {
    --contents_.num_instructions;  // its instructions count instead
    if (place != KernelPlace::kControlFlow) {
      contents_.is_supported = false;
      return;
    }
    const bool is_loop = fusion.IsLoopFusion();
    if (!is_loop) ++contents_.num_other_fusions;
    Add(*fusion.fused_instructions_computation(),
        is_loop ? KernelPlace::kFusion : KernelPlace::kControlFlow);
  }

  void Add(const KernelContents& inside) {
    contents_.is_supported &= inside.is_supported;
    contents_.num_other_fusions += inside.num_other_fusions;
    contents_.num_scatters += inside.num_scatters;
    contents_.num_instructions += inside.num_instructions;
    if (contents_.num_instructions > kMaxCounted) {
      contents_ = {.is_supported = false, .num_instructions = kMaxCounted};
    }
  }

  KernelContents contents_;
  int depth_ = 0;
  absl::flat_hash_map<std::pair<const HloComputation*, KernelPlace>,
                      KernelContents>
      of_computations_;
};

}  // namespace

KernelContents ContentsOf(const HloComputation& computation) {
  Inspection inspection;
  inspection.Add(computation, KernelPlace::kControlFlow);
  return inspection.contents();
}

KernelContents ContentsOf(const HloInstruction& instruction) {
  Inspection inspection;
  inspection.Add(instruction, KernelPlace::kControlFlow);
  return inspection.contents();
}

void MarkSingleKernel(HloInstruction* call) {
  call->set_frontend_attribute(kAttribute, kOn);
}

bool IsSingleKernel(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kCall &&
         instruction.get_frontend_attribute(kAttribute) == kOn;
}

}  // namespace hloenv
