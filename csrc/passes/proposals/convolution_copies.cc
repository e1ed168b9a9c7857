// SPDX-License-Identifier: Apache-2.0
// Proposes slices for convolutions whose kernels pick one element each, as
// JAX's conv_general_dilated_patches has them for the patches of an image:
//
//   r = f32[8,200,200,9] convolution(x: f32[8,200,200,1], k: f32[3,3,1,9])
//
// where k[:, :, 0, o] is one at one place and zero at the others, becomes a
// concatenation of nine slices of the padded input; and patches that do not
// overlap, a reshape and a transposition.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "passes/proposals/own_kernel.h"
#include "support/status.h"
#include "xla/literal.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// Elements of the kernel up to which it is looked at, and features of each
// group that are concatenated.
constexpr int64_t kMaxKernel = int64_t{1} << 18;
constexpr int64_t kMaxCopies = 64;

// The tap that each output feature of a group picks; nothing if one picks none
// or several, or groups differ.
std::optional<std::vector<Index>> PickedTaps(const Convolution& convolution,
                                             RuleContext& context) {
  const HloInstruction& kernel = *convolution.instruction().operand(1);
  if (xla::ShapeUtil::ElementsIn(kernel.shape()) > kMaxKernel) {
    return std::nullopt;
  }
  const std::optional<xla::Literal> value = context.Known(kernel).Whole(kernel);
  if (!value.has_value()) return std::nullopt;
  const absl::StatusOr<xla::Literal> numbers = value->Convert(xla::F64);
  if (!numbers.ok()) return std::nullopt;
  const auto& dims = convolution.instruction().convolution_dimension_numbers();
  std::vector<Index> taps(convolution.outputs());
  std::vector<bool> has_tap(
      kernel.shape().dimensions(dims.kernel_output_feature_dimension()), false);
  bool is_picked = true;
  const auto look = [&](absl::Span<const int64_t> place, double number) {
    if (number == 0) return;
    Index tap;
    for (size_t d = 0; d < convolution.spatial().size(); ++d) {
      tap.push_back(place[dims.kernel_spatial_dimensions(static_cast<int>(d))]);
    }
    const int64_t feature = place[dims.kernel_output_feature_dimension()];
    Index& known = taps[feature % convolution.outputs()];
    is_picked &=
        number == 1 && !has_tap[feature] && (known.empty() || known == tap);
    has_tap[feature] = true;
    known = std::move(tap);
  };
  numbers->EachCell<double>(look);
  if (!is_picked || !absl::c_all_of(has_tap, [](bool has) { return has; })) {
    return std::nullopt;
  }
  return taps;
}

// Whether the output features are the elements of windows next to each other.
bool AreTiles(const Convolution& convolution, const std::vector<Index>& taps) {
  return taps == IndicesBelow(convolution.taps()) &&
         absl::c_all_of(convolution.spatial(), [](const SpatialDimension& d) {
           return d.stride == d.taps && d.pad_low == 0 && d.pad_high <= 0 &&
                  d.window_dilation == 1 && d.base_dilation == 1 && !d.reversed;
         });
}

HloInstruction* BuildTiles(const Convolution& convolution, HloInstruction* x) {
  Labelled tiles = convolution.Input(x, false);
  std::string taps;
  for (size_t d = 0; d < convolution.spatial().size(); ++d) {
    const SpatialDimension& each = convolution.spatial()[d];
    const char position = PositionLabel(d);
    tiles = Sliced(tiles, {{position, 0, each.output * each.taps}});
    tiles = SplitLabel(tiles, position, Pair(position, TapLabel(d)),
                       {each.output, each.taps});
    taps += TapLabel(d);
  }
  // In place of the output feature.
  std::string order = convolution.OutputLabels();
  order.replace(order.find('o'), 1, taps);
  return convolution.Finish(MergeLabels(Ordered(tiles, order), taps, 'o'));
}

absl::StatusOr<HloInstruction*> BuildCopies(const Convolution& convolution,
                                            const std::vector<Index>& taps,
                                            HloInstruction* x) {
  const Labelled padded = convolution.PaddedInput(convolution.Input(x, false));
  const std::string labels = convolution.OutputLabels();
  std::vector<Labelled> parts;
  for (const Index& tap : taps) {
    const Labelled part = convolution.InputAt(padded, tap);
    parts.push_back(Ordered(part, part.Those(labels)));
  }
  if (parts.size() == 1) return convolution.Finish(parts.front());
  return convolution.Finish(Stacked(parts, 'o', labels));
}

void ProposeCopies(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value() || found->inputs() > 1 || found->num_taps() == 1) {
    return;
  }
  std::optional<std::vector<Index>> taps = PickedTaps(*found, context);
  if (!taps.has_value()) return;
  const bool are_tiles = AreTiles(*found, *taps);
  // Parts that are one number after the other are slow.
  const std::string labels = found->OutputLabels();
  const bool is_last = !labels.empty() && labels.back() == 'o';
  if (!are_tiles && (is_last || found->outputs() > kMaxCopies)) return;
  Propose(
      CopiesRule(), root, {root.operand(0)},
      [convolution = *found, taps = *std::move(taps),
       are_tiles](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        if (are_tiles) return BuildTiles(convolution, x[0]);
        return InOwnKernel(x, [&](absl::Span<HloInstruction* const> own) {
          return BuildCopies(convolution, taps, own[0]);
        });
      },
      proposals);
}

}  // namespace

const Rule& CopiesRule() {
  static constexpr Rule rule = {
      "copies",
      "Rewrites a convolution whose kernel the module determines, and that "
      "picks one element of the window for each output feature, as a "
      "concatenation of up to 64 slices, if these features are not the last "
      "dimension, or as a transposition where windows do not overlap. "
      "Infinities and not-a-numbers do not reach other "
      "elements of the window.",
      &ProposeCopies};
  return rule;
}

}  // namespace hloenv
