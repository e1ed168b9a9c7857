// SPDX-License-Identifier: Apache-2.0
// Proposes other forms of convolutions: as sums over taps, as separate output
// positions, and as a product of matrices of patches.
#include <numeric>

#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/own_kernel.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using Images = absl::Span<HloInstruction* const>;

// Limits of the number of instructions that a rule adds, and of the elements of
// an array that it adds.
constexpr int64_t kMaxTaps = 169;
constexpr int64_t kMaxTapsOfDots = 27;
constexpr int64_t kMaxTapsOfPatches = 64;
constexpr int64_t kMaxFeatures = 8;
constexpr int64_t kMaxFeatureProducts = 256;
constexpr int64_t kMaxPositions = 64;
constexpr int64_t kFewPositions = 16;
// The part of the products that do not read padding, below which the others are
// left out.
constexpr double kMaxInside = 0.6;
constexpr int64_t kMaxPatchElements = int64_t{1} << 25;
// Of the results of all dots of a form, which may be in memory together.
constexpr int64_t kMaxProductElements = int64_t{1} << 27;

// Positions after which an index counts as read.
constexpr int64_t kMaxLooks = int64_t{1} << 16;

// Whether kernel index `k` is multiplied with any element of the input.
bool ReadsInput(const SpatialDimension& dimension, int64_t k) {
  const int64_t start = dimension.OffsetOf(k) - dimension.pad_low;
  int64_t p = start >= 0 ? 0 : -start / dimension.stride;
  // Where it reads between elements is periodic.
  const int64_t num_looks = std::min(dimension.base_dilation + 1, kMaxLooks);
  for (int64_t looks = 0; p < dimension.output; ++p, ++looks) {
    if (looks > num_looks) return num_looks == kMaxLooks;
    const int64_t at = p * dimension.stride + start;
    if (at >= dimension.dilated()) return false;
    if (at >= 0 && at % dimension.base_dilation == 0) return true;
  }
  return false;
}

// The kernel indices that do not read only padding.
std::vector<Index> UsedTaps(const Convolution& convolution) {
  std::vector<Index> used;
  for (const Index& tap : IndicesBelow(convolution.taps())) {
    bool reads = true;
    for (size_t d = 0; d < tap.size(); ++d) {
      reads = reads && ReadsInput(convolution.spatial()[d], tap[d]);
    }
    if (reads) used.push_back(tap);
  }
  return used;
}

// Whether `g` becomes a batch dimension of dots, which must come first.
bool HasGroupedDots(const Convolution& convolution) {
  return convolution.groups() > 1 && convolution.inputs() > 1;
}

absl::StatusOr<HloInstruction*> BuildTaps(const Convolution& convolution,
                                          const std::vector<Index>& taps,
                                          Images x) {
  const bool groups_first = HasGroupedDots(convolution);
  const Labelled padded =
      convolution.PaddedInput(convolution.Input(x[0], groups_first));
  const Labelled kernel = convolution.Kernel(x[1], groups_first);
  std::vector<Labelled> products;
  for (const Index& tap : taps) {
    HLOENV_ASSIGN_OR_RETURN(
        Labelled product,
        convolution.Product(convolution.InputAt(padded, tap),
                            convolution.KernelAt(kernel, tap)));
    products.push_back(std::move(product));
  }
  return convolution.Finish(SumOfProducts(products));
}

// How the sum over taps is built; nothing if the rules do not apply. With dots
// where a group has several input features.
struct TapsForm {
  BuildFn build;
  bool has_dots;
};

std::optional<TapsForm> TapsFormOf(const HloInstruction& root,
                                   RuleContext& context,
                                   Convolution::Form form) {
  const std::optional<Convolution> found = Convolution::Of(root, context, form);
  if (!found.has_value() || found->num_taps() == 1) return std::nullopt;
  const bool has_dots = found->inputs() > 1;
  if (found->num_taps() > (has_dots ? kMaxTapsOfDots : kMaxTaps)) {
    return std::nullopt;
  }
  std::vector<Index> taps = UsedTaps(*found);
  const int64_t results = xla::ShapeUtil::ElementsIn(root.shape());
  if (taps.empty() ||
      (has_dots &&
       results > kMaxProductElements / static_cast<int64_t>(taps.size()))) {
    return std::nullopt;
  }
  return TapsForm{[convolution = *found, taps = std::move(taps)](Images x) {
                    return BuildTaps(convolution, taps, x);
                  },
                  has_dots};
}

// As the sum over taps, of a multiplication for each input feature.
absl::StatusOr<HloInstruction*> BuildTerms(const Convolution& convolution,
                                           const std::vector<Index>& taps,
                                           Images x) {
  const Labelled padded =
      convolution.PaddedInput(convolution.Input(x[0], false));
  const Labelled kernel = convolution.Kernel(x[1], false);
  std::vector<Labelled> products;
  for (const Index& tap : taps) {
    const Labelled input = convolution.InputAt(padded, tap);
    const Labelled factor = convolution.KernelAt(kernel, tap);
    for (int64_t i = 0; i < convolution.inputs(); ++i) {
      const Cut feature = {'i', i, 1};
      HLOENV_ASSIGN_OR_RETURN(
          Labelled product,
          convolution.Product(WithoutUnits(Sliced(input, {feature}), "i"),
                              WithoutUnits(Sliced(factor, {feature}), "i")));
      products.push_back(std::move(product));
    }
  }
  return convolution.Finish(SumFromZero(products));
}

void ProposeTerms(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found =
      Convolution::Of(root, context, Convolution::Form::kApart);
  if (!found.has_value() || found->groups() > 1 || found->inputs() == 1 ||
      found->num_taps() == 1 || found->inputs() > kMaxFeatures ||
      found->num_taps() * found->inputs() > kMaxFeatureProducts) {
    return;
  }
  std::vector<Index> taps = UsedTaps(*found);
  if (taps.empty()) return;
  Propose(
      TermsRule(), root, {root.operand(0), root.operand(1)},
      [convolution = *found, taps = std::move(taps)](Images x) {
        return InOwnKernel(
            x, [&](Images own) { return BuildTerms(convolution, taps, own); });
      },
      proposals);
}

void ProposeTaps(const HloInstruction& root, RuleContext& context,
                 std::vector<Proposal>& proposals) {
  std::optional<TapsForm> form =
      TapsFormOf(root, context, Convolution::Form::kFused);
  if (!form.has_value()) return;
  Propose(TapsRule(), root, {root.operand(0), root.operand(1)},
          std::move(form->build), proposals);
}

void ProposeTapsApart(const HloInstruction& root, RuleContext& context,
                      std::vector<Proposal>& proposals) {
  const std::optional<TapsForm> form =
      TapsFormOf(root, context, Convolution::Form::kApart);
  if (!form.has_value() || form->has_dots) return;  // dots are no kernels
  Propose(
      TapsApartRule(), root, {root.operand(0), root.operand(1)},
      [build = form->build](Images x) { return InOwnKernel(x, build); },
      proposals);
}

// The products at output position `p` that do not read padding: of the taps
// and the elements of the input, each one in `step`.
struct Inside {
  int64_t size = 0;
  int64_t first_tap = 0;
  int64_t tap_step = 1;
  int64_t first_input = 0;
  int64_t input_step = 1;
};

Inside InsideOf(const SpatialDimension& dimension, int64_t p) {
  const int64_t base = dimension.base_dilation;
  const int64_t start = p * dimension.stride - dimension.pad_low;
  for (int64_t tap = 0; tap < dimension.taps; ++tap) {
    const int64_t at = start + tap * dimension.window_dilation;
    if (at < 0 || at % base != 0) continue;
    const int64_t input = at / base;
    if (input >= dimension.input) break;
    const int64_t divisor = std::gcd(base, dimension.window_dilation);
    const int64_t tap_step = base / divisor;
    const int64_t input_step = dimension.window_dilation / divisor;
    const int64_t size = std::min((dimension.taps - 1 - tap) / tap_step,
                                  (dimension.input - 1 - input) / input_step) +
                         1;
    return {size, tap, tap_step, input, input_step};
  }
  return {};
}

// The dimensions of the padded input.
std::vector<SpatialDimension> OfPadded(const Convolution& convolution) {
  std::vector<SpatialDimension> spatial = convolution.spatial();
  for (SpatialDimension& each : spatial) {
    each.input = each.dilated() + each.pad_low + each.pad_high;
    each.pad_low = each.pad_high = 0;
    each.base_dilation = 1;
  }
  return spatial;
}

// The window at one output position, and the part of the kernel that it is
// multiplied with; both with the labels of taps. A kernel whose window is
// reversed must have been reversed.
struct WindowParts {
  Labelled input;
  Labelled kernel;
};

WindowParts PartsAt(const std::vector<SpatialDimension>& spatial,
                    const Labelled& input, const Labelled& kernel,
                    const Index& position) {
  std::vector<Cut> of_input;
  std::vector<Cut> of_kernel;
  for (size_t d = 0; d < spatial.size(); ++d) {
    const Inside inside = InsideOf(spatial[d], position[d]);
    of_input.push_back(
        {PositionLabel(d), inside.first_input, inside.size, inside.input_step});
    of_kernel.push_back(
        {TapLabel(d), inside.first_tap, inside.size, inside.tap_step});
  }
  WindowParts parts{Sliced(input, of_input), Sliced(kernel, of_kernel)};
  for (size_t d = 0; d < spatial.size(); ++d) {
    parts.input.labels[parts.input.At(PositionLabel(d))] = TapLabel(d);
  }
  return parts;
}

// Whether the products over whole windows are dots with the groups as batch.
bool HasGroupedWindowDots(const Convolution& convolution) {
  return convolution.groups() > 1 &&
         (convolution.batch() > 1 || convolution.outputs() > 1);
}

// Gives an array of all positions, with label 'p' in front, their labels.
Labelled WithPositions(const Convolution& convolution, const Labelled& array) {
  std::string labels;
  for (size_t d = 0; d < convolution.spatial().size(); ++d) {
    labels += PositionLabel(d);
  }
  return SplitLabel(array, 'p', labels, convolution.positions());
}

// Whether windows are cut down to the part inside of the input: if there is
// base dilation, or if that leaves out a good part of the products. Otherwise
// the padding costs less than slices of the kernel.
bool CropsWindows(const Convolution& convolution) {
  double part = 1;
  for (const SpatialDimension& each : convolution.spatial()) {
    if (each.base_dilation > 1) return true;
    int64_t inside = 0;
    for (int64_t p = 0; p < each.output; ++p) inside += InsideOf(each, p).size;
    part *= static_cast<double>(inside) / (each.output * each.taps);
  }
  return part < kMaxInside;
}

absl::StatusOr<HloInstruction*> BuildOutputs(const Convolution& convolution,
                                             Images x) {
  const bool groups_first = HasGroupedWindowDots(convolution);
  Labelled input = convolution.Input(x[0], groups_first);
  const Labelled kernel = Reversed(convolution.Kernel(x[1], groups_first),
                                   convolution.ReversedTaps());
  std::vector<SpatialDimension> spatial = convolution.spatial();
  if (!CropsWindows(convolution)) {
    input = convolution.PaddedInput(input);
    spatial = OfPadded(convolution);
  }
  std::vector<Labelled> results;
  for (const Index& position : IndicesBelow(convolution.positions())) {
    const WindowParts parts = PartsAt(spatial, input, kernel, position);
    HLOENV_ASSIGN_OR_RETURN(Labelled result,
                            convolution.Sum(parts.input, parts.kernel));
    results.push_back(WithUnit(result, 0, 'p'));
  }
  return convolution.Finish(
      WithPositions(convolution, Concatenated(results, 'p')));
}

// Whether the window at each output position reads some element of the input.
bool ReadsInputEverywhere(const Convolution& convolution) {
  for (const SpatialDimension& each : convolution.spatial()) {
    for (int64_t p = 0; p < each.output; ++p) {
      if (InsideOf(each, p).size == 0) return false;
    }
  }
  return true;
}

void ProposeOutputs(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value()) return;
  const int64_t positions = found->num_positions();
  if (positions > kMaxPositions ||
      (positions > kFewPositions && positions >= found->num_taps()) ||
      found->num_taps() == 1 || !ReadsInputEverywhere(*found)) {
    return;
  }
  Propose(
      OutputsRule(), root, {root.operand(0), root.operand(1)},
      [convolution = *found](Images x) { return BuildOutputs(convolution, x); },
      proposals);
}

// Concatenates the input at each tap in dimensions of their own.
absl::StatusOr<HloInstruction*> BuildPatchesOfTaps(
    const Convolution& convolution, Images x) {
  const bool groups_first = convolution.groups() > 1;
  const Labelled padded =
      convolution.PaddedInput(convolution.Input(x[0], groups_first));
  const Labelled kernel = convolution.Kernel(x[1], groups_first);
  // In front of the input features, where the kernel usually has its taps.
  const int64_t at = padded.Has('i')
                         ? padded.At('i')
                         : static_cast<int64_t>(padded.labels.size());
  std::vector<Labelled> slices;
  for (const Index& tap : IndicesBelow(convolution.taps())) {
    slices.push_back(WithUnit(convolution.InputAt(padded, tap), at, 't'));
  }
  const std::string taps =
      std::string("xyz").substr(0, convolution.spatial().size());
  HLOENV_ASSIGN_OR_RETURN(
      Labelled result,
      convolution.Product(
          SplitLabel(Concatenated(slices, 't'), 't', taps, convolution.taps()),
          kernel));
  return convolution.Finish(result);
}

// Concatenates the window at each output position.
absl::StatusOr<HloInstruction*> BuildPatchesOfOutputs(
    const Convolution& convolution, Images x) {
  const bool groups_first = convolution.groups() > 1;
  const Labelled padded =
      convolution.PaddedInput(convolution.Input(x[0], groups_first));
  const Labelled kernel = Reversed(convolution.Kernel(x[1], groups_first),
                                   convolution.ReversedTaps());
  const std::vector<SpatialDimension> spatial = OfPadded(convolution);
  // Behind the groups, which are a batch dimension.
  const int64_t at = groups_first ? 1 : 0;
  std::vector<Labelled> windows;
  for (const Index& position : IndicesBelow(convolution.positions())) {
    const WindowParts parts = PartsAt(spatial, padded, kernel, position);
    windows.push_back(WithUnit(parts.input, at, 'p'));
  }
  HLOENV_ASSIGN_OR_RETURN(
      Labelled result, convolution.Product(Concatenated(windows, 'p'), kernel));
  return convolution.Finish(WithPositions(convolution, result));
}

void ProposePatches(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value() || found->num_taps() == 1) return;
  const int64_t features = found->groups() * found->batch() * found->inputs();
  const int64_t positions = found->num_positions();
  const int64_t taps = found->num_taps();
  const bool by_taps = taps <= kMaxTapsOfPatches;
  if ((!by_taps && positions > kMaxPositions) ||
      positions > kMaxPatchElements / features / taps ||
      (found->groups() > 1 && found->outputs() == 1 &&
       (by_taps ? found->inputs() : found->batch()) == 1)) {
    return;
  }
  Propose(
      PatchesRule(), root, {root.operand(0), root.operand(1)},
      [convolution = *found, by_taps](Images x) {
        return by_taps ? BuildPatchesOfTaps(convolution, x)
                       : BuildPatchesOfOutputs(convolution, x);
      },
      proposals);
}

}  // namespace

const Rule& TapsRule() {
  static constexpr Rule rule = {
      "taps",
      "Rewrites a convolution as the sum over the elements of the window of "
      "the input there times that part of the kernel: a multiplication if each "
      "group has one input feature, else a dot. For up to 169 elements, 25 "
      "with "
      "dots, whose results have up to 2^27 in all. Floats round differently.",
      &ProposeTaps};
  return rule;
}

const Rule& TapsApartRule() {
  static constexpr Rule rule = {"taps_apart",
                                "The sums of multiplications of the rule taps, "
                                "in a call that XLA does not "
                                "inline: where several operations read the "
                                "result, XLA would compute it in "
                                "each of them. Floats round differently.",
                                &ProposeTapsApart};
  return rule;
}

const Rule& TermsRule() {
  static constexpr Rule rule = {
      "terms",
      "Rewrites a convolution of 2 to 8 input features as the sum of a "
      "multiplication for each of them and each element of the window, up to "
      "256, in a call that XLA does not inline. Floats round differently.",
      &ProposeTerms};
  return rule;
}

const Rule& OutputsRule() {
  static constexpr Rule rule = {
      "outputs",
      "Computes each output position of a convolution by itself, from the part "
      "of the input in its window: as a dot, or as a multiplication and a "
      "reduction if batch and output features have one element in each group. "
      "For up to 16 positions, or up to 64 if the window is larger: gradients "
      "with respect to kernels. Floats round differently.",
      &ProposeOutputs};
  return rule;
}

const Rule& PatchesRule() {
  static constexpr Rule rule = {
      "patches",
      "Rewrites a convolution as one dot of the kernel with the concatenated "
      "parts of the input: of each element of the window (up to 64), or of "
      "each output position (up to 64). Up to 2^25 elements. Floats round "
      "differently.",
      &ProposePatches};
  return rule;
}

namespace {

absl::Span<const Rule> ConvolutionRules() {
  static const auto* rules = new std::vector<Rule>{
      TapsRule(),   OutputsRule(),  PatchesRule(),   BlocksRule(),
      PhasesRule(), RowsRule(),     TapsApartRule(), TermsRule(),
      BandsRule(),  ToeplitzRule(), CopiesRule(),    ChannelsLastRule()};
  return *rules;
}

}  // namespace

PassInfo ConvolutionFormsPass() {
  return RulePass(
      "convolution-forms", "hloenv::ConvolutionForms",
      "Proposes other forms of convolutions: sums of multiplications or dots, "
      "one dot, or convolutions without base dilation. Run it before layout "
      "assignment, best before XLA's own passes. Integer results are exact, "
      "floats round differently: the products are the same, and are summed in "
      "another order, in no shorter type. The padding is written as zeros that "
      "are multiplied, so an infinity in the kernel gives NaN there; "
      "convolutions whose kernels contain infinities or huge masks of the "
      "module are not rewritten.",
      ConvolutionRules(), [](const Options& options) {
        return MakeRulePass("convolution-forms", ConvolutionRules(), options);
      });
}

}  // namespace hloenv
