// SPDX-License-Identifier: Apache-2.0
// Proposes convolutions without base dilation for those with: transposed
// convolutions and gradients of strided ones.
#include <algorithm>
#include <numeric>

#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "support/status.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

constexpr int64_t kMaxPhases = 16;
// Strides of phases that have no output are multiplied, too.
constexpr int64_t kMaxStride = int64_t{1} << 31;

// The output positions p = q * count + phase of one dimension, as a convolution
// without base dilation of every `step`-th tap.
struct Phase {
  SpatialDimension dimension;
  int64_t first_index;  // in the kernel
  int64_t step;
  bool is_zero;  // no tap reads the input
};

// After so many outputs of a dimension, the same taps read elements of the
// input.
int64_t CountOf(const SpatialDimension& each) {
  return each.base_dilation / std::gcd(each.base_dilation, each.stride);
}

// The outputs of each phase of a dimension, the last of which may be cropped.
int64_t SizeOfPhase(const SpatialDimension& each) {
  const int64_t count = CountOf(each);
  return (each.output + count - 1) / count;
}

Phase PhaseOf(const SpatialDimension& each, int64_t number) {
  if (each.base_dilation == 1) return {each, 0, 1, false};
  const int64_t base = each.base_dilation;
  Phase phase{each, 0, base / std::gcd(base, each.window_dilation), false};
  // The first tap that reads an element of the input at some q.
  int64_t tap = 0;
  const auto position = [&] {
    return number * each.stride + tap * each.window_dilation - each.pad_low;
  };
  // The positions are periodic.
  while (tap < std::min(each.taps, base) && position() % base != 0) ++tap;
  if (tap == base) tap = each.taps;
  SpatialDimension& result = phase.dimension;
  result.output = SizeOfPhase(each);
  result.base_dilation = 1;
  result.stride = CountOf(each) * each.stride / base;
  if (tap == each.taps) {
    phase.is_zero = true;
    return phase;
  }
  result.taps = (each.taps - 1 - tap) / phase.step + 1;
  result.window_dilation =
      result.taps == 1 ? 1 : each.window_dilation * phase.step / base;
  result.pad_low = -(position() / base);
  result.pad_high = (result.output - 1) * result.stride + 1 +
                    result.window_dilation * (result.taps - 1) - each.input -
                    result.pad_low;
  const int64_t last = tap + (result.taps - 1) * phase.step;
  phase.first_index = each.reversed ? each.taps - 1 - last : tap;
  return phase;
}

// One phase of each dimension.
using Phases = std::vector<Phase>;

absl::StatusOr<HloInstruction*> ConvolutionOf(const Convolution& convolution,
                                              const Phases& phases,
                                              HloInstruction* input,
                                              HloInstruction* kernel) {
  const HloInstruction& original = convolution.instruction();
  const auto& numbers = original.convolution_dimension_numbers();
  xla::Shape shape = xla::ShapeUtil::MakeShape(original.shape().element_type(),
                                               original.shape().dimensions());
  Labelled part{kernel, std::string(RankOf(kernel->shape()), ' ')};
  xla::Window window = original.window();
  std::vector<Cut> cuts;
  bool is_zero = false;
  // XLA computes some convolutions wrong that are padded by less than nothing
  // on one side and more on the other: the input is cut instead.
  const xla::Shape& whole = input->shape();
  std::vector<int64_t> starts(whole.dimensions().size(), 0);
  std::vector<int64_t> limits(whole.dimensions().begin(),
                              whole.dimensions().end());
  for (size_t d = 0; d < phases.size(); ++d) {
    const SpatialDimension& each = phases[d].dimension;
    const int64_t at = numbers.input_spatial_dimensions(static_cast<int>(d));
    starts[at] = std::max<int64_t>(-each.pad_low, 0);
    limits[at] += std::min<int64_t>(each.pad_high, 0);
    is_zero |= starts[at] >= limits[at];
    shape.set_dimensions(numbers.output_spatial_dimensions(d), each.output);
    part.labels[numbers.kernel_spatial_dimensions(d)] = TapLabel(d);
    cuts.push_back(
        {TapLabel(d), phases[d].first_index, each.taps, phases[d].step});
    xla::WindowDimension* dimension = window.mutable_dimensions(d);
    dimension->set_size(each.taps);
    dimension->set_stride(each.stride);
    dimension->set_padding_low(std::max<int64_t>(each.pad_low, 0));
    dimension->set_padding_high(std::max<int64_t>(each.pad_high, 0));
    dimension->set_window_dilation(each.window_dilation);
    dimension->set_base_dilation(each.base_dilation);
    is_zero |= phases[d].is_zero;
  }
  if (is_zero) {
    return Zeros(input->parent(), shape.element_type(), "", shape.dimensions())
        .value;
  }
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < starts.size(); ++d) {
    sizes.push_back(limits[d] - starts[d]);
  }
  if (absl::Span<const int64_t>(sizes) != whole.dimensions()) {
    input = input->parent()->AddInstruction(HloInstruction::CreateSlice(
        xla::ShapeUtil::MakeShape(whole.element_type(), sizes), input, starts,
        limits, std::vector<int64_t>(starts.size(), 1)));
  }
  return input->parent()->AddInstruction(HloInstruction::CreateConvolve(
      shape, input, Sliced(part, cuts).value, original.feature_group_count(),
      original.batch_group_count(), window, numbers,
      original.precision_config()));
}

// Interleaves the results of all phases, the last dimension's fastest.
HloInstruction* Interleaved(const Convolution& convolution,
                            const std::vector<HloInstruction*>& parts) {
  const auto& numbers =
      convolution.instruction().convolution_dimension_numbers();
  const std::vector<SpatialDimension>& spatial = convolution.spatial();
  std::vector<Labelled> results;
  for (HloInstruction* part : parts) {
    Labelled result{part, std::string(RankOf(part->shape()), ' ')};
    result.labels[numbers.output_batch_dimension()] = 'b';
    result.labels[numbers.output_feature_dimension()] = 'o';
    for (size_t d = 0; d < spatial.size(); ++d) {
      result.labels[numbers.output_spatial_dimensions(d)] = PositionLabel(d);
    }
    for (size_t d = 0; d < spatial.size(); ++d) {
      if (CountOf(spatial[d]) == 1) continue;
      result = WithUnit(result, result.At(PositionLabel(d)) + 1, TapLabel(d));
    }
    results.push_back(std::move(result));
  }
  for (size_t d = spatial.size(); d-- > 0;) {
    const int64_t count = CountOf(spatial[d]);
    if (count == 1) continue;
    std::vector<Labelled> joined;
    for (size_t i = 0; i < results.size(); i += count) {
      joined.push_back(
          Concatenated(absl::MakeSpan(results).subspan(i, count), TapLabel(d)));
    }
    results = std::move(joined);
  }
  Labelled result = results.front();
  for (size_t d = 0; d < spatial.size(); ++d) {
    if (CountOf(spatial[d]) == 1) continue;
    result = MergeLabels(result, Pair(PositionLabel(d), TapLabel(d)),
                         PositionLabel(d));
    result = Sliced(result, {{PositionLabel(d), 0, spatial[d].output}});
  }
  return result.value;
}

// All combinations of phases; empty if some phase has no usual form.
std::vector<Phases> AllPhases(const Convolution& convolution) {
  Index counts;
  int64_t count = 1;
  bool is_dilated = false;
  for (const SpatialDimension& each : convolution.spatial()) {
    if (each.stride > kMaxStride) return {};
    counts.push_back(CountOf(each));
    count *= counts.back();
    if (count > kMaxPhases) return {};
    is_dilated |= each.base_dilation > 1;
  }
  if (!is_dilated) return {};
  std::vector<Phases> all;
  for (const Index& index : IndicesBelow(counts)) {
    Phases phases;
    for (size_t d = 0; d < index.size(); ++d) {
      phases.push_back(PhaseOf(convolution.spatial()[d], index[d]));
      const SpatialDimension& each = phases.back().dimension;
      if (!phases.back().is_zero &&
          (each.pad_low <= -each.input || each.pad_high <= -each.input)) {
        return {};  // the padding removes the input
      }
    }
    all.push_back(std::move(phases));
  }
  return all;
}

void ProposePhases(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found =
      Convolution::OfAnyPadding(root, context);
  if (!found.has_value()) return;
  std::vector<Phases> all = AllPhases(*found);
  if (all.empty()) return;
  Propose(
      PhasesRule(), root, {root.operand(0), root.operand(1)},
      [convolution = *found,
       all = std::move(all)](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        std::vector<HloInstruction*> parts;
        for (const Phases& phases : all) {
          HLOENV_ASSIGN_OR_RETURN(
              HloInstruction * part,
              ConvolutionOf(convolution, phases, x[0], x[1]));
          parts.push_back(part);
        }
        return Interleaved(convolution, parts);
      },
      proposals);
}

}  // namespace

const Rule& PhasesRule() {
  static constexpr Rule rule = {
      "phases",
      "Rewrites a convolution with base dilation as interleaved convolutions "
      "without: one for each offset of the output in the dilation, with every "
      "other element of the kernel. Up to 16; strides make fewer. The products "
      "are those of the original without those with the zeros of the dilation; "
      "the backend may add in another order.",
      &ProposePhases};
  return rule;
}

}  // namespace hloenv
