// SPDX-License-Identifier: Apache-2.0
// Proposes one dot for long filters of signals, and for their gradients with
// respect to the filters.
//
// A block of `size` results reads one part of the signal, next to which those
// of the following blocks are: the parts are the rows of a matrix. Each result
// is the product of its row with the filter at one of `size` places, which are
// the columns of a Toeplitz matrix, with zeros around the filter. For the
// gradient, whose long operand is the result's own gradient, the same parts are
// multiplied with blocks of that, and the diagonals of the product are summed.
#include <algorithm>

#include "passes/proposals/branches.h"
#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "support/status.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"
#include "xla/util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using Signals = absl::Span<HloInstruction* const>;

// Of the shorter one of window and result, and of the other one.
constexpr int64_t kMinShort = 8;
constexpr int64_t kMinLong = 64;
// Results of a block, by the shorter one: up to 64, up to 512, above.
constexpr int64_t kShort = 64, kLong = 512;
constexpr int64_t kSmallBlock = 32, kBlock = 64, kLargeBlock = 128;
// Of each array that is made.
constexpr double kMaxElements = 1 << 25;

struct Filter {
  Convolution convolution;

  const SpatialDimension& time() const { return convolution.spatial()[0]; }
  bool is_gradient() const { return time().taps > time().output; }
  int64_t shorter() const { return std::min(time().taps, time().output); }
  int64_t longer() const { return std::max(time().taps, time().output); }
  // Results of a block, or taps of a gradient.
  int64_t size() const {
    if (shorter() <= kShort) return kSmallBlock;
    return shorter() <= kLong ? kBlock : kLargeBlock;
  }
  int64_t blocks() const { return xla::CeilOfRatio(longer(), size()); }
  // Elements of the signal from one block to the next.
  int64_t step() const { return size() * time().stride; }
  // Steps that a part is long.
  int64_t steps() const {
    return xla::CeilOfRatio((size() - 1) * time().stride + shorter(), step());
  }
  int64_t width() const { return steps() * step(); }
};

// The parts of the signal: rows "r" of "c".
Labelled Parts(const Filter& filter, HloInstruction* signal) {
  const Convolution& convolution = filter.convolution;
  const Labelled padded =
      convolution.PaddedInput(convolution.Input(signal, /*groups_first=*/true));
  const int64_t rows = filter.blocks() + filter.steps() - 1;
  const int64_t missing = rows * filter.step() - padded.SizeOf('0');
  const Labelled input = Converted(Padded(padded, {{'0', 0, missing}}),
                                   convolution.accumulation().type);
  const Labelled split = SplitLabel(Ordered(input, input.Those("gbi0")), '0',
                                    "rc", {rows, filter.step()});
  std::vector<Labelled> pieces;
  for (int64_t i = 0; i < filter.steps(); ++i) {
    pieces.push_back(Sliced(split, {{'r', i, filter.blocks()}}));
  }
  return Concatenated(pieces, 'c');
}

// The second operand, so that tap k is element k.
Labelled Taps(const Filter& filter, HloInstruction* kernel) {
  const Convolution& convolution = filter.convolution;
  const Labelled taps = Converted(convolution.Kernel(kernel, true),
                                  convolution.accumulation().type);
  return Ordered(Reversed(taps, convolution.ReversedTaps()),
                 taps.Those("goix"));
}

HloInstruction* BuildFilter(const Filter& filter, Signals x) {
  const Convolution& convolution = filter.convolution;
  const SpatialDimension& time = filter.time();
  const Labelled parts = Parts(filter, x[0]);
  // In rows that are longer by a stride, the filter is one stride later in each
  // of the matrix.
  const int64_t width = filter.width();
  const Labelled taps =
      Padded(Taps(filter, x[1]), {{'x', 0, width + time.stride - time.taps}});
  xla::Shape shape = taps.value->shape();
  std::vector<int64_t> sizes(shape.dimensions().begin(),
                             shape.dimensions().end());
  std::vector<int64_t> kept;
  for (size_t d = 0; d < sizes.size(); ++d) {
    kept.push_back(static_cast<int64_t>(d == sizes.size() - 1 ? d + 1 : d));
  }
  sizes.insert(sizes.end() - 1, filter.size());
  std::string labels = taps.labels;
  labels.insert(labels.size() - 1, "p");
  const Labelled repeated = {
      taps.value->AddInstruction(HloInstruction::CreateBroadcast(
          xla::ShapeUtil::MakeShape(shape.element_type(), sizes), taps.value,
          kept)),
      labels};
  const Labelled flat = Sliced(MergeLabels(repeated, "px", 'y'),
                               {{'y', 0, filter.size() * width}});
  const Labelled matrix = SplitLabel(flat, 'y', "pc", {filter.size(), width});
  const Labelled products =
      DotOf(parts, matrix, parts.Those("gbr") + matrix.Those("op"),
            convolution.accumulation());
  const Labelled results =
      MergeLabels(Ordered(products, products.Those("gborp")), "rp", '0');
  return convolution.Finish(Sliced(results, {{'0', 0, time.output}}));
}

absl::StatusOr<HloInstruction*> BuildGradient(const Filter& filter, Signals x) {
  const Convolution& convolution = filter.convolution;
  const SpatialDimension& time = filter.time();
  const Labelled parts = Parts(filter, x[0]);
  const int64_t missing = filter.blocks() * filter.size() - time.taps;
  const Labelled blocks =
      SplitLabel(Padded(Taps(filter, x[1]), {{'x', 0, missing}}), 'x', "rj",
                 {filter.blocks(), filter.size()});
  const Accumulation& sums = convolution.accumulation();
  const Labelled products =
      DotOf(blocks, parts, blocks.Those("goj") + parts.Those("bc"),
            WithOperandsSwapped(sums));
  // Element k of row j is that of column j + k.
  const int64_t width = filter.width();
  const Labelled flat =
      Padded(MergeLabels(Ordered(products, products.Those("gobjc")), "jc", 'y'),
             {{'y', 0, filter.size()}});
  const Labelled rows =
      Sliced(SplitLabel(flat, 'y', "j0", {filter.size(), width + 1}),
             {{'0', 0, time.output}});
  HloInstruction* zero = rows.value->AddInstruction(
      HloInstruction::CreateConstant(xla::LiteralUtil::Zero(sums.type)));
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * sum,
      xla::MakeReduceHlo(rows.value, zero, {rows.At('j')}, HloOpcode::kAdd));
  return convolution.Finish({sum, rows.Those("gob0")});
}

// The form where all elements are finite, which others than those that a result
// reads are multiplied with zeros there.
absl::StatusOr<HloInstruction*> BuildToeplitz(const Filter& filter, Signals x) {
  HloInstruction* is_finite = nullptr;
  for (HloInstruction* each : x) {
    HloInstruction* truths = each->AddInstruction(HloInstruction::CreateUnary(
        xla::ShapeUtil::ChangeElementType(each->shape(), xla::PRED),
        HloOpcode::kIsFinite, each));
    HLOENV_ASSIGN_OR_RETURN(HloInstruction * all, AllOf(truths));
    is_finite = is_finite == nullptr
                    ? all
                    : all->AddInstruction(HloInstruction::CreateBinary(
                          all->shape(), HloOpcode::kAnd, is_finite, all));
  }
  const HloInstruction& original = filter.convolution.instruction();
  return IfElse(
      is_finite, x, original.shape(),
      [&](Signals arrays) -> absl::StatusOr<HloInstruction*> {
        if (filter.is_gradient()) return BuildGradient(filter, arrays);
        return BuildFilter(filter, arrays);
      },
      [&](Signals arrays) -> absl::StatusOr<HloInstruction*> {
        HloInstruction* signal = BarrierOf(arrays[0]);
        return signal->AddInstruction(original.CloneWithNewOperands(
            original.shape(), {signal, arrays[1]}));
      });
}

bool IsSmall(const Filter& filter) {
  const Convolution& convolution = filter.convolution;
  // In doubles, as the product of all may be larger than an integer.
  const auto of = [](std::initializer_list<int64_t> sizes) {
    double product = 1;
    for (int64_t size : sizes) product *= static_cast<double>(size);
    return product;
  };
  const double parts =
      of({convolution.groups(), convolution.batch(), convolution.inputs(),
          filter.blocks(), filter.width()});
  const double matrix =
      filter.is_gradient()
          ? of({convolution.groups(), convolution.batch(),
                convolution.outputs(), filter.size(), filter.width() + 1})
          : of({convolution.groups(), convolution.inputs(),
                convolution.outputs(), filter.size(),
                filter.width() + filter.time().stride});
  return std::max(parts, matrix) <= kMaxElements;
}

bool IsSlowBranch(const HloInstruction& root) {
  return root.operand(0)->opcode() == HloOpcode::kOptimizationBarrier;
}

void ProposeToeplitz(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  const std::optional<Convolution> found = Convolution::Of(root, context);
  if (!found.has_value() || found->spatial().size() != 1 ||
      IsSlowBranch(root) ||
      !xla::primitive_util::IsFloatingPointType(
          root.operand(0)->shape().element_type())) {
    return;
  }
  const Filter filter{*found};
  const SpatialDimension& time = filter.time();
  if (time.base_dilation != 1 || time.window_dilation != 1 ||
      (filter.is_gradient() && time.stride != 1) ||
      filter.shorter() < kMinShort || filter.longer() < kMinLong ||
      !IsSmall(filter)) {
    return;
  }
  Propose(
      ToeplitzRule(), root, {root.operand(0), root.operand(1)},
      [filter](Signals x) { return BuildToeplitz(filter, x); }, proposals);
}

}  // namespace

const Rule& ToeplitzRule() {
  static constexpr Rule rule = {
      "toeplitz",
      "Rewrites a filter of signals, a convolution in one dimension, as one "
      "dot of parts of the signal with a Toeplitz matrix of the filter; and a "
      "gradient with respect to a filter as one dot, whose diagonals are added "
      "up. Where an element is not finite, which is tested when it runs, it "
      "stays a convolution. At least 8 elements of the shorter one of window "
      "and result, and 64 of the other; up to 2^25 elements. Floats round "
      "differently.",
      &ProposeToeplitz};
  return rule;
}

}  // namespace hloenv
