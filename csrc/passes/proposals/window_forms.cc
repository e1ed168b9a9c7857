// SPDX-License-Identifier: Apache-2.0
// Proposes chains of operations for reductions over small windows (pooling and
// its gradients), of which the backend makes a loop over each window.
//
// Before:  y = f32[8,8] reduce-window(x: f32[16,16], 0),
//              window={size=2x2 stride=2x2}, add
// After:   y = (((0 + x[0::2,0::2]) + x[0::2,1::2]) + x[1::2,0::2]) + ...
//
// And for windows that overlap, one dimension after the other, in windows of
// twice the size each time:
//
// Before:  y = f32[250,250] reduce-window(x: f32[256,256], -inf),
//              window={size=7x7}, maximum
// After:   a = maximum(x[0:255,:], x[1:256,:])   of two rows
//          b = maximum(a[0:253,:], a[2:255,:])   of four
//          c = maximum(b[0:250,:], b[3:253,:])   of seven; columns likewise
#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "passes/proposals/cumulative.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/window_taps.h"
#include "xla/literal_util.h"
#include "xla/window_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxChainTaps = 25;
// Of windows that are reduced one dimension after the other.
constexpr int64_t kMaxTaps = int64_t{1} << 20;

bool IsIdempotent(HloOpcode operation) {
  return operation != HloOpcode::kAdd && operation != HloOpcode::kMultiply &&
         operation != HloOpcode::kXor;
}

std::optional<HloOpcode> WindowOperationOf(const HloInstruction& root,
                                           RuleContext& context,
                                           int64_t max_taps) {
  // Of several arrays, the shape is a tuple.
  if (root.opcode() != HloOpcode::kReduceWindow || !root.shape().IsArray() ||
      xla::window_util::HasWindowReversal(root.window()) ||
      TapsOf(root.window()) > max_taps ||
      !FitsWithPadding(root.operand(0)->shape(), root.window(),
                       xla::ShapeUtil::ElementsIn(root.shape()))) {
    return std::nullopt;
  }
  const std::optional<HloOpcode> operation = ReductionOf(root, context);
  if (!operation.has_value()) return std::nullopt;
  // Padding, by the initial value, is no part of a window, so that it must not
  // count; and XLA drops the initial value of windows of one element.
  const bool counts = TapsOf(root.window()) == 1 ||
                      (HasPadding(root.window()) && !IsIdempotent(*operation));
  if (counts && !IsNeutral(*root.operand(1), *operation)) return std::nullopt;
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
  const std::optional<HloOpcode> operation =
      WindowOperationOf(root, context, kMaxChainTaps);
  if (!operation.has_value()) return;
  Propose(WindowChainRule(), root, {root.operand(0), root.operand(1)},
          OutOfSlowLoops(root, *operation, OffsetsOf(root.window()).size(),
                         [operation = *operation,
                          &root](absl::Span<HloInstruction* const> x) {
                           return BuildWindowChain(operation, root, x);
                         }),
          proposals);
}

// Reduces windows of one dimension, each by few operations.
class Doubling {
 public:
  // Of `size` elements each, every `dilation`-th.
  Doubling(HloOpcode operation, int64_t dimension,
           const xla::WindowDimension& window)
      : operation_(operation),
        dimension_(dimension),
        size_(window.size()),
        dilation_(window.window_dilation()),
        stride_(window.stride()) {}

  // `count` windows, a stride apart each.
  HloInstruction* Of(HloInstruction* x, int64_t count) const {
    std::vector<HloInstruction*> doubled = {x};  // of 1, 2, 4, ... elements
    int64_t span = 1;
    for (; 2 * span <= size_; span *= 2) {
      doubled.push_back(Both(doubled.back(), doubled.back(), span));
    }
    HloInstruction* result = doubled.back();
    if (span < size_ && IsIdempotent(operation_)) {
      result = Both(result, result, size_ - span);
    }
    for (size_t i = doubled.size() - 1; i-- > 0 && !IsIdempotent(operation_);) {
      if ((size_ >> i) % 2 == 1) {
        result = Both(result, doubled[i], span);
        span += int64_t{1} << i;
      }
    }
    return Slice(result, 0, (count - 1) * stride_ + 1, stride_);
  }

 private:
  // The windows of `x`, and those of `y` from `offset` elements after them on.
  HloInstruction* Both(HloInstruction* x, HloInstruction* y,
                       int64_t offset) const {
    const int64_t start = offset * dilation_;
    const int64_t length = std::min(LengthOf(*x), LengthOf(*y) - start);
    HloInstruction* first = Slice(x, 0, length, 1);
    HloInstruction* second = Slice(y, start, start + length, 1);
    return x->parent()->AddInstruction(HloInstruction::CreateBinary(
        first->shape(), operation_, first, second));
  }

  int64_t LengthOf(const HloInstruction& x) const {
    return x.shape().dimensions(static_cast<int>(dimension_));
  }

  HloInstruction* Slice(HloInstruction* x, int64_t start, int64_t limit,
                        int64_t stride) const {
    const std::string labels = LabelsOf(RankOf(x->shape()));
    const int64_t size = (limit - start + stride - 1) / stride;
    return Sliced({x, labels}, {{labels[dimension_], start, size, stride}})
        .value;
  }

  HloOpcode operation_;
  int64_t dimension_;
  int64_t size_;
  int64_t dilation_;
  int64_t stride_;
};

absl::StatusOr<HloInstruction*> BuildByDimension(
    HloOpcode operation, const HloInstruction& root,
    absl::Span<HloInstruction* const> x) {
  const xla::PrimitiveType type = AccumulationType(root.shape().element_type());
  HloInstruction* initial = Converted({x[1], ""}, type).value;
  HloInstruction* reduced =
      WithPadding(Converted({x[0], ""}, type).value, root.window(), initial);
  for (int d = 0; d < root.window().dimensions_size(); ++d) {
    const xla::WindowDimension& window = root.window().dimensions(d);
    reduced =
        Doubling(operation, d, window).Of(reduced, root.shape().dimensions(d));
  }
  return ChainOf(root, operation, initial, {reduced});
}

// Whether windows share elements in each dimension in which they have several.
bool Overlaps(const xla::Window& window) {
  return TapsOf(window) > 2 &&
         absl::c_all_of(window.dimensions(), [](const auto& dimension) {
           return dimension.base_dilation() == 1 &&
                  (dimension.size() <= 1 ||
                   dimension.stride() < dimension.size());
         });
}

// Whether several windows may have all elements of a dimension. Sums of them
// are equal, which others, in an order that depends on the padding, may not be.
bool MayRepeat(const HloInstruction& root) {
  for (int d = 0; d < root.window().dimensions_size(); ++d) {
    const xla::WindowDimension& window = root.window().dimensions(d);
    const int64_t elements =
        root.operand(0)->shape().dimensions(d) / window.window_dilation();
    if (root.shape().dimensions(d) > 1 && window.size() > elements) return true;
  }
  return false;
}

void ProposeByDimension(const HloInstruction& root, RuleContext& context,
                        std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kReduceWindow || !Overlaps(root.window()) ||
      root.window().dimensions_size() > kMaxLabels ||
      CumulativeOf(root, context).has_value()) {
    return;
  }
  const std::optional<HloOpcode> operation =
      WindowOperationOf(root, context, kMaxTaps);
  if (!operation.has_value()) return;
  if (!IsIdempotent(*operation) &&
      !xla::primitive_util::IsIntegralType(root.shape().element_type()) &&
      MayRepeat(root)) {
    return;
  }
  Propose(
      DimensionsRule(), root, {root.operand(0), root.operand(1)},
      [operation = *operation, &root](absl::Span<HloInstruction* const> x) {
        return BuildByDimension(operation, root, x);
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

const Rule& DimensionsRule() {
  static constexpr Rule rule = {
      "dimensions",
      "Rewrites a reduction over windows that overlap, by one operation, as "
      "reductions over one dimension after the other, of windows of twice the "
      "size each time. Floats may round differently.",
      &ProposeByDimension};
  return rule;
}

}  // namespace hloenv
