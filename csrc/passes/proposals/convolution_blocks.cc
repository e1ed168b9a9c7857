// SPDX-License-Identifier: Apache-2.0
// Proposes one dot for convolutions whose windows do not overlap, such as patch
// embeddings, and for their gradients.
#include <algorithm>

#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "support/status.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// How a spatial dimension falls apart into blocks.
enum class BlockKind {
  kNone,
  // The windows do not overlap: block p of the input has the positions that
  // output p reads.
  kWindows,
  // The output is shorter than the window dilation: block t of the input has
  // the positions that tap t reads. The gradient with respect to the kernel.
  kTaps,
  // The window is not longer than the base dilation, or the input has one
  // position: each output reads at most one element, and those that read input
  // q are one block. The gradient with respect to the input.
  kOutputs,
};

// The size of the blocks.
int64_t BlockSize(const SpatialDimension& each, BlockKind kind) {
  switch (kind) {
    case BlockKind::kWindows:
      // One output reads no more than its window.
      return each.output == 1 ? (each.taps - 1) * each.window_dilation + 1
                              : each.stride;
    case BlockKind::kTaps:
      return each.window_dilation;
    default:
      return each.input == 1 ? each.taps : each.base_dilation;
  }
}

// What must be added to both ends of an array of the input's size to give all
// its blocks; of kOutputs, to the blocks to give the output.
Padding PaddingOf(const SpatialDimension& each, BlockKind kind, size_t d) {
  const int64_t block = BlockSize(each, kind);
  switch (kind) {
    case BlockKind::kWindows:
      return {PositionLabel(d), each.pad_low,
              each.output * block - each.input - each.pad_low};
    case BlockKind::kTaps:
      return {PositionLabel(d), each.pad_low,
              each.taps * block - each.input - each.pad_low};
    default: {
      const int64_t low = each.pad_low - (each.taps - 1);
      return {PositionLabel(d), low, each.output - each.input * block - low};
    }
  }
}

BlockKind KindOf(const SpatialDimension& each, size_t d) {
  BlockKind kind = BlockKind::kNone;
  if (each.base_dilation == 1 &&
      (each.taps - 1) * each.window_dilation < each.stride) {
    kind = BlockKind::kWindows;
  } else if (each.base_dilation == 1 &&
             (each.output - 1) * each.stride < each.window_dilation) {
    kind = BlockKind::kTaps;
  } else if (each.stride == 1 &&
             (each.taps == 1 || each.window_dilation == 1) &&
             (each.input == 1 || each.taps <= each.base_dilation)) {
    kind = BlockKind::kOutputs;
  }
  if (kind == BlockKind::kNone) return kind;
  // Padding must not remove everything.
  const int64_t size = kind == BlockKind::kOutputs
                           ? each.input * BlockSize(each, kind)
                           : each.input;
  const Padding padding = PaddingOf(each, kind, d);
  return padding.low <= -size || padding.high <= -size ? BlockKind::kNone
                                                       : kind;
}

// The input with labels of positions and, unless the kernel has one element, of
// taps.
Labelled BlocksOfInput(Labelled input, const SpatialDimension& each,
                       BlockKind kind, size_t d) {
  const char position = PositionLabel(d);
  const char tap = TapLabel(d);
  switch (kind) {
    case BlockKind::kWindows:
      if (each.taps == 1) {
        input = Padded(input, {{position, each.pad_low, each.pad_high}});
        return Sliced(input, {{position, 0, each.output, each.stride}});
      }
      input = Padded(input, {PaddingOf(each, kind, d)});
      input = SplitLabel(input, position, Pair(position, tap),
                         {each.output, BlockSize(each, kind)});
      return Sliced(input, {{tap, 0, each.taps, each.window_dilation}});
    case BlockKind::kTaps:
      if (each.output == 1) {
        input = Padded(input, {{position, each.pad_low, each.pad_high}});
        input = Sliced(input, {{position, 0, each.taps, each.window_dilation}});
        return SplitLabel(input, position, Pair(tap, position), {each.taps, 1});
      }
      input = Padded(input, {PaddingOf(each, kind, d)});
      input = SplitLabel(input, position, Pair(tap, position),
                         {each.taps, each.window_dilation});
      return Sliced(input, {{position, 0, each.output, each.stride}});
    default:
      return input;
  }
}

// The output, where it has dimensions of blocks and of their elements.
Labelled JoinBlocks(const Convolution& convolution,
                    const std::vector<BlockKind>& kinds, Labelled result) {
  std::string labels;
  for (char label : convolution.OutputLabels()) {
    labels += label;
    for (size_t d = 0; d < kinds.size(); ++d) {
      if (label != PositionLabel(d) || kinds[d] != BlockKind::kOutputs) {
        continue;
      }
      labels += TapLabel(d);
      if (!result.Has(TapLabel(d))) {
        result = WithUnit(result, result.At(label) + 1, TapLabel(d));
      }
    }
  }
  result = Ordered(result, labels);
  for (size_t d = 0; d < kinds.size(); ++d) {
    if (kinds[d] != BlockKind::kOutputs) continue;
    const SpatialDimension& each = convolution.spatial()[d];
    const int64_t missing = BlockSize(each, kinds[d]) - each.taps;
    result = Padded(result, {{TapLabel(d), 0, missing}});
    result = MergeLabels(result, Pair(PositionLabel(d), TapLabel(d)),
                         PositionLabel(d));
    result = Padded(result, {PaddingOf(each, kinds[d], d)});
  }
  return result;
}

absl::StatusOr<HloInstruction*> BuildBlocks(
    const Convolution& convolution, const std::vector<BlockKind>& kinds,
    absl::Span<HloInstruction* const> x) {
  const bool groups_first =
      convolution.groups() > 1 && convolution.inputs() > 1;
  Labelled input = convolution.Input(x[0], groups_first);
  Labelled kernel = convolution.Kernel(x[1], groups_first);
  std::string reversed;
  std::string units;
  for (size_t d = 0; d < kinds.size(); ++d) {
    const SpatialDimension& each = convolution.spatial()[d];
    input = BlocksOfInput(input, each, kinds[d], d);
    // Inside of a block of outputs, the taps come in the opposite order.
    if (each.reversed != (kinds[d] == BlockKind::kOutputs)) {
      reversed += TapLabel(d);
    }
    if (each.taps == 1 && kinds[d] != BlockKind::kTaps) units += TapLabel(d);
  }
  kernel = WithoutUnits(Reversed(kernel, reversed), units);
  HLOENV_ASSIGN_OR_RETURN(Labelled result, convolution.Sum(input, kernel));
  return convolution.Finish(JoinBlocks(convolution, kinds, result));
}

// Elements of the largest array that is made: the input with its padding, or
// the output, whose blocks are joined and cut one dimension after the other.
double LargestOf(const Convolution& convolution,
                 const std::vector<BlockKind>& kinds) {
  double input = convolution.num_elements();
  auto output = static_cast<double>(
      xla::ShapeUtil::ElementsIn(convolution.instruction().shape()));
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  for (size_t d = 0; d < kinds.size(); ++d) {
    const SpatialDimension& each = convolution.spatial()[d];
    if (kinds[d] == BlockKind::kOutputs) {
      output *= ratio(each.input * each.taps, each.output);
      continue;
    }
    const Padding padding = PaddingOf(each, kinds[d], d);
    const int64_t blocks = each.input + padding.low + padding.high;
    const int64_t padded = each.input + each.pad_low + each.pad_high;
    input *= ratio(std::max(blocks, padded), each.input);
  }
  double largest = std::max(input, output);
  for (size_t d = 0; d < kinds.size(); ++d) {
    if (kinds[d] != BlockKind::kOutputs) continue;
    const SpatialDimension& each = convolution.spatial()[d];
    output *= ratio(BlockSize(each, kinds[d]), each.taps);
    largest = std::max(largest, output);
    output *= ratio(each.output, each.input * BlockSize(each, kinds[d]));
    largest = std::max(largest, output);
  }
  return largest;
}

void ProposeBlocks(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found =
      Convolution::OfAnyPadding(root, context);
  if (!found.has_value()) return;
  std::vector<BlockKind> kinds;
  for (size_t d = 0; d < found->spatial().size(); ++d) {
    kinds.push_back(KindOf(found->spatial()[d], d));
    if (kinds.back() == BlockKind::kNone) return;
  }
  if (!found->Fits(LargestOf(*found, kinds))) return;
  Propose(
      BlocksRule(), root, {root.operand(0), root.operand(1)},
      [convolution = *found, kinds](absl::Span<HloInstruction* const> x) {
        return BuildBlocks(convolution, kinds, x);
      },
      proposals);
}

}  // namespace

const Rule& BlocksRule() {
  static constexpr Rule rule = {
      "blocks",
      "Rewrites a convolution whose windows do not overlap, with any stride, "
      "as one dot (a multiplication if nothing is summed) of the reshaped "
      "input and the kernel; likewise the gradients of such a convolution, "
      "whose output is shorter than the window dilation, or whose window is "
      "not longer than the base dilation. Floats round differently.",
      &ProposeBlocks};
  return rule;
}

}  // namespace hloenv
