// SPDX-License-Identifier: Apache-2.0
#include "hlo/convolution_order.h"

#include "xla/permutation_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;

ConvolutionOrder ConvolutionOrder::Of(
    const xla::ConvolutionDimensionNumbers& dims) {
  ConvolutionOrder orders;
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

xla::ConvolutionDimensionNumbers FeaturesLast(int num_spatial) {
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

xla::Shape InOrder(const xla::Shape& shape, const std::vector<int64_t>& order) {
  return xla::ShapeUtil::MakeShape(shape.element_type(),
                                   xla::Permute(shape.dimensions(), order));
}

HloInstruction* InOrder(HloInstruction* array,
                        const std::vector<int64_t>& order) {
  if (xla::IsIdentityPermutation(order)) return array;
  return array->parent()->AddInstruction(HloInstruction::CreateTranspose(
      InOrder(array->shape(), order), array, order));
}

}  // namespace hloenv
