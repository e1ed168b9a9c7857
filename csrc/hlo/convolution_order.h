// SPDX-License-Identifier: Apache-2.0
// The order of a convolution's dimensions for which the CPU backend's libraries
// have code: images with the features last, in row-major order.
#pragma once

#include <cstdint>
#include <vector>

#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/xla_data.pb.h"

namespace hloenv {

// The dimensions of the operands and of the result in that order: the batch,
// the spatial ones, the features; of the kernel, the spatial ones, the features
// of the input, those of the result.
struct ConvolutionOrder {
  std::vector<int64_t> input;
  std::vector<int64_t> kernel;
  std::vector<int64_t> output;

  static ConvolutionOrder Of(const xla::ConvolutionDimensionNumbers& dims);
};

// The numbers of dimensions that are in that order.
xla::ConvolutionDimensionNumbers FeaturesLast(int num_spatial);

xla::Shape InOrder(const xla::Shape& shape, const std::vector<int64_t>& order);
// Adds a transpose, if one is needed.
xla::HloInstruction* InOrder(xla::HloInstruction* array,
                             const std::vector<int64_t>& order);

}  // namespace hloenv
