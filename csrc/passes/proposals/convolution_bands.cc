// SPDX-License-Identifier: Apache-2.0
// Proposes one dot for convolutions of images with large windows and few
// features, and for their gradients with respect to kernels.
#include <algorithm>

#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using Images = absl::Span<HloInstruction* const>;

// Slices that a rule makes of one dimension.
constexpr int64_t kMaxBands = 64;
// Of each array that is made.
constexpr double kMaxBandElements = 1 << 25;

// Rows and columns of a convolution of images.
struct Bands {
  Convolution convolution;

  const SpatialDimension& down() const { return convolution.spatial()[0]; }
  const SpatialDimension& across() const { return convolution.spatial()[1]; }
  // Those rows of the padded input that are read.
  int64_t rows() const {
    return (down().output - 1) * down().stride +
           (down().taps - 1) * down().window_dilation + 1;
  }
  // Whether the window is not larger than the result.
  bool is_by_taps() const {
    return convolution.num_taps() <= convolution.num_positions();
  }
};

Labelled Renamed(Labelled array, char from, char to) {
  array.labels[array.At(from)] = to;
  return array;
}

// With one more dimension, in front of all but the groups.
Labelled StackedFirst(const std::vector<Labelled>& parts, char label,
                      absl::string_view order) {
  const std::string others = parts[0].Those(order);
  const size_t at = others.find('g') == 0 ? 1 : 0;
  return Stacked(parts, label,
                 others.substr(0, at) + label + others.substr(at));
}

// The columns of the input that each column of the window reads, times the
// kernel: a result for each row of the window, which are added up.
absl::StatusOr<HloInstruction*> BuildByTaps(const Bands& bands, Images x) {
  const Convolution& convolution = bands.convolution;
  const Accumulation& sums = convolution.accumulation();
  const Labelled input = Converted(
      convolution.PaddedInput(convolution.Input(x[0], true)), sums.type);
  const Labelled kernel = Converted(convolution.Kernel(x[1], true), sums.type);
  const SpatialDimension& across = bands.across();
  std::vector<Labelled> columns;
  for (int64_t tap = 0; tap < across.taps; ++tap) {
    columns.push_back(Sliced(
        input, {{'1', across.OffsetOf(tap), across.output, across.stride}}));
  }
  const Labelled patches = StackedFirst(columns, 'y', "gib01");
  const Labelled products =
      DotOf(kernel, patches, kernel.Those("gxo") + patches.Those("b01"),
            WithOperandsSwapped(sums));
  const SpatialDimension& down = bands.down();
  std::vector<Labelled> rows;
  for (int64_t tap = 0; tap < down.taps; ++tap) {
    const Labelled row = Sliced(
        products,
        {{'x', tap, 1}, {'0', down.OffsetOf(tap), down.output, down.stride}});
    rows.push_back(WithoutUnits(row, "x"));
  }
  return convolution.Finish(SumOf(rows));
}

// The columns of the input that each column of the result reads, times the
// kernel with zeros around it, at each row of the result.
absl::StatusOr<HloInstruction*> BuildByPositions(const Bands& bands, Images x) {
  const Convolution& convolution = bands.convolution;
  const Accumulation& sums = convolution.accumulation();
  const SpatialDimension& down = bands.down();
  const SpatialDimension& across = bands.across();
  const Labelled padded =
      convolution.PaddedInput(convolution.Input(x[0], true));
  const Labelled input =
      Converted(Sliced(padded, {{'0', 0, bands.rows()}}), sums.type);
  const Labelled kernel = Converted(
      Reversed(convolution.Kernel(x[1], true), convolution.ReversedTaps()),
      sums.type);
  std::vector<Labelled> columns;
  for (int64_t p = 0; p < across.output; ++p) {
    const Labelled column = Sliced(
        input, {{'1', p * across.stride, across.taps, across.window_dilation}});
    columns.push_back(Renamed(Renamed(column, '1', 'y'), '0', 'r'));
  }
  std::vector<Labelled> rows;
  const int64_t size = (down.taps - 1) * down.window_dilation + 1;
  for (int64_t p = 0; p < down.output; ++p) {
    const int64_t first = p * down.stride;
    const Labelled row = Padded(
        kernel,
        {{'x', first, bands.rows() - first - size, down.window_dilation - 1}});
    rows.push_back(Renamed(row, 'x', 'r'));
  }
  const Labelled windows = StackedFirst(columns, '1', "gbiry");
  const Labelled kernels = StackedFirst(rows, '0', "goiry");
  return convolution.Finish(DotOf(
      windows, kernels, windows.Those("g1b") + kernels.Those("0o"), sums));
}

bool IsSmall(const Bands& bands) {
  const Convolution& convolution = bands.convolution;
  const SpatialDimension& down = bands.down();
  const SpatialDimension& across = bands.across();
  const bool is_by_taps = bands.is_by_taps();
  if ((is_by_taps ? std::max(down.taps, across.taps)
                  : std::max(down.output, across.output)) > kMaxBands) {
    return false;
  }
  // In doubles, as the product of all may be larger than an integer.
  const auto product = [](std::initializer_list<int64_t> sizes) {
    double result = 1;
    for (int64_t size : sizes) result *= static_cast<double>(size);
    return result;
  };
  const double rows = product({convolution.groups(), bands.rows()});
  const double columns =
      rows * product({convolution.batch(), convolution.inputs(), across.taps,
                      across.output});
  const double others =
      rows * (is_by_taps ? product({convolution.batch(), convolution.outputs(),
                                    down.taps, across.output})
                         : product({convolution.inputs(), convolution.outputs(),
                                    across.taps, down.output}));
  return std::max(columns, others) <= kMaxBandElements;
}

void ProposeBands(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value() || found->spatial().size() != 2) return;
  const Bands bands{*found};
  for (const SpatialDimension& each : found->spatial()) {
    const int64_t size = bands.is_by_taps() ? each.taps : each.output;
    if (each.base_dilation != 1 || size == 1) return;
  }
  // Elements of the input are multiplied with zeros then.
  if (!bands.is_by_taps() && context.ExtremesOf(*root.operand(0)).large()) {
    return;
  }
  if (!IsSmall(bands)) return;
  Propose(
      BandsRule(), root, {root.operand(0), root.operand(1)},
      [bands](Images x) {
        return bands.is_by_taps() ? BuildByTaps(bands, x)
                                  : BuildByPositions(bands, x);
      },
      proposals);
}

}  // namespace

const Rule& BandsRule() {
  static constexpr Rule rule = {
      "bands",
      "Rewrites a convolution of images, with up to 64 rows and columns of the "
      "window, as one dot of the kernel with the columns that are read, whose "
      "results for the rows of the window are added up. Likewise a gradient "
      "with respect to a kernel, of up to 64 rows and columns, as one dot with "
      "the other operand at each row, and zeros around it, with which an "
      "infinity gives NaN. Up to 2^25 elements. Floats round differently.",
      &ProposeBands};
  return rule;
}

}  // namespace hloenv
