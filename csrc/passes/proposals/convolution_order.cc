// SPDX-License-Identifier: Apache-2.0
// Proposes the order of dimensions for which XLA's CPU backend has a library
// call, for convolutions in loops and branches, as the gradients of the layers
// of a network that a scan trains:
//
//   r = f32[3,3,16,32] convolution(x: f32[8,28,28,16], g: f32[8,28,28,32]),
//       dim_labels=f01b_i01o->01bf
//
// becomes a convolution of dim_labels=b01f_01io->b01f and transpositions. XLA
// does the same (convolution-canonicalization), but for the entry computation
// alone.
#include "hlo/convolution_order.h"

#include "absl/algorithm/container.h"
#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "xla/permutation_util.h"
#include "xla/primitive_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

HloInstruction* BuildInOrder(const HloInstruction& convolution,
                             absl::Span<HloInstruction* const> x) {
  const auto& dims = convolution.convolution_dimension_numbers();
  const ConvolutionOrder orders = ConvolutionOrder::Of(dims);
  HloInstruction* result =
      x[0]->parent()->AddInstruction(HloInstruction::CreateConvolve(
          InOrder(convolution.shape(), orders.output),
          InOrder(x[0], orders.input), InOrder(x[1], orders.kernel),
          convolution.feature_group_count(), convolution.batch_group_count(),
          convolution.window(),
          FeaturesLast(dims.input_spatial_dimensions_size()),
          convolution.precision_config()));
  return InOrder(result, xla::InversePermutation(orders.output));
}

// Whether XLA calls a library for it in that order: not if a window is
// reversed. With padding of less than nothing, some of its results are wrong.
bool HasLibrary(const Convolution& convolution) {
  return !convolution.spatial().empty() &&
         xla::primitive_util::IsFloatingPointType(
             convolution.instruction().shape().element_type()) &&
         absl::c_none_of(convolution.spatial(), [](const SpatialDimension& d) {
           return d.reversed || d.pad_low < 0 || d.pad_high < 0;
         });
}

void ProposeInOrder(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  if (root.opcode() != xla::HloOpcode::kConvolution ||
      root.parent()->IsEntryComputation() || root.batch_group_count() > 1) {
    return;
  }
  const auto& dims = root.convolution_dimension_numbers();
  const ConvolutionOrder orders = ConvolutionOrder::Of(dims);
  if (xla::IsIdentityPermutation(orders.input) &&
      xla::IsIdentityPermutation(orders.kernel) &&
      xla::IsIdentityPermutation(orders.output)) {
    return;
  }
  const std::optional<Convolution> found =
      Convolution::OfAnyPadding(root, context, Convolution::Form::kApart);
  if (!found.has_value() || !HasLibrary(*found)) return;
  Propose(
      ChannelsLastRule(), root, {root.operand(0), root.operand(1)},
      [&root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> { return BuildInOrder(root, x); },
      proposals);
}

}  // namespace

const Rule& ChannelsLastRule() {
  static constexpr Rule rule = {
      "channels_last",
      "Gives a convolution in a loop or a branch the order of dimensions for "
      "which XLA's CPU backend calls a library, images with the features last, "
      "by transpositions: XLA does so in the entry computation alone. Not of "
      "groups of the batch, reversed windows or padding that removes elements. "
      "Floats round differently.",
      &ProposeInOrder};
  return rule;
}

}  // namespace hloenv
