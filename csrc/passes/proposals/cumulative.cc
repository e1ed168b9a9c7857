// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/cumulative.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/reduce_rules.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// What a float32 may be off after a few operations, relative to 1 + |x|.
constexpr double kRounding = 2e-6;

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

// Whether a reducer consists of operations on numbers of this type, and on
// truth values, that mean the same in a wider type.
bool IsSmoothReducer(const xla::HloComputation& reducer,
                     xla::PrimitiveType type) {
  return reducer.num_parameters() == 2 &&
         absl::c_all_of(reducer.instructions(), [&](const auto* each) {
           const xla::Shape& shape = each->shape();
           if (!shape.IsArray() || RankOf(shape) != 0 ||
               (shape.element_type() != type &&
                shape.element_type() != xla::PRED)) {
             return false;
           }
           switch (each->opcode()) {
             case HloOpcode::kConstant:
               // Another number may be a threshold that samples do not meet.
               return each->literal().IsAll(0) || each->literal().IsAll(1);
             case HloOpcode::kAbs:
             case HloOpcode::kAdd:
             case HloOpcode::kAnd:
             case HloOpcode::kCompare:
             case HloOpcode::kExp:
             case HloOpcode::kExpm1:
             case HloOpcode::kIsFinite:
             case HloOpcode::kLog:
             case HloOpcode::kLog1p:
             case HloOpcode::kMaximum:
             case HloOpcode::kMinimum:
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

// Numbers of all magnitudes, some of equal magnitude.
std::vector<xla::Literal> Samples(xla::PrimitiveType type) {
  const double huge = type == xla::F32 ? std::numeric_limits<float>::max()
                                       : std::numeric_limits<double>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<xla::Literal> samples;
  for (const double each :
       {-kInfinity, -huge, -1000., -2.5, 0.5, 2.5, 70., huge, kInfinity,
        std::numeric_limits<double>::quiet_NaN()}) {
    samples.push_back(xla::LiteralUtil::CreateR0(each).Convert(type).value());
  }
  return samples;
}

// Whether a reducer of floats is associative and commutative, and `initial`
// changes nothing, for all samples: then its results do not overflow in one
// order only.
bool IsAssociative(const xla::HloComputation& reducer,
                   const xla::Literal& initial) {
  xla::HloEvaluator evaluator;
  bool is_valid = true;
  const auto reduced = [&](const xla::Literal& a, const xla::Literal& b) {
    absl::StatusOr<xla::Literal> result = evaluator.Evaluate(reducer, {&a, &b});
    evaluator.ResetVisitStates();
    is_valid = is_valid && result.ok();
    return is_valid ? *std::move(result) : a.Clone();
  };
  const auto are_equal = [](const xla::Literal& a, const xla::Literal& b) {
    const double x = a.Convert(xla::F64)->Get<double>({});
    const double y = b.Convert(xla::F64)->Get<double>({});
    if (!std::isfinite(x) || !std::isfinite(y)) {
      return x == y || (std::isnan(x) && std::isnan(y));
    }
    return std::abs(x - y) <= kRounding * (1 + std::abs(x));
  };
  const std::vector<xla::Literal> samples =
      Samples(initial.shape().element_type());
  for (const xla::Literal& a : samples) {
    if (!are_equal(reduced(initial, a), a)) return false;
    for (const xla::Literal& b : samples) {
      const xla::Literal both = reduced(a, b);
      if (!are_equal(both, reduced(b, a))) return false;
      for (const xla::Literal& c : samples) {
        if (!are_equal(reduced(both, c), reduced(a, reduced(b, c)))) {
          return false;
        }
      }
    }
  }
  return is_valid;
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
  const bool is_valid = (type == xla::F32 || type == xla::F64) &&
                        operand.shape().is_static() &&
                        operand.shape().element_type() == type &&
                        !xla::ShapeUtil::IsZeroElementArray(root.shape()) &&
                        initial.opcode() == HloOpcode::kConstant &&
                        IsSmoothReducer(*root.to_apply(), type) &&
                        IsAssociative(*root.to_apply(), initial.literal()) &&
                        !context.IsCompared(root);
  return is_valid ? std::make_optional(result) : std::nullopt;
}

}  // namespace hloenv
