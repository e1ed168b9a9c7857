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
#include "absl/algorithm/container.h"
#include "passes/proposals/convolution.h"
#include "passes/proposals/convolution_rules.h"
#include "xla/permutation_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using Order = std::vector<int64_t>;

// The dimensions of the operands and of the result in that order.
struct Orders {
  Order input;
  Order kernel;
  Order output;
};

Orders OrdersOf(const xla::ConvolutionDimensionNumbers& dims) {
  Orders orders;
  orders.input.push_back(dims.input_batch_dimension());
  orders.output.push_back(dims.output_batch_dimension());
  for (int d = 0; d < dims.input_spatial_dimensions_size(); ++d) {
    orders.input.push_back(dims.input_spatial_dimensions(d));
    orders.kernel.push_back(dims.kernel_spatial_dimensions(d));
    orders.output.push_back(dims.output_spatial_dimensions(d));
  }
  orders.input.push_back(dims.input_feature_dimension());
  orders.kernel.push_back(dims.kernel_input_feature_dimension());
  orders.kernel.push_back(dims.kernel_output_feature_dimension());
  orders.output.push_back(dims.output_feature_dimension());
  return orders;
}

// What they are where nothing has to be moved.
xla::ConvolutionDimensionNumbers NumbersInOrder(int num_spatial) {
  xla::ConvolutionDimensionNumbers dims;
  dims.set_input_batch_dimension(0);
  dims.set_output_batch_dimension(0);
  for (int d = 0; d < num_spatial; ++d) {
    dims.add_input_spatial_dimensions(d + 1);
    dims.add_kernel_spatial_dimensions(d);
    dims.add_output_spatial_dimensions(d + 1);
  }
  dims.set_input_feature_dimension(num_spatial + 1);
  dims.set_output_feature_dimension(num_spatial + 1);
  dims.set_kernel_input_feature_dimension(num_spatial);
  dims.set_kernel_output_feature_dimension(num_spatial + 1);
  return dims;
}

xla::Shape InOrder(const xla::Shape& shape, const Order& order) {
  return xla::ShapeUtil::MakeShape(shape.element_type(),
                                   xla::Permute(shape.dimensions(), order));
}

HloInstruction* InOrder(HloInstruction* array, const Order& order) {
  if (xla::IsIdentityPermutation(order)) return array;
  return array->parent()->AddInstruction(HloInstruction::CreateTranspose(
      InOrder(array->shape(), order), array, order));
}

HloInstruction* BuildInOrder(const HloInstruction& convolution,
                             absl::Span<HloInstruction* const> x) {
  const auto& dims = convolution.convolution_dimension_numbers();
  const Orders orders = OrdersOf(dims);
  HloInstruction* result =
      x[0]->parent()->AddInstruction(HloInstruction::CreateConvolve(
          InOrder(convolution.shape(), orders.output),
          InOrder(x[0], orders.input), InOrder(x[1], orders.kernel),
          convolution.feature_group_count(), convolution.batch_group_count(),
          convolution.window(),
          NumbersInOrder(dims.input_spatial_dimensions_size()),
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
  const Orders orders = OrdersOf(dims);
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
