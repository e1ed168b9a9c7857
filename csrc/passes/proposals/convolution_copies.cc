// SPDX-License-Identifier: Apache-2.0
// Proposes slices for convolutions whose kernels pick one element each, as
// JAX's conv_general_dilated_patches has them for the patches of an image:
//
//   r = f32[8,200,200,9] convolution(x: f32[8,200,200,1], k: f32[3,3,1,9])
//
// where k[:, :, 0, o] is one at one place and zero at the others, becomes a
// concatenation of nine slices of the padded input, if the features are not the
// last dimension; otherwise windows along one dimension after the other, from
// the last one, so that only their first elements are copied one by one.
// Patches that do not overlap become a reshape and a transposition. Gradients,
// in which k[:, :, i, 0] is one at one place, are sums of such slices, or of
// transpositions back: one for each part of the windows in which none overlap.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "passes/proposals/own_kernel.h"
#include "xla/literal.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// Elements of the kernel up to which it is looked at, and features of each
// group that are concatenated.
constexpr int64_t kMaxKernel = int64_t{1} << 18;
constexpr int64_t kMaxCopies = 64;
// Elements of a window that are copied one by one; of longer ones, parts of
// about the square root of their elements are.
constexpr int64_t kMaxSingle = 8;
// Elements of the arrays that are made on the way, for each of the result.
constexpr double kMaxOnTheWay = 8;

// Calls `look` with the tap, the input feature of a group, the output feature
// and the value of each element of the kernel that is not zero; false if the
// module does not determine the kernel.
bool ForEachElement(const Convolution& convolution, RuleContext& context,
                    absl::FunctionRef<void(Index tap, int64_t input,
                                           int64_t output, double number)>
                        look) {
  const HloInstruction& kernel = *convolution.instruction().operand(1);
  if (xla::ShapeUtil::ElementsIn(kernel.shape()) > kMaxKernel) return false;
  const std::optional<xla::Literal> value = context.Known(kernel).Whole(kernel);
  if (!value.has_value()) return false;
  const absl::StatusOr<xla::Literal> numbers = value->Convert(xla::F64);
  if (!numbers.ok()) return false;
  const auto& dims = convolution.instruction().convolution_dimension_numbers();
  numbers->EachCell<double>([&](absl::Span<const int64_t> place,
                                double number) {
    if (number == 0) return;
    Index tap;
    for (size_t d = 0; d < convolution.spatial().size(); ++d) {
      tap.push_back(place[dims.kernel_spatial_dimensions(static_cast<int>(d))]);
    }
    look(std::move(tap), place[dims.kernel_input_feature_dimension()],
         place[dims.kernel_output_feature_dimension()], number);
  });
  return true;
}

// The tap that each output feature of a group picks; nothing if one picks none
// or several, or groups differ.
std::optional<std::vector<Index>> PickedTaps(const Convolution& convolution,
                                             RuleContext& context) {
  const HloInstruction& kernel = *convolution.instruction().operand(1);
  const auto& dims = convolution.instruction().convolution_dimension_numbers();
  std::vector<Index> taps(convolution.outputs());
  std::vector<bool> has_tap(
      kernel.shape().dimensions(dims.kernel_output_feature_dimension()), false);
  bool is_picked = true;
  const auto look = [&](Index tap, int64_t, int64_t feature, double number) {
    Index& known = taps[feature % convolution.outputs()];
    is_picked &=
        number == 1 && !has_tap[feature] && (known.empty() || known == tap);
    has_tap[feature] = true;
    known = std::move(tap);
  };
  if (!ForEachElement(convolution, context, look) || !is_picked ||
      !absl::c_all_of(has_tap, [](bool has) { return has; })) {
    return std::nullopt;
  }
  return taps;
}

// The tap through which each input feature of a group is added to the only
// output feature, empty for none; nothing if there are several, if groups
// differ, or if nothing is added.
std::optional<std::vector<Index>> AddedTaps(const Convolution& convolution,
                                            RuleContext& context) {
  std::vector<Index> taps(convolution.inputs());
  std::vector<int64_t> num_groups(convolution.inputs(), 0);
  bool is_added = true;
  const auto look = [&](Index tap, int64_t input, int64_t, double number) {
    Index& known = taps[input];
    is_added &= number == 1 && (known.empty() || known == tap);
    ++num_groups[input];
    known = std::move(tap);
  };
  if (!ForEachElement(convolution, context, look) || !is_added ||
      absl::c_all_of(taps, [](const Index& tap) { return tap.empty(); }) ||
      !absl::c_all_of(num_groups, [&](int64_t count) {
        return count == 0 || count == convolution.groups();
      })) {
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

// How windows along one dimension are made: of parts of up to so many elements.
int64_t PartOf(const SpatialDimension& dimension, int64_t run) {
  if (dimension.taps <= (run == 1 ? kMaxSingle : kMaxCopies)) return 1;
  int64_t part = 1;
  while (part * part < dimension.taps) ++part;
  return part;
}

// Elements of the padded input along this dimension, beside so many further
// ones of each window.
int64_t PositionsOf(const SpatialDimension& dimension, int64_t elements) {
  return dimension.dilated() + dimension.pad_low + dimension.pad_high -
         (elements - 1) * dimension.window_dilation;
}

// Whether the output features are the elements of the window in their order,
// and whether windows are made of them without many or large arrays.
bool AreWindows(const Convolution& convolution,
                const std::vector<Index>& taps) {
  if (taps != IndicesBelow(convolution.taps())) return false;
  const auto result = static_cast<double>(
      xla::ShapeUtil::ElementsIn(convolution.instruction().shape()));
  double elements = result;
  for (const SpatialDimension& each : convolution.spatial()) {
    elements *= static_cast<double>(PositionsOf(each, 1)) /
                static_cast<double>(each.output * each.taps);
  }
  int64_t run = 1;
  for (size_t d = convolution.spatial().size(); d-- > 0;) {
    const SpatialDimension& each = convolution.spatial()[d];
    const int64_t part = PartOf(each, run);
    elements /= static_cast<double>(PositionsOf(each, 1));
    const double parts =
        elements * static_cast<double>(PositionsOf(each, part) * part);
    elements *= static_cast<double>(each.output * each.taps);
    const double largest = std::max(part > 1 ? parts : 0, elements);
    if (each.reversed || part > kMaxCopies || largest > kMaxOnTheWay * result ||
        !convolution.Fits(largest)) {
      return false;
    }
    run *= each.taps;
  }
  return true;
}

// Parts of one dimension of an array next to each other, behind a barrier if
// they are several: XLA would copy their elements one by one in what reads
// them.
Labelled SideBySide(const std::vector<Labelled>& parts, char label) {
  Labelled all = Concatenated(parts, label);
  if (parts.size() > 1) all.value = BarrierOf(all.value);
  return all;
}

HloInstruction* BuildWindows(const Convolution& convolution,
                             HloInstruction* x) {
  Labelled windows = convolution.PaddedInput(convolution.Input(x, false));
  windows = Ordered(windows, windows.Those(convolution.OutputLabels()));
  const auto end = static_cast<int64_t>(windows.labels.size());
  std::string taps;
  int64_t run = 1;  // elements of windows next to each other
  for (size_t d = convolution.spatial().size(); d-- > 0;) {
    const SpatialDimension& each = convolution.spatial()[d];
    const char position = PositionLabel(d);
    const char tap = TapLabel(d);
    const int64_t part = PartOf(each, run);
    windows = WithUnit(windows, end, tap);
    std::vector<Labelled> shifted;
    for (int64_t i = 0; i < part; ++i) {
      shifted.push_back(Sliced(windows, {{position, i * each.window_dilation,
                                          PositionsOf(each, part)}}));
    }
    windows = SideBySide(shifted, tap);
    std::vector<Labelled> parts;
    for (int64_t i = 0; i < each.taps; i += part) {
      // The last one overlaps the one before it, if they are not as long.
      const int64_t first = std::min(i, each.taps - part);
      const int64_t size = std::min(part, each.taps - i);
      parts.push_back(Sliced(windows, {{position, first * each.window_dilation,
                                        each.output, each.stride},
                                       {tap, i - first, size}}));
    }
    windows = SideBySide(parts, tap);
    taps.insert(taps.begin(), tap);
    run *= each.taps;
  }
  return convolution.Finish(MergeLabels(windows, taps, 'o'));
}

// Windows whose elements are the input features. Along each dimension, one is
// written to the result `base_dilation` elements after the one before it.
struct WindowsBack {
  Index sizes;
  Index begins;  // of the first window in the result
};

std::optional<WindowsBack> WindowsBackOf(const Convolution& convolution,
                                         const std::vector<Index>& taps) {
  std::vector<Index> places;  // in the result, of the first window
  for (const Index& tap : taps) {
    if (tap.empty()) return std::nullopt;
    Index place;
    for (size_t d = 0; d < tap.size(); ++d) {
      const SpatialDimension& each = convolution.spatial()[d];
      if (each.stride != 1) return std::nullopt;
      place.push_back(each.pad_low - each.OffsetOf(tap[d]));
    }
    places.push_back(std::move(place));
  }
  WindowsBack windows;
  windows.begins = places.front();
  const size_t count = places.size();
  size_t elements = 1;
  for (size_t d = 0; d < windows.begins.size(); ++d) {
    const int64_t size = places.back()[d] - windows.begins[d] + 1;
    // Windows with other elements have more than there are places.
    if (size < 1 || static_cast<size_t>(size) > count) return std::nullopt;
    elements *= static_cast<size_t>(size);
    if (elements > count) return std::nullopt;
    windows.sizes.push_back(size);
  }
  for (Index& place : places) {
    for (size_t d = 0; d < place.size(); ++d) place[d] -= windows.begins[d];
  }
  if (places != IndicesBelow(windows.sizes)) return std::nullopt;
  return windows;
}

// Splits windows into parts of `base_dilation` elements along each dimension,
// so that the same parts of two windows do not overlap. The number of each part
// that reaches the result, along each dimension.
std::vector<Index> PartsOf(const Convolution& convolution,
                           const WindowsBack& windows) {
  Index counts;
  for (size_t d = 0; d < windows.sizes.size(); ++d) {
    const int64_t apart = convolution.spatial()[d].base_dilation;
    counts.push_back((windows.sizes[d] + apart - 1) / apart);
  }
  std::vector<Index> parts;
  for (Index& part : IndicesBelow(counts)) {
    bool is_inside = true;  // of the result, which may be cut off
    for (size_t d = 0; d < part.size(); ++d) {
      const SpatialDimension& each = convolution.spatial()[d];
      const int64_t low = windows.begins[d] + part[d] * each.base_dilation;
      is_inside &=
          low < each.output && low + each.input * each.base_dilation > 0;
    }
    if (is_inside) parts.push_back(std::move(part));
  }
  return parts;
}

// One part of all windows, in its place in the result.
Labelled PartBack(const Convolution& convolution, const WindowsBack& windows,
                  const Index& part, HloInstruction* x) {
  Labelled tiles = convolution.Input(x, false);
  std::string taps;
  std::string order = convolution.OutputLabels();
  std::vector<Cut> cuts;
  std::vector<Padding> fill;  // of a part that is smaller than the others
  std::vector<Padding> paddings;
  for (size_t d = 0; d < part.size(); ++d) {
    const SpatialDimension& each = convolution.spatial()[d];
    const int64_t first = part[d] * each.base_dilation;
    const int64_t size = std::min(each.base_dilation, windows.sizes[d] - first);
    taps += TapLabel(d);
    cuts.push_back({TapLabel(d), first, size});
    fill.push_back({TapLabel(d), 0, each.base_dilation - size});
    order.insert(order.find(PositionLabel(d)) + 1, 1, TapLabel(d));
    const int64_t low = windows.begins[d] + first;
    paddings.push_back({PositionLabel(d), low,
                        each.output - low - each.input * each.base_dilation});
  }
  tiles = SplitLabel(tiles, 'i', taps, windows.sizes);
  tiles = Ordered(Padded(Sliced(tiles, cuts), fill), order);
  for (size_t d = 0; d < part.size(); ++d) {
    const char position = PositionLabel(d);
    tiles = MergeLabels(tiles, Pair(position, TapLabel(d)), position);
  }
  return Padded(tiles, paddings);
}

HloInstruction* SumOfParts(const Convolution& convolution,
                           const WindowsBack& windows,
                           const std::vector<Index>& parts, HloInstruction* x) {
  std::vector<Labelled> terms;
  for (const Index& part : parts) {
    terms.push_back(Converted(PartBack(convolution, windows, part, x),
                              convolution.accumulation().type));
  }
  return convolution.Finish(SumFromZero(terms));
}

absl::StatusOr<HloInstruction*> BuildSum(const Convolution& convolution,
                                         const std::vector<Index>& taps,
                                         HloInstruction* x) {
  const Labelled padded = convolution.PaddedInput(convolution.Input(x, false));
  const std::string labels = convolution.OutputLabels();
  std::vector<Labelled> parts;
  for (size_t i = 0; i < taps.size(); ++i) {
    if (taps[i].empty()) continue;
    const Labelled feature =
        WithoutUnits(Sliced(padded, {{'i', static_cast<int64_t>(i), 1}}), "i");
    const Labelled part = Converted(convolution.InputAt(feature, taps[i]),
                                    convolution.accumulation().type);
    parts.push_back(Ordered(part, part.Those(labels)));
  }
  return convolution.Finish(SumFromZero(parts));
}

void ProposeWindowsBack(const Convolution& convolution,
                        const std::vector<Index>& taps,
                        std::vector<Proposal>& proposals) {
  const HloInstruction& root = convolution.instruction();
  std::optional<WindowsBack> windows = WindowsBackOf(convolution, taps);
  if (!windows.has_value()) return;
  std::vector<Index> parts = PartsOf(convolution, *windows);
  if (parts.empty() || parts.size() > kMaxCopies) return;
  Propose(
      CopiesRule(), root, {root.operand(0)},
      [convolution, windows = *std::move(windows),
       parts = std::move(parts)](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        if (parts.size() == 1) {
          return convolution.Finish(
              PartBack(convolution, windows, parts.front(), x[0]));
        }
        return InOwnKernel(x, [&](absl::Span<HloInstruction* const> own) {
          return SumOfParts(convolution, windows, parts, own[0]);
        });
      },
      proposals);
}

// For the gradient of patches: a convolution to one feature of each group.
void ProposeSum(const Convolution& convolution, RuleContext& context,
                std::vector<Proposal>& proposals) {
  const HloInstruction& root = convolution.instruction();
  if (convolution.outputs() > 1 || root.batch_group_count() > 1) return;
  std::optional<std::vector<Index>> taps = AddedTaps(convolution, context);
  if (!taps.has_value()) return;
  const bool has_base_dilation = absl::c_any_of(
      convolution.spatial(), [](const auto& d) { return d.base_dilation > 1; });
  if (has_base_dilation) {
    ProposeWindowsBack(convolution, *taps, proposals);
    return;
  }
  if (!Convolution::Of(root, context).has_value() ||
      convolution.inputs() > kMaxCopies) {
    return;
  }
  Propose(
      CopiesRule(), root, {root.operand(0)},
      [convolution,
       taps = *std::move(taps)](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return InOwnKernel(x, [&](absl::Span<HloInstruction* const> own) {
          return BuildSum(convolution, taps, own[0]);
        });
      },
      proposals);
}

void ProposeCopies(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found =
      Convolution::OfAnyPadding(root, context);
  if (!found.has_value()) return;
  if (found->inputs() > 1) {
    ProposeSum(*found, context, proposals);
    return;
  }
  if (found->num_taps() == 1 || !Convolution::Of(root, context).has_value()) {
    return;
  }
  std::optional<std::vector<Index>> taps = PickedTaps(*found, context);
  if (!taps.has_value()) return;
  const bool are_tiles = AreTiles(*found, *taps);
  // Parts that are one number after the other are slow.
  const std::string labels = found->OutputLabels();
  const bool is_last = !labels.empty() && labels.back() == 'o';
  const bool has_form =
      is_last ? AreWindows(*found, *taps) : found->outputs() <= kMaxCopies;
  if (!are_tiles && !has_form) return;
  Propose(
      CopiesRule(), root, {root.operand(0)},
      [convolution = *found, taps = *std::move(taps), are_tiles,
       is_last](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        if (are_tiles) return BuildTiles(convolution, x[0]);
        return InOwnKernel(x,
                           [&](absl::Span<HloInstruction* const> own)
                               -> absl::StatusOr<HloInstruction*> {
                             return is_last ? BuildWindows(convolution, own[0])
                                            : BuildCopies(convolution, taps,
                                                          own[0]);
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
      "dimension, or of slices along one dimension after the other, if they "
      "are and are the whole window, or as a transposition where windows do "
      "not overlap; and their gradients as sums of up to 64 slices or "
      "transpositions. Infinities and not-a-numbers do not reach other "
      "elements of the window.",
      &ProposeCopies};
  return rule;
}

}  // namespace hloenv
