// SPDX-License-Identifier: Apache-2.0
// Proposes chains of operations for reductions over small windows (pooling and
// its gradients), of which the backend makes a loop over each window.
//
// Before:  y = f32[8,8] reduce-window(x: f32[16,16], 0),
//              window={size=2x2 stride=2x2}, add
// After:   y = (((0 + x[0::2,0::2]) + x[0::2,1::2]) + x[1::2,0::2]) + ...
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/window_taps.h"
#include "xla/literal_util.h"
#include "xla/window_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxTaps = 25;

std::optional<HloOpcode> WindowOperationOf(const HloInstruction& root,
                                           RuleContext& context) {
  // Of several arrays, the shape is a tuple.
  if (root.opcode() != HloOpcode::kReduceWindow || !root.shape().IsArray() ||
      xla::window_util::HasWindowReversal(root.window()) ||
      TapsOf(root.window()) > kMaxTaps ||
      !FitsWithPadding(root.operand(0)->shape(), root.window(),
                       xla::ShapeUtil::ElementsIn(root.shape()))) {
    return std::nullopt;
  }
  const std::optional<HloOpcode> operation = ReductionOf(root, context);
  // Padding is no part of a window, so that it must not count; and XLA drops
  // the initial value of windows of one element.
  if (!operation.has_value() ||
      ((HasPadding(root.window()) || TapsOf(root.window()) == 1) &&
       !IsNeutral(*root.operand(1), *operation))) {
    return std::nullopt;
  }
  return operation;
}

absl::StatusOr<HloInstruction*> BuildWindowChain(
    HloOpcode operation, const HloInstruction& root,
    absl::Span<HloInstruction* const> x) {
  const xla::PrimitiveType type = AccumulationType(root.shape().element_type());
  HloInstruction* initial = Converted({x[1], ""}, type).value;
  HloInstruction* padded =
      WithPadding(Converted({x[0], ""}, type).value, root.window(), initial);
  std::vector<HloInstruction*> terms;
  for (const std::vector<int64_t>& offsets : OffsetsOf(root.window())) {
    terms.push_back(
        TapOf(padded, root.window(), offsets, root.shape().dimensions()));
  }
  return ChainOf(root, operation, initial, terms);
}

void ProposeWindowChain(const HloInstruction& root, RuleContext& context,
                        std::vector<Proposal>& proposals) {
  const std::optional<HloOpcode> operation = WindowOperationOf(root, context);
  if (!operation.has_value()) return;
  Propose(
      WindowChainRule(), root, {root.operand(0), root.operand(1)},
      [operation = *operation, &root](absl::Span<HloInstruction* const> x) {
        return BuildWindowChain(operation, root, x);
      },
      proposals);
}

}  // namespace

bool IsNeutral(const HloInstruction& number, HloOpcode operation) {
  if (number.opcode() != HloOpcode::kConstant) return false;
  const xla::Literal& literal = number.literal();
  const xla::PrimitiveType type = literal.shape().element_type();
  // They have no order; XLA ends the process when asked for their extremes.
  if (xla::primitive_util::IsComplexType(type) &&
      (operation == HloOpcode::kMaximum || operation == HloOpcode::kMinimum)) {
    return false;
  }
  switch (operation) {
    case HloOpcode::kAdd:
    case HloOpcode::kOr:
    case HloOpcode::kXor:
      return literal == xla::LiteralUtil::Zero(type);
    case HloOpcode::kMultiply:
      return literal == xla::LiteralUtil::One(type);
    case HloOpcode::kAnd:
      return type == xla::PRED ? literal.IsAll(1) : literal.IsAll(-1);
    case HloOpcode::kMaximum:
      return literal == xla::LiteralUtil::MinValue(type);
    case HloOpcode::kMinimum:
      return literal == xla::LiteralUtil::MaxValue(type);
    default:
      return false;
  }
}

const Rule& WindowChainRule() {
  static constexpr Rule rule = {
      "window",
      "Rewrites a reduction over windows of up to 25 elements, by one "
      "operation, as a chain of this operation on strided slices. Floats may "
      "round differently.",
      &ProposeWindowChain};
  return rule;
}

}  // namespace hloenv
