// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/cumulative.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "hlo/evaluation.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// What a float32 may be off after a few operations, relative to 1 + |x|.
constexpr double kRounding = 2e-6;
// Instructions of a reducer up to which it is looked at.
constexpr int64_t kMaxReducer = 64;

// Whether a window covers one element of a dimension.
bool IsUnit(const xla::WindowDimension& window) {
  return window.size() == 1 && window.stride() == 1 &&
         window.padding_low() == 0 && window.padding_high() == 0;
}

// Sets the sizes and the direction; false if it is not cumulative.
bool FindSizes(const HloInstruction& root, Cumulative& result) {
  for (int64_t d = 0; d < RankOf(root.shape()); ++d) {
    const auto& window = root.window().dimensions(static_cast<int>(d));
    const int64_t size = root.operand(0)->shape().dimensions(d);
    if (window.base_dilation() != 1 || window.window_dilation() != 1 ||
        window.window_reversal()) {
      return false;
    }
    if (IsUnit(window)) {
      (result.size == 0 ? result.outer : result.inner) *= size;
      continue;
    }
    const auto is_padded = [&window](int64_t low, int64_t high) {
      return window.padding_low() == low && window.padding_high() == high;
    };
    result.is_reversed = is_padded(0, size - 1);
    if (result.size != 0 || window.size() != size || window.stride() != 1 ||
        (!is_padded(size - 1, 0) && !result.is_reversed) ||
        size > std::numeric_limits<int32_t>::max()) {
      return false;
    }
    result.size = size;
  }
  return result.size != 0 &&
         result.outer <= std::numeric_limits<int32_t>::max();
}

bool IsGiven(const HloInstruction* number) {
  return number->opcode() == HloOpcode::kParameter ||
         number->opcode() == HloOpcode::kConstant;
}

// Whether what is compared is none of what the reducer computes, other than the
// difference of its parameters with itself: that it is no number.
bool HasNoThreshold(const HloInstruction& comparison) {
  const HloInstruction* left = comparison.operand(0);
  if (comparison.operand_count() == 2 && left == comparison.operand(1) &&
      left->opcode() == HloOpcode::kSubtract) {
    return absl::c_all_of(left->operands(), IsGiven);
  }
  return absl::c_all_of(comparison.operands(), IsGiven);
}

// Whether a reducer consists of operations on numbers of this type, and on
// truth values, that mean the same in a wider type.
bool IsSmoothReducer(const xla::HloComputation& reducer,
                     xla::PrimitiveType type) {
  return reducer.num_parameters() == 2 &&
         reducer.instruction_count() <= kMaxReducer &&
         absl::c_all_of(reducer.instructions(), [&](const auto* each) {
           const xla::Shape& shape = each->shape();
           // Numbers that are computed may be thresholds as well.
           if (each->operand_count() > 0 &&
               absl::c_all_of(each->operands(), [](const auto* operand) {
                 return operand->opcode() == HloOpcode::kConstant;
               })) {
             return false;
           }
           if (!shape.IsArray() || RankOf(shape) != 0 ||
               (shape.element_type() != type &&
                shape.element_type() != xla::PRED)) {
             return false;
           }
           switch (each->opcode()) {
             case HloOpcode::kConstant:
               // Another number may be a threshold that samples do not meet.
               return each->literal().IsAll(0) || each->literal().IsAll(1);
             case HloOpcode::kCompare:
             case HloOpcode::kIsFinite:
             case HloOpcode::kMaximum:
             case HloOpcode::kMinimum:
               return HasNoThreshold(*each);
             case HloOpcode::kAbs:
             case HloOpcode::kAdd:
             case HloOpcode::kAnd:
             case HloOpcode::kExp:
             case HloOpcode::kExpm1:
             case HloOpcode::kLog:
             case HloOpcode::kLog1p:
             case HloOpcode::kMultiply:
             case HloOpcode::kNegate:
             case HloOpcode::kNot:
             case HloOpcode::kOr:
             case HloOpcode::kParameter:
             case HloOpcode::kSelect:
             case HloOpcode::kSubtract:
               return true;
             default:
               return false;
           }
         });
}

// Numbers of all magnitudes, some of equal magnitude, and those that a reducer
// may compare with.
std::vector<double> Samples(xla::PrimitiveType type) {
  const double huge = type == xla::F32 ? std::numeric_limits<float>::max()
                                       : std::numeric_limits<double>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {-kInfinity,
          -huge,
          -1000,
          -2.5,
          -1,
          -0.5,
          -1e-30,
          -0.0,
          0.0,
          1e-30,
          0.5,
          1,
          2.5,
          70,
          huge,
          kInfinity,
          std::numeric_limits<double>::quiet_NaN()};
}

// What a reducer of scalars makes of each pair of elements.
absl::StatusOr<xla::Literal> Reduced(const xla::HloComputation& reducer,
                                     const xla::Literal& a,
                                     const xla::Literal& b) {
  absl::flat_hash_map<const HloInstruction*, xla::Literal> values;
  for (const HloInstruction* each : reducer.MakeInstructionPostOrder()) {
    if (each->opcode() == HloOpcode::kParameter) {
      values[each] = (each->parameter_number() == 0 ? a : b).Clone();
      continue;
    }
    const xla::Shape shape = xla::ShapeUtil::ChangeElementType(
        a.shape(), each->shape().element_type());
    if (each->opcode() == HloOpcode::kConstant) {
      HLOENV_ASSIGN_OR_RETURN(values[each],
                              each->literal().Broadcast(shape, {}));
      continue;
    }
    std::vector<const xla::Literal*> operands;
    for (const HloInstruction* operand : each->operands()) {
      operands.push_back(&values.at(operand));
    }
    HLOENV_ASSIGN_OR_RETURN(values[each], EvaluatedOn(*each, shape, operands));
  }
  return std::move(values.at(reducer.root_instruction()));
}

bool AreEqual(const xla::Literal& left, const xla::Literal& right) {
  const xla::Literal a = left.Convert(xla::F64).value();
  const xla::Literal b = right.Convert(xla::F64).value();
  return absl::c_equal(
      a.data<double>(), b.data<double>(), [](double x, double y) {
        if (!std::isfinite(x) || !std::isfinite(y)) {
          return x == y || (std::isnan(x) && std::isnan(y));
        }
        return std::abs(x - y) <= kRounding * (1 + std::abs(x));
      });
}

// Whether a reducer of floats is associative and commutative, and `initial`
// changes nothing, for all samples: then its results do not overflow in one
// order only.
absl::StatusOr<bool> IsAssociative(const xla::HloComputation& reducer,
                                   const xla::Literal& initial) {
  const xla::PrimitiveType type = initial.shape().element_type();
  const std::vector<double> samples = Samples(type);
  std::vector<double> numbers[3];  // all triples
  for (const double a : samples) {
    for (const double b : samples) {
      for (const double c : samples) {
        numbers[0].push_back(a);
        numbers[1].push_back(b);
        numbers[2].push_back(c);
      }
    }
  }
  xla::Literal x[3];
  for (int i = 0; i < 3; ++i) {
    HLOENV_ASSIGN_OR_RETURN(
        x[i], xla::LiteralUtil::CreateR1<double>(numbers[i]).Convert(type));
  }
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal start,
                          initial.Broadcast(x[0].shape(), {}));
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal started,
                          Reduced(reducer, start, x[0]));
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal pair,
                          Reduced(reducer, x[0], x[1]));
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal swapped,
                          Reduced(reducer, x[1], x[0]));
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal others,
                          Reduced(reducer, x[1], x[2]));
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal pair_first,
                          Reduced(reducer, pair, x[2]));
  HLOENV_ASSIGN_OR_RETURN(const xla::Literal others_first,
                          Reduced(reducer, x[0], others));
  return AreEqual(started, x[0]) && AreEqual(pair, swapped) &&
         AreEqual(pair_first, others_first);
}

}  // namespace

std::optional<Cumulative> CumulativeOf(const HloInstruction& root,
                                       RuleContext& context) {
  Cumulative result;
  if (root.opcode() != HloOpcode::kReduceWindow || root.operand_count() != 2 ||
      !IsPlain(root) || !IsReducible(root.shape()) ||
      !FindSizes(root, result)) {
    return std::nullopt;
  }
  const HloInstruction& initial = *root.operand(1);
  result.element_bytes = xla::ShapeUtil::ByteSizeOf(initial.shape());
  if (OperationOf(*root.to_apply()).has_value()) {
    result.operation = ReductionOf(root, context);
    const bool is_valid =
        result.operation.has_value() && IsNeutral(initial, *result.operation);
    return is_valid ? std::make_optional(result) : std::nullopt;
  }
  const HloInstruction& operand = *root.operand(0);
  const xla::PrimitiveType type = root.shape().element_type();
  const bool is_valid =
      (type == xla::F32 || type == xla::F64) && operand.shape().is_static() &&
      operand.shape().element_type() == type &&
      !xla::ShapeUtil::IsZeroElementArray(root.shape()) &&
      initial.opcode() == HloOpcode::kConstant &&
      IsSmoothReducer(*root.to_apply(), type) &&
      IsAssociative(*root.to_apply(), initial.literal()).value_or(false) &&
      !context.IsCompared(root);
  return is_valid ? std::make_optional(result) : std::nullopt;
}

}  // namespace hloenv
