// SPDX-License-Identifier: Apache-2.0
// Proposes a loop over rows for gradients of depthwise convolutions with
// respect to their kernels.
#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "passes/proposals/counted_loop.h"
#include "passes/proposals/number_keys.h"
#include "support/status.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using Images = absl::Span<HloInstruction* const>;

// Output positions, of which each step adds to all, and steps.
constexpr int64_t kMaxSums = 128;
constexpr int64_t kMaxSteps = int64_t{1} << 20;
// Elements of a row that one step adds up, in one kernel without a loop: of a
// whole row, and of a part.
constexpr int64_t kFewestOfRow = 4;
constexpr int64_t kFewestOfPart = 8;
constexpr int64_t kMostOfRow = 32;

// The largest part of a row, of equal ones, that a step adds up; 0 if there is
// none.
int64_t PartOfRow(int64_t size) {
  if (size <= kMostOfRow) return size >= kFewestOfRow ? size : 0;
  for (int64_t part = kMostOfRow; part >= kFewestOfPart; --part) {
    if (size % part == 0) return part;
  }
  return 0;
}

struct Rows {
  Convolution convolution;
  int64_t images;
  int64_t part;
  // Of the output.
  int64_t features;

  const SpatialDimension& At(size_t d) const {
    return convolution.spatial()[d];
  }
  int64_t parts() const { return At(1).taps / part; }
  int64_t steps() const { return images * At(0).taps * parts(); }
};

std::optional<Rows> RowsOf(const HloInstruction& root, RuleContext& context) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value() || found->groups() == 1 || found->batch() != 1 ||
      found->outputs() != 1 || found->spatial().size() != 2) {
    return std::nullopt;
  }
  for (const SpatialDimension& each : found->spatial()) {
    if (each.base_dilation != 1 || each.reversed) return std::nullopt;
  }
  // The sums are a state of the loop, in their own type.
  for (const HloInstruction* operand : root.operands()) {
    if (operand->shape().element_type() != found->accumulation().type) {
      return std::nullopt;
    }
  }
  const int64_t sums = found->num_positions();
  const int64_t part = PartOfRow(found->spatial()[1].taps);
  Rows rows{*found, found->inputs(), part, found->groups()};
  if (sums > kMaxSums || sums > found->num_taps() || part == 0 ||
      rows.steps() > kMaxSteps) {
    return std::nullopt;
  }
  return rows;
}

Labelled PartAt(const Labelled& array,
                const std::vector<HloInstruction*>& starts,
                const std::vector<int64_t>& sizes) {
  return {
      array.value->AddInstruction(HloInstruction::CreateDynamicSlice(
          xla::ShapeUtil::MakeShape(array.value->shape().element_type(), sizes),
          array.value, starts, sizes)),
      array.labels};
}

// With image, rows, columns and features in this order.
Labelled InOrder(Labelled array, absl::string_view labels) {
  if (!array.Has('i')) array = WithUnit(array, 0, 'i');
  return Ordered(array, labels);
}

// What one step adds to all output positions.
absl::StatusOr<Labelled> SumOfStep(const Rows& rows, HloInstruction* step,
                                   HloInstruction* input,
                                   HloInstruction* kernel) {
  const SpatialDimension& down = rows.At(0);
  const SpatialDimension& across = rows.At(1);
  Elementwise build(step->parent(), step->shape());
  const auto with = [&](xla::HloOpcode opcode, HloInstruction* index,
                        int64_t number) {
    return build.Binary(opcode, index,
                        build.Constant(static_cast<int32_t>(number)));
  };
  HloInstruction* row = with(HloOpcode::kDivide, step, rows.parts());
  HloInstruction* image = with(HloOpcode::kDivide, row, down.taps);
  row = with(HloOpcode::kRemainder, row, down.taps);
  HloInstruction* first =
      with(HloOpcode::kMultiply,
           with(HloOpcode::kRemainder, step, rows.parts()), rows.part);
  HloInstruction* zero = build.Constant<int32_t>(0);
  const Labelled window =
      PartAt({input, "i01g"},
             {image, with(HloOpcode::kMultiply, row, down.window_dilation),
              with(HloOpcode::kMultiply, first, across.window_dilation), zero},
             {1, (down.output - 1) * down.stride + 1,
              (rows.part - 1) * across.window_dilation +
                  (across.output - 1) * across.stride + 1,
              rows.features});
  const Labelled factors = PartAt({kernel, "ixyg"}, {image, row, first, zero},
                                  {1, 1, rows.part, rows.features});
  std::vector<Labelled> products;
  for (int64_t tap = 0; tap < rows.part; ++tap) {
    const Labelled part = Sliced(window, {{'0', 0, down.output, down.stride},
                                          {'1', tap * across.window_dilation,
                                           across.output, across.stride}});
    HLOENV_ASSIGN_OR_RETURN(
        Labelled product,
        MultiplyOf(WithoutUnits(part, "i"),
                   WithoutUnits(Sliced(factors, {{'y', tap, 1}}), "ixy"), "01g",
                   rows.convolution.accumulation()));
    products.push_back(std::move(product));
  }
  return SumOf(products);
}

absl::StatusOr<HloInstruction*> BuildRows(const Rows& rows, Images x) {
  const Convolution& convolution = rows.convolution;
  const Labelled input =
      InOrder(convolution.PaddedInput(convolution.Input(x[0], false)), "i01g");
  const Labelled kernel = InOrder(convolution.Kernel(x[1], false), "ixyg");
  const Labelled zeros =
      Zeros(x[0]->parent(), convolution.accumulation().type, "01g",
            {rows.At(0).output, rows.At(1).output, rows.features});
  absl::Status status;
  HloInstruction* sums = CountedLoop(
      static_cast<int32_t>(rows.steps()),
      {zeros.value, input.value, kernel.value},
      [&](HloInstruction* step, Images state) {
        absl::StatusOr<Labelled> added =
            SumOfStep(rows, step, state[1], state[2]);
        HloInstruction* next = state[0];
        if (added.ok()) {
          next = SumOf({{state[0], "01g"}, *added}).value;
        } else {
          status = added.status();
        }
        return std::vector<HloInstruction*>{next, state[1], state[2]};
      })[0];
  if (!status.ok()) return status;
  return convolution.Finish({sums, "01g"});
}

void ProposeRows(const HloInstruction& root, RuleContext& context,
                 std::vector<Proposal>& proposals) {
  const std::optional<Rows> rows = RowsOf(root, context);
  if (!rows.has_value()) return;
  Propose(
      RowsRule(), root, {root.operand(0), root.operand(1)},
      [rows = *rows](Images x) { return BuildRows(rows, x); }, proposals);
}

}  // namespace

const Rule& RowsRule() {
  static constexpr Rule rule = {
      "rows",
      "Rewrites the gradient of a depthwise convolution of images with respect "
      "to its kernel, and others of one input and one output feature in each "
      "group whose window is larger than the result, as a loop over the rows "
      "of the window, of which each step adds up to 32 products to each of the "
      "up to 128 sums of a group. Floats round differently.",
      &ProposeRows};
  return rule;
}

}  // namespace hloenv
