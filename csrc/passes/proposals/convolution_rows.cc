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
constexpr int64_t kMinOfRow = 4;
constexpr int64_t kMinOfPart = 8;
constexpr int64_t kMaxOfRow = 32;

// The largest part of a row, of equal ones, that a step adds up; 0 if there is
// none.
int64_t PartOfRow(int64_t size) {
  if (size <= kMaxOfRow) return size >= kMinOfRow ? size : 0;
  for (int64_t part = kMaxOfRow; part >= kMinOfPart; --part) {
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

  size_t rank() const { return convolution.spatial().size(); }
  // The dimension of which a step adds up a part; of the others, one element.
  const SpatialDimension& across() const {
    return convolution.spatial().back();
  }
  int64_t parts() const { return across().taps / part; }
  int64_t steps() const {
    return images * convolution.num_taps() / across().taps * parts();
  }
};

std::optional<Rows> RowsOf(const HloInstruction& root, RuleContext& context) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value() || found->groups() == 1 || found->batch() != 1 ||
      found->outputs() != 1 || found->spatial().empty()) {
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
  const int64_t part = PartOfRow(found->spatial().back().taps);
  Rows rows{*found, found->inputs(), part, found->groups()};
  if (sums > kMaxSums || sums > found->num_taps() || part == 0 ||
      rows.steps() > kMaxSteps) {
    return std::nullopt;
  }
  return rows;
}

// Labels of the output's positions, and of the window's elements.
std::string Positions(const Rows& rows) {
  std::string labels;
  for (size_t d = 0; d < rows.rank(); ++d) labels += PositionLabel(d);
  return labels;
}

std::string Taps(const Rows& rows) {
  std::string labels;
  for (size_t d = 0; d < rows.rank(); ++d) labels += TapLabel(d);
  return labels;
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

// With image, positions or elements of the window, and features in this order.
Labelled InOrder(Labelled array, absl::string_view spatial) {
  if (!array.Has('i')) array = WithUnit(array, 0, 'i');
  return Ordered(array, absl::StrCat("i", spatial, "g"));
}

// What one step adds to all output positions.
absl::StatusOr<Labelled> SumOfStep(const Rows& rows, HloInstruction* step,
                                   HloInstruction* input,
                                   HloInstruction* kernel) {
  const std::vector<SpatialDimension>& spatial = rows.convolution.spatial();
  const SpatialDimension& across = rows.across();
  const std::string positions = Positions(rows);
  const std::string taps = Taps(rows);
  Elementwise build(step->parent(), step->shape());
  const auto with = [&](xla::HloOpcode opcode, HloInstruction* index,
                        int64_t number) {
    return build.Binary(opcode, index,
                        build.Constant(static_cast<int32_t>(number)));
  };
  // Image, and the element of the window along each dimension but the last.
  std::vector<HloInstruction*> at(rows.rank());
  HloInstruction* rest = with(HloOpcode::kDivide, step, rows.parts());
  for (size_t d = rows.rank() - 1; d > 0; --d) {
    at[d] = with(HloOpcode::kRemainder, rest, spatial[d - 1].taps);
    rest = with(HloOpcode::kDivide, rest, spatial[d - 1].taps);
  }
  at[0] = rest;
  HloInstruction* first =
      with(HloOpcode::kMultiply,
           with(HloOpcode::kRemainder, step, rows.parts()), rows.part);
  HloInstruction* zero = build.Constant<int32_t>(0);
  std::vector<HloInstruction*> starts = {at[0]};
  std::vector<int64_t> sizes = {1};
  std::vector<int64_t> factor_sizes(rows.rank(), 1);
  std::vector<Cut> cuts;
  for (size_t d = 0; d + 1 < rows.rank(); ++d) {
    const SpatialDimension& each = spatial[d];
    starts.push_back(
        with(HloOpcode::kMultiply, at[d + 1], each.window_dilation));
    sizes.push_back((each.output - 1) * each.stride + 1);
    cuts.push_back({PositionLabel(d), 0, each.output, each.stride});
  }
  starts.push_back(with(HloOpcode::kMultiply, first, across.window_dilation));
  starts.push_back(zero);
  sizes.push_back((rows.part - 1) * across.window_dilation +
                  (across.output - 1) * across.stride + 1);
  sizes.push_back(rows.features);
  const Labelled window =
      PartAt({input, absl::StrCat("i", positions, "g")}, starts, sizes);
  std::vector<HloInstruction*> factor_starts = at;
  factor_starts.insert(factor_starts.end(), {first, zero});
  factor_sizes.insert(factor_sizes.end(), {rows.part, rows.features});
  const Labelled factors = PartAt({kernel, absl::StrCat("i", taps, "g")},
                                  factor_starts, factor_sizes);
  std::vector<Labelled> products;
  for (int64_t tap = 0; tap < rows.part; ++tap) {
    std::vector<Cut> of_tap = cuts;
    of_tap.push_back({positions.back(), tap * across.window_dilation,
                      across.output, across.stride});
    HLOENV_ASSIGN_OR_RETURN(
        Labelled product,
        MultiplyOf(WithoutUnits(Sliced(window, of_tap), "i"),
                   WithoutUnits(Sliced(factors, {{taps.back(), tap, 1}}),
                                absl::StrCat("i", taps)),
                   absl::StrCat(positions, "g"),
                   rows.convolution.accumulation()));
    products.push_back(std::move(product));
  }
  return SumOf(products);
}

absl::StatusOr<HloInstruction*> BuildRows(const Rows& rows, Images x) {
  const Convolution& convolution = rows.convolution;
  const std::string positions = Positions(rows);
  const std::string labels = absl::StrCat(positions, "g");
  const Labelled input = InOrder(
      convolution.PaddedInput(convolution.Input(x[0], false)), positions);
  const Labelled kernel = InOrder(convolution.Kernel(x[1], false), Taps(rows));
  std::vector<int64_t> sizes;
  for (const SpatialDimension& each : convolution.spatial()) {
    sizes.push_back(each.output);
  }
  sizes.push_back(rows.features);
  const Labelled zeros =
      Zeros(x[0]->parent(), convolution.accumulation().type, labels, sizes);
  absl::Status status;
  HloInstruction* sums = CountedLoop(
      static_cast<int32_t>(rows.steps()),
      {zeros.value, input.value, kernel.value},
      [&](HloInstruction* step, Images state) {
        absl::StatusOr<Labelled> added =
            SumOfStep(rows, step, state[1], state[2]);
        HloInstruction* next = state[0];
        if (added.ok()) {
          next = SumOf({{state[0], labels}, *added}).value;
        } else {
          status = added.status();
        }
        return std::vector<HloInstruction*>{next, state[1], state[2]};
      })[0];
  if (!status.ok()) return status;
  return convolution.Finish({sums, labels});
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
      "Rewrites the gradient of a depthwise convolution with respect to its "
      "kernel, and others of one input and one output feature in each "
      "group whose window is larger than the result, as a loop over the rows "
      "of the window, of which each step adds up to 32 products to each of the "
      "up to 128 sums of a group. Floats round differently.",
      &ProposeRows};
  return rule;
}

}  // namespace hloenv
