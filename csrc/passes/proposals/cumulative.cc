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

// Whether a reducer consists of elementwise operations on its two parameters.
bool IsElementwiseReducer(const xla::HloComputation& reducer) {
  return reducer.num_parameters() == 2 &&
         absl::c_all_of(reducer.instructions(), [](const auto* each) {
           if (!each->shape().IsArray() || RankOf(each->shape()) != 0 ||
               !each->called_computations().empty()) {
             return false;
           }
           return each->opcode() == HloOpcode::kParameter ||
                  each->opcode() == HloOpcode::kConstant ||
                  (each->IsElementwise() && each->operand_count() > 0);
         });
}

// Whether a reducer of floats is associative and commutative, and `initial`
// changes nothing, for some numbers.
bool IsAssociative(const xla::HloComputation& reducer,
                   const xla::Literal& initial) {
  const xla::PrimitiveType type = initial.shape().element_type();
  xla::HloEvaluator evaluator;
  const auto reduced = [&](const xla::Literal& a, const xla::Literal& b) {
    absl::StatusOr<xla::Literal> result = evaluator.Evaluate(reducer, {&a, &b});
    evaluator.ResetVisitStates();
    return result.ok() ? *std::move(result)
                       : xla::LiteralUtil::NanValue(type).value();
  };
  const auto are_equal = [](const xla::Literal& a, const xla::Literal& b) {
    const double x = a.Convert(xla::F64)->Get<double>({});
    const double y = b.Convert(xla::F64)->Get<double>({});
    return std::abs(x - y) <= 1e-2 * (1 + std::abs(x));
  };
  std::vector<xla::Literal> samples;
  for (const float each : {-2.5f, -0.75f, 0.5f, 1.25f}) {
    samples.push_back(xla::LiteralUtil::CreateR0(each).Convert(type).value());
  }
  const xla::Literal& c = samples.back();
  return absl::c_all_of(samples, [&](const xla::Literal& a) {
    return are_equal(reduced(initial, a), a) &&
           absl::c_all_of(samples, [&](const xla::Literal& b) {
             return are_equal(reduced(a, b), reduced(b, a)) &&
                    are_equal(reduced(reduced(a, b), c),
                              reduced(a, reduced(b, c)));
           });
  });
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
  const bool is_valid =
      xla::primitive_util::IsFloatingPointType(root.shape().element_type()) &&
      operand.shape().is_static() &&
      !xla::ShapeUtil::IsZeroElementArray(root.shape()) &&
      initial.opcode() == HloOpcode::kConstant &&
      IsElementwiseReducer(*root.to_apply()) &&
      IsAssociative(*root.to_apply(), initial.literal());
  return is_valid ? std::make_optional(result) : std::nullopt;
}

}  // namespace hloenv
