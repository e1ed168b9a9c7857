// SPDX-License-Identifier: Apache-2.0
#include "backend/onednn_calls.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"
#include "xla/xla_data.pb.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;

// oneDNN has more; XLA's own pass has this limit for convolutions.
constexpr int kMaxDimensions = 5;

// Whether the processor multiplies bf16; oneDNN may refuse them without, and
// XLA's call of it then ends the process.
bool HasProductsOfBf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") > 0;
#else
  return false;
#endif
}

bool IsMeant(const Shape& shape, xla::PrimitiveType type) {
  return shape.IsArray() && shape.is_static() && shape.element_type() == type &&
         shape.dimensions().size() <= kMaxDimensions &&
         !xla::ShapeUtil::IsZeroElementArray(shape) &&
         (!shape.has_layout() ||
          xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout()));
}

bool IsConvolution(const HloInstruction& instruction) {
  const auto& window = instruction.window().dimensions();
  return instruction.batch_group_count() == 1 && !window.empty() &&
         std::all_of(window.begin(), window.end(), [](const auto& each) {
           return each.base_dilation() == 1 && each.padding_low() >= 0 &&
                  each.padding_high() >= 0;
         });
}

// Of the batch dimensions first, and the two of a matrix.
bool IsProduct(const HloInstruction& dot) {
  const xla::DotDimensionNumbers& dims = dot.dot_dimension_numbers();
  const int num_batch = dims.lhs_batch_dimensions_size();
  if (dims.lhs_contracting_dimensions_size() != 1 ||
      dims.lhs_contracting_dimensions(0) < num_batch ||
      dims.rhs_contracting_dimensions(0) < num_batch ||
      dot.operand_count() != 2 ||
      dot.precision_config().algorithm() != xla::PrecisionConfig::ALG_UNSET) {
    return false;
  }
  for (int i = 0; i < num_batch; ++i) {
    if (dims.lhs_batch_dimensions(i) != i ||
        dims.rhs_batch_dimensions(i) != i) {
      return false;
    }
  }
  const auto rank = static_cast<size_t>(num_batch) + 2;
  return dot.operand(0)->shape().dimensions().size() == rank &&
         dot.operand(1)->shape().dimensions().size() == rank;
}

// Whether it exchanges the two dimensions of matrices.
bool TransposesMatrices(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kTranspose) return false;
  const absl::Span<const int64_t> order = instruction.dimensions();
  const auto rank = static_cast<int64_t>(order.size());
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t wanted = i < rank - 2 ? i : 2 * rank - 3 - i;
    if (order[i] != wanted) return false;
  }
  return rank > 1;
}

Shape RowMajor(Shape shape) {
  xla::LayoutUtil::SetToDefaultLayout(&shape);
  return shape;
}

template <typename Numbers>
std::string List(const Numbers& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ","), "]");
}

template <typename Get>
std::string OfWindow(const HloInstruction& convolution, Get get) {
  std::vector<int64_t> found;
  for (const auto& each : convolution.window().dimensions()) {
    found.push_back(get(each));
  }
  return List(found);
}

std::string Data(int64_t batch, int64_t feature, const std::string& spatial) {
  return absl::StrCat("{\"data\":{\"batch_dim\":", batch,
                      ",\"feature_dim\":", feature,
                      ",\"spatial_dims\":", spatial, "}}");
}

std::string ConvolutionConfig(const HloInstruction& convolution) {
  const auto& dims = convolution.convolution_dimension_numbers();
  using Dimension = xla::WindowDimension;
  return absl::StrCat(
      "{\"onednn_conv_config\":{\"dims\":",
      convolution.shape().dimensions().size(), ",\"input\":",
      Data(dims.input_batch_dimension(), dims.input_feature_dimension(),
           List(dims.input_spatial_dimensions())),
      ",\"kernel\":{\"filter\":{\"input_feature_dim\":",
      dims.kernel_input_feature_dimension(),
      ",\"output_feature_dim\":", dims.kernel_output_feature_dimension(),
      ",\"spatial_dims\":", List(dims.kernel_spatial_dimensions()),
      "}},\"output\":",
      Data(dims.output_batch_dimension(), dims.output_feature_dimension(),
           List(dims.output_spatial_dimensions())),
      ",\"window\":{\"pad_left\":",
      OfWindow(convolution,
               [](const Dimension& each) { return each.padding_low(); }),
      ",\"pad_right\":",
      OfWindow(convolution,
               [](const Dimension& each) { return each.padding_high(); }),
      ",\"strides\":",
      OfWindow(convolution,
               [](const Dimension& each) { return each.stride(); }),
      ",\"window_dilations\":",
      OfWindow(convolution,
               [](const Dimension& each) { return each.window_dilation(); }),
      "},\"feature_groups\":", convolution.feature_group_count(), "}}");
}

std::string DotConfig(const HloInstruction& dot) {
  const xla::DotDimensionNumbers& dims = dot.dot_dimension_numbers();
  const int num_batch = dims.lhs_batch_dimensions_size();
  const auto text = [&](bool is_transposed, int operand) {
    return is_transposed != TransposesMatrices(*dot.operand(operand)) ? "true"
                                                                      : "false";
  };
  return absl::StrCat("{\"onednn_matmul_config\":{\"transpose_a\":",
                      text(dims.lhs_contracting_dimensions(0) == num_batch, 0),
                      ",\"transpose_b\":",
                      text(dims.rhs_contracting_dimensions(0) != num_batch, 1),
                      "}}");
}

}  // namespace

bool MayCallOneDnn(const HloInstruction& instruction) {
  const HloOpcode opcode = instruction.opcode();
  if (opcode != HloOpcode::kConvolution && opcode != HloOpcode::kDot) {
    return false;
  }
  const bool is_dot = opcode == HloOpcode::kDot;
  const bool is_bf16 = is_dot && instruction.shape().IsArray() &&
                       instruction.shape().element_type() == xla::BF16 &&
                       HasProductsOfBf16();
  const xla::PrimitiveType type = is_bf16 ? xla::BF16 : xla::F32;
  const auto operands = OneDnnOperands(instruction);
  return IsMeant(instruction.shape(), type) &&
         IsMeant(operands[0]->shape(), type) &&
         IsMeant(operands[1]->shape(), type) &&
         (is_dot ? IsProduct(instruction) : IsConvolution(instruction));
}

std::array<const HloInstruction*, 2> OneDnnOperands(
    const HloInstruction& instruction) {
  std::array<const HloInstruction*, 2> operands = {instruction.operand(0),
                                                   instruction.operand(1)};
  if (instruction.opcode() != HloOpcode::kDot) return operands;
  for (const HloInstruction*& operand : operands) {
    if (TransposesMatrices(*operand)) operand = operand->operand(0);
  }
  return operands;
}

std::unique_ptr<HloInstruction> OneDnnCall(
    const HloInstruction& instruction,
    absl::Span<HloInstruction* const> operands) {
  std::vector<Shape> shapes;
  for (const HloInstruction* operand : operands) {
    shapes.push_back(RowMajor(operand->shape()));
  }
  const bool is_dot = instruction.opcode() == HloOpcode::kDot;
  std::unique_ptr<HloInstruction> call = HloInstruction::CreateCustomCall(
      RowMajor(instruction.shape()), operands,
      is_dot ? "__onednn$matmul" : "__onednn$convolution", shapes);
  call->set_raw_backend_config_string(is_dot ? DotConfig(instruction)
                                             : ConvolutionConfig(instruction));
  call->set_metadata(instruction.metadata());
  return call;
}

HloInstruction* ReversedKernel(const HloInstruction& convolution,
                               HloInstruction* kernel) {
  const auto& dims = convolution.convolution_dimension_numbers();
  std::vector<int64_t> reversed;
  for (int i = 0; i < convolution.window().dimensions_size(); ++i) {
    if (convolution.window().dimensions(i).window_reversal()) {
      reversed.push_back(dims.kernel_spatial_dimensions(i));
    }
  }
  if (reversed.empty()) return kernel;
  return kernel->parent()->AddInstruction(
      HloInstruction::CreateReverse(kernel->shape(), kernel, reversed));
}

}  // namespace hloenv
