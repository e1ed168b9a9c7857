// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/math_rules.h"

#include <vector>

#include "passes/proposals/branches.h"
#include "support/status.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::ComparisonDirection;
using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

HloInstruction* Polynomial(absl::Span<const double> coefficients,
                           HloInstruction* z, Elementwise& build) {
  HloInstruction* sum = build.Number(coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) {
    sum = build.Binary(HloOpcode::kAdd, build.Number(coefficients[i]),
                       build.Binary(HloOpcode::kMultiply, sum, z));
  }
  return sum;
}

HloInstruction* OfQuadrant(HloOpcode function, HloInstruction* quadrant,
                           HloInstruction* sine, HloInstruction* cosine,
                           Elementwise& build) {
  if (function == HloOpcode::kCos) {
    quadrant = build.Binary(HloOpcode::kAdd, quadrant, build.Number(1.0));
  }
  const auto half_of = [&](HloInstruction* integer) {
    return build.Binary(HloOpcode::kMultiply, integer, build.Number(0.5));
  };
  HloInstruction* half = half_of(quadrant);
  HloInstruction* pairs = build.Unary(HloOpcode::kFloor, half);
  const auto if_even = [&](HloInstruction* even, HloInstruction* odd) {
    return build.Select(ComparisonDirection::kEq, half, pairs, even, odd);
  };
  const auto negated = [&](HloInstruction* number) {
    return build.Unary(HloOpcode::kNegate, number);
  };
  if (function == HloOpcode::kTan) {
    return build.Binary(HloOpcode::kDivide, if_even(sine, negated(cosine)),
                        if_even(cosine, sine));
  }
  HloInstruction* value = if_even(sine, cosine);
  HloInstruction* half_pairs = half_of(pairs);
  return build.Select(ComparisonDirection::kEq, half_pairs,
                      build.Unary(HloOpcode::kFloor, half_pairs), value,
                      negated(value));
}

HloInstruction* IfNegative(HloInstruction* number, HloInstruction* then,
                           HloInstruction* otherwise, Elementwise& build) {
  const xla::PrimitiveType type = number->shape().element_type();
  const xla::PrimitiveType bits = type == xla::F64   ? xla::S64
                                  : type == xla::F32 ? xla::S32
                                                     : xla::S16;
  HloInstruction* no_bits = build.Convert(build.Constant<int32_t>(0), bits);
  return build.Select(ComparisonDirection::kLt, build.Bits(number, bits),
                      no_bits, then, otherwise);
}

HloInstruction* Whole(HloInstruction* x, const xla::Shape& shape) {
  if (!x->shape().dimensions().empty() || shape.dimensions().empty()) return x;
  return x->parent()->AddInstruction(
      HloInstruction::CreateBroadcast(shape, x, {}));
}

namespace {

bool IsKnownFloat(const xla::Shape& shape) {
  const xla::PrimitiveType type = shape.element_type();
  return type == xla::F64 || type == xla::F32 || type == xla::F16 ||
         type == xla::BF16;
}

}  // namespace

bool IsFunctionOfFloats(const HloInstruction& root, RuleContext& context) {
  // Arithmetic may be computed once for each reader, and rounded differently.
  return IsPlain(root) && IsKnownFloat(root.shape()) &&
         !xla::ShapeUtil::IsZeroElementArray(root.shape()) &&
         !root.has_result_accuracy() && !context.IsCompared(root);
}

std::optional<double> ConstantOf(const HloInstruction& array) {
  const HloInstruction* number = &array;
  if (number->opcode() == HloOpcode::kBroadcast) number = number->operand(0);
  if (number->opcode() != HloOpcode::kConstant ||
      !number->shape().dimensions().empty() ||
      xla::primitive_util::IsComplexType(number->shape().element_type())) {
    return std::nullopt;
  }
  return NumberOf(number->literal());
}

absl::StatusOr<HloInstruction*> WhereAll(HloInstruction* is_fast,
                                         Arrays operands,
                                         const OfOperands& fast,
                                         const OfOperands& any) {
  const xla::Shape& shape = operands[0]->shape();
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * all, AllOf(is_fast));
  const auto with_whole = [&](const OfOperands& function) {
    return [&](Arrays arrays) -> absl::StatusOr<HloInstruction*> {
      std::vector<HloInstruction*> whole;
      for (HloInstruction* each : arrays) whole.push_back(Whole(each, shape));
      Elementwise build(arrays[0]->parent(), shape);
      return function(whole, build);
    };
  };
  return IfElse(all, operands, shape, with_whole(fast), with_whole(any));
}

}  // namespace hloenv
