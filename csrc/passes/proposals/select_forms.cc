// SPDX-License-Identifier: Apache-2.0
// Proposes comparisons and additions for the gradient of max pooling, which the
// backend makes a loop over each window.
//
// Before:  g = f32[16] select-and-scatter(x: f32[16], s: f32[8], 0),
//              window={size=2 stride=2}, select=ge, scatter=add
// After:   first = x[0::2] >= x[1::2]
//          g = (0 + pad(select(first, s, 0))) + pad(select(first, 0, s))
//
// The first of equal elements is selected, as by select-and-scatter.
#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/window_taps.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"
#include "xla/window_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxSelected = 27;

// The direction in which a computation compares its first parameter with the
// second, if it does nothing else.
std::optional<xla::ComparisonDirection> DirectionOf(
    const xla::HloComputation& select) {
  const HloInstruction& root = *select.root_instruction();
  if (root.opcode() != HloOpcode::kCompare ||
      root.operand(0) != select.parameter_instruction(0) ||
      root.operand(1) != select.parameter_instruction(1)) {
    return std::nullopt;
  }
  const auto& compare = *xla::Cast<xla::HloCompareInstruction>(&root);
  const xla::ComparisonDirection direction = compare.direction();
  if (compare.order() != xla::ComparisonOrder::kPartial &&
      xla::primitive_util::IsFloatingPointType(
          root.operand(0)->shape().element_type())) {
    return std::nullopt;
  }
  switch (direction) {
    case xla::ComparisonDirection::kGe:
    case xla::ComparisonDirection::kGt:
    case xla::ComparisonDirection::kLe:
    case xla::ComparisonDirection::kLt:
      return direction;
    default:
      return std::nullopt;
  }
}

// Whether an element may be in several windows, so that numbers are added.
bool HasOverlap(const xla::Window& window) {
  return absl::c_any_of(window.dimensions(), [](const auto& dimension) {
    return dimension.size() > dimension.stride();
  });
}

bool IsPooling(const HloInstruction& root, RuleContext& context) {
  if (root.opcode() != HloOpcode::kSelectAndScatter || !IsPlain(root) ||
      !IsReducible(root.shape()) ||
      xla::window_util::HasWindowReversal(root.window()) ||
      TapsOf(root.window()) > kMaxSelected || TapsOf(root.window()) < 2) {
    return false;
  }
  const HloInstruction& operand = *root.operand(0);
  const HloInstruction& source = *root.operand(1);
  for (const auto& dimension : root.window().dimensions()) {
    if (dimension.base_dilation() != 1 || dimension.window_dilation() != 1 ||
        dimension.padding_low() < 0 || dimension.padding_high() < 0) {
      return false;
    }
  }
  return operand.shape().is_static() && source.shape().is_static() &&
         !xla::ShapeUtil::IsZeroElementArray(operand.shape()) &&
         !xla::ShapeUtil::IsZeroElementArray(source.shape()) &&
         FitsWithPadding(operand.shape(), root.window(),
                         xla::ShapeUtil::ElementsIn(source.shape())) &&
         operand.shape().element_type() == root.shape().element_type() &&
         source.shape().element_type() == root.shape().element_type() &&
         root.shape().element_type() != xla::PRED &&
         DirectionOf(*root.select()).has_value() &&
         OperationOf(*root.scatter()) == HloOpcode::kAdd &&
         (!HasOverlap(root.window()) || !context.ExtremesOf(source).large()) &&
         !context.IsCompared(root);
}

// Builds the instructions of one rewritten gradient.
class SelectChain {
 public:
  SelectChain(const HloInstruction& root, absl::Span<HloInstruction* const> x)
      : root_(root),
        window_(root.window()),
        computation_(x[0]->parent()),
        operand_(x[0]),
        source_(Converted({x[1], ""}, Wide()).value),
        initial_(Converted({x[2], ""}, Wide()).value),
        offsets_(OffsetsOf(window_)) {}

  HloInstruction* Build() {
    HloInstruction* selected = Selected();
    HloInstruction* none =
        Splat(Number(xla::LiteralUtil::Zero(Wide())), source_->shape());
    std::vector<HloInstruction*> parts;
    for (size_t tap = 0; tap < offsets_.size(); ++tap) {
      HloInstruction* is_this =
          Compare(selected, NumberOf(tap), xla::ComparisonDirection::kEq);
      HloInstruction* part =
          computation_->AddInstruction(HloInstruction::CreateTernary(
              source_->shape(), HloOpcode::kSelect, is_this, source_, none));
      parts.push_back(Scattered(part, offsets_[tap]));
    }
    return ChainOf(root_, HloOpcode::kAdd, initial_, parts);
  }

 private:
  xla::PrimitiveType Wide() const {
    return AccumulationType(root_.shape().element_type());
  }
  absl::Span<const int64_t> Sizes() const {
    return source_->shape().dimensions();
  }
  HloInstruction* Number(xla::Literal literal) {
    return computation_->AddInstruction(
        HloInstruction::CreateConstant(std::move(literal)));
  }
  HloInstruction* Splat(HloInstruction* number, xla::Shape shape) {
    shape.set_element_type(number->shape().element_type());
    return computation_->AddInstruction(
        HloInstruction::CreateBroadcast(shape, number, {}));
  }
  // The number of a position, for each window.
  HloInstruction* NumberOf(size_t tap) {
    return Splat(
        Number(xla::LiteralUtil::CreateR0<int32_t>(static_cast<int32_t>(tap))),
        source_->shape());
  }
  HloInstruction* Compare(HloInstruction* left, HloInstruction* right,
                          xla::ComparisonDirection direction) {
    return computation_->AddInstruction(HloInstruction::CreateCompare(
        xla::ShapeUtil::ChangeElementType(left->shape(), xla::PRED), left,
        right, direction));
  }
  HloInstruction* Logical(HloOpcode opcode, HloInstruction* left,
                          HloInstruction* right) {
    return computation_->AddInstruction(
        HloInstruction::CreateBinary(left->shape(), opcode, left, right));
  }

  // The number of the position that each window selects.
  HloInstruction* Selected() {
    const bool has_padding = HasPadding(window_);
    HloInstruction* padded = operand_;
    HloInstruction* valid = nullptr;
    if (has_padding) {
      padded = WithPadding(
          operand_, window_,
          Number(xla::LiteralUtil::Zero(operand_->shape().element_type())));
      HloInstruction* yes = Splat(
          Number(xla::LiteralUtil::CreateR0<bool>(true)), operand_->shape());
      valid = WithPadding(yes, window_,
                          Number(xla::LiteralUtil::CreateR0<bool>(false)));
    }
    const xla::ComparisonDirection direction = *DirectionOf(*root_.select());
    HloInstruction* best = TapOf(padded, window_, offsets_[0], Sizes());
    HloInstruction* is_valid =
        has_padding ? TapOf(valid, window_, offsets_[0], Sizes()) : nullptr;
    HloInstruction* selected = NumberOf(0);
    for (size_t tap = 1; tap < offsets_.size(); ++tap) {
      HloInstruction* next = TapOf(padded, window_, offsets_[tap], Sizes());
      HloInstruction* keeps = Compare(best, next, direction);
      if (has_padding) {
        HloInstruction* next_valid =
            TapOf(valid, window_, offsets_[tap], Sizes());
        HloInstruction* next_invalid =
            computation_->AddInstruction(HloInstruction::CreateUnary(
                next_valid->shape(), HloOpcode::kNot, next_valid));
        keeps =
            Logical(HloOpcode::kOr, Logical(HloOpcode::kAnd, keeps, is_valid),
                    next_invalid);
        is_valid = Logical(HloOpcode::kOr, is_valid, next_valid);
      }
      best = computation_->AddInstruction(HloInstruction::CreateTernary(
          best->shape(), HloOpcode::kSelect, keeps, best, next));
      selected = computation_->AddInstruction(
          HloInstruction::CreateTernary(selected->shape(), HloOpcode::kSelect,
                                        keeps, selected, NumberOf(tap)));
    }
    return selected;
  }

  // One number of each window at its place in the result, and zeros.
  HloInstruction* Scattered(HloInstruction* part,
                            const std::vector<int64_t>& offsets) {
    xla::PaddingConfig padding;
    for (int d = 0; d < window_.dimensions_size(); ++d) {
      const auto& dimension = window_.dimensions(d);
      const int64_t low = offsets[d] - dimension.padding_low();
      const int64_t size = (Sizes()[d] - 1) * dimension.stride() + 1;
      auto* to = padding.add_dimensions();
      to->set_edge_padding_low(low);
      to->set_edge_padding_high(root_.shape().dimensions(d) - low - size);
      to->set_interior_padding(dimension.stride() - 1);
    }
    return computation_->AddInstruction(HloInstruction::CreatePad(
        xla::ShapeUtil::ChangeElementType(root_.shape(), Wide()), part,
        Number(xla::LiteralUtil::Zero(Wide())), padding));
  }

  const HloInstruction& root_;
  const xla::Window& window_;
  xla::HloComputation* const computation_;
  HloInstruction* const operand_;
  HloInstruction* const source_;
  HloInstruction* const initial_;
  const std::vector<std::vector<int64_t>> offsets_;
};

void ProposeSelectChain(const HloInstruction& root, RuleContext& context,
                        std::vector<Proposal>& proposals) {
  if (!IsPooling(root, context)) return;
  Propose(
      SelectChainRule(), root,
      {root.operand(0), root.operand(1), root.operand(2)},
      [&root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return SelectChain(root, x).Build();
      },
      proposals);
}

}  // namespace

const Rule& SelectChainRule() {
  static constexpr Rule rule = {
      "select",
      "Rewrites the gradient of max pooling, over windows of up to 27 "
      "elements, as comparisons of strided slices and additions of padded "
      "arrays. Floats may round differently where windows overlap.",
      &ProposeSelectChain};
  return rule;
}

}  // namespace hloenv
