// SPDX-License-Identifier: Apache-2.0
#include "backend/onednn_calls.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/convolution_order.h"
#include "support/processor.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/layout_util.h"
#include "xla/permutation_util.h"
#include "xla/shape_util.h"
#include "xla/xla_data.pb.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;

// oneDNN has more; XLA's own pass has this limit for convolutions.
constexpr int kMaxDimensions = 5;

// Whether oneDNN multiplies bf16: it may refuse them where the processor does
// not, and XLA's call of it then ends the process.
bool OneDnnMultipliesBf16() {
  // These variables limit the instructions that oneDNN uses, maybe to some
  // without products of bf16.
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  return HasProductsOfBf16();
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

using Dims = google::protobuf::RepeatedField<int64_t>;

int64_t SizeOf(const Shape& shape, absl::Span<const int64_t> dims) {
  int64_t size = 1;
  for (const int64_t d : dims) size *= shape.dimensions(d);
  return size;
}

// An operand of a dot as matrices; `is_first` is that with the rows.
OneDnnProduct::Operand MatricesOf(const HloInstruction& operand,
                                  const Dims& batch, const Dims& contracting,
                                  bool is_first) {
  OneDnnProduct::Operand result{&operand};
  std::vector<int64_t> order(operand.shape().dimensions().size());
  absl::c_iota(order, 0);
  if (operand.opcode() == HloOpcode::kTranspose) {
    result.array = operand.operand(0);
    order.assign(operand.dimensions().begin(), operand.dimensions().end());
  }
  std::vector<int64_t> outer, terms, own;
  for (const int64_t d : batch) outer.push_back(order[d]);
  for (const int64_t d : contracting) terms.push_back(order[d]);
  for (size_t d = 0; d < order.size(); ++d) {
    if (!absl::c_linear_search(batch, d) &&
        !absl::c_linear_search(contracting, d)) {
      own.push_back(order[d]);
    }
  }
  const Shape& shape = result.array->shape();
  result.batch = SizeOf(shape, outer);
  result.own = SizeOf(shape, own);
  result.terms = SizeOf(shape, terms);
  const auto joined = [&](bool terms_last) {
    std::vector<int64_t> all = outer;
    const std::vector<int64_t>& middle = terms_last ? own : terms;
    const std::vector<int64_t>& last = terms_last ? terms : own;
    all.insert(all.end(), middle.begin(), middle.end());
    all.insert(all.end(), last.begin(), last.end());
    return all;
  };
  // As it is in memory, if that is one of the two orders.
  result.order = joined(!is_first);
  result.is_transposed = absl::c_is_sorted(result.order);
  if (!result.is_transposed) result.order = joined(is_first);
  return result;
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

// Whether these are the batch, the features and the spatial dimensions.
bool AreFeaturesFirst(absl::Span<const int64_t> order) {
  std::vector<int64_t> first(order.begin(), order.end());
  std::rotate(first.begin() + 1, first.end() - 1, first.end());
  return xla::IsIdentityPermutation(first);
}

std::string ConvolutionConfig(const HloInstruction& convolution,
                              const xla::ConvolutionDimensionNumbers& dims) {
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

// The operand of a call.
HloInstruction* AsMatrices(const OneDnnProduct::Operand& operand,
                           HloInstruction* x, bool is_first) {
  xla::HloComputation* computation = x->parent();
  const Shape& shape = x->shape();
  if (!absl::c_is_sorted(operand.order)) {
    std::vector<int64_t> sizes;
    for (const int64_t d : operand.order) sizes.push_back(shape.dimensions(d));
    x = computation->AddInstruction(HloInstruction::CreateTranspose(
        xla::ShapeUtil::MakeShape(shape.element_type(), sizes), x,
        operand.order));
  }
  const bool terms_last = is_first != operand.is_transposed;
  const int64_t rows = terms_last ? operand.own : operand.terms;
  const int64_t columns = terms_last ? operand.terms : operand.own;
  return computation->AddInstruction(HloInstruction::CreateReshape(
      xla::ShapeUtil::MakeShape(shape.element_type(),
                                {operand.batch, rows, columns}),
      x));
}

}  // namespace

bool MayConvolveByOneDnn(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kConvolution &&
         IsMeant(instruction.shape(), xla::F32) &&
         IsMeant(instruction.operand(0)->shape(), xla::F32) &&
         IsMeant(instruction.operand(1)->shape(), xla::F32) &&
         IsConvolution(instruction);
}

HloInstruction* OneDnnConvolution(const HloInstruction& convolution,
                                  HloInstruction* image,
                                  HloInstruction* kernel) {
  const auto& given = convolution.convolution_dimension_numbers();
  xla::ConvolutionDimensionNumbers dims = given;
  ConvolutionOrder orders = ConvolutionOrder::Of(given);
  // In other orders, or two of them, oneDNN's code takes a thousand times as
  // long. It brings kernels into its own.
  if (AreFeaturesFirst(orders.input) && AreFeaturesFirst(orders.output)) {
    absl::c_iota(orders.input, 0);
    absl::c_iota(orders.output, 0);
  } else {
    dims = FeaturesLast(given.input_spatial_dimensions_size());
    dims.set_kernel_input_feature_dimension(
        given.kernel_input_feature_dimension());
    dims.set_kernel_output_feature_dimension(
        given.kernel_output_feature_dimension());
    *dims.mutable_kernel_spatial_dimensions() =
        given.kernel_spatial_dimensions();
  }
  image = InOrder(image, orders.input);
  std::unique_ptr<HloInstruction> call = HloInstruction::CreateCustomCall(
      RowMajor(InOrder(convolution.shape(), orders.output)), {image, kernel},
      "__onednn$convolution",
      {RowMajor(image->shape()), RowMajor(kernel->shape())});
  call->set_raw_backend_config_string(ConvolutionConfig(convolution, dims));
  call->set_metadata(convolution.metadata());
  return InOrder(image->parent()->AddInstruction(std::move(call)),
                 xla::InversePermutation(orders.output));
}

std::optional<OneDnnProduct> OneDnnProduct::Of(const HloInstruction& dot) {
  if (dot.opcode() != HloOpcode::kDot || dot.operand_count() != 2 ||
      dot.precision_config().algorithm() != xla::PrecisionConfig::ALG_UNSET) {
    return std::nullopt;
  }
  const xla::PrimitiveType type = dot.shape().element_type();
  if (type != xla::F32 && !(type == xla::BF16 && OneDnnMultipliesBf16())) {
    return std::nullopt;
  }
  const xla::DotDimensionNumbers& dims = dot.dot_dimension_numbers();
  if (dims.lhs_contracting_dimensions().empty()) return std::nullopt;
  OneDnnProduct product{
      MatricesOf(*dot.operand(0), dims.lhs_batch_dimensions(),
                 dims.lhs_contracting_dimensions(), /*is_first=*/true),
      MatricesOf(*dot.operand(1), dims.rhs_batch_dimensions(),
                 dims.rhs_contracting_dimensions(), /*is_first=*/false)};
  if (!IsMeant(dot.shape(), type) ||
      !IsMeant(product.lhs.array->shape(), type) ||
      !IsMeant(product.rhs.array->shape(), type)) {
    return std::nullopt;
  }
  return product;
}

HloInstruction* OneDnnProduct::Build(const HloInstruction& dot,
                                     HloInstruction* x,
                                     HloInstruction* y) const {
  xla::HloComputation* computation = x->parent();
  x = AsMatrices(lhs, x, /*is_first=*/true);
  y = AsMatrices(rhs, y, /*is_first=*/false);
  std::unique_ptr<HloInstruction> call = HloInstruction::CreateCustomCall(
      xla::ShapeUtil::MakeShape(dot.shape().element_type(),
                                {lhs.batch, lhs.own, rhs.own}),
      {x, y}, "__onednn$matmul", {x->shape(), y->shape()});
  const auto text = [](bool is_so) { return is_so ? "true" : "false"; };
  call->set_raw_backend_config_string(absl::StrCat(
      "{\"onednn_matmul_config\":{\"transpose_a\":", text(lhs.is_transposed),
      ",\"transpose_b\":", text(rhs.is_transposed), "}}"));
  call->set_metadata(dot.metadata());
  return computation->AddInstruction(HloInstruction::CreateReshape(
      RowMajor(dot.shape()), computation->AddInstruction(std::move(call))));
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
