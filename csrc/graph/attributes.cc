// SPDX-License-Identifier: Apache-2.0
#include "graph/attributes.h"

#include "graph/shapes.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/xla_data.pb.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Entries for each dimension of an array or a window.
constexpr int kDims = 8;
// Entries for each list of dimension numbers.
constexpr int kNumbers = 4;
constexpr int kSpatial = 3;

// First key of each group, in the order of AttributeNames().
enum Key : int32_t {
  kDimensions = 0,
  kSizes = kDimensions + kDims,
  kStrides = kSizes + kDims,
  kLow = kStrides + kDims,
  kHigh = kLow + kDims,
  kBaseDilations = kHigh + kDims,
  kWindowDilations = kBaseDilations + kDims,
  kLhsContracting = kWindowDilations + kDims,
  kRhsContracting = kLhsContracting + kNumbers,
  kLhsBatch = kRhsContracting + kNumbers,
  kRhsBatch = kLhsBatch + kNumbers,
  kBatchSize = kRhsBatch + kNumbers,
  kLhsSize,
  kRhsSize,
  kContractingSize,
  kInputBatch,
  kInputFeature,
  kKernelInputFeature,
  kKernelOutputFeature,
  kOutputBatch,
  kOutputFeature,
  kInputSpatial,
  kKernelSpatial = kInputSpatial + kSpatial,
  kOutputSpatial = kKernelSpatial + kSpatial,
  kFeatureGroups = kOutputSpatial + kSpatial,
  kBatchGroups,
  kSliceDimensions,
  kCollapsed = kSliceDimensions + kNumbers,
  kIndexMap = kCollapsed + kNumbers,
  kIndexVectorDimension = kIndexMap + kNumbers,
  kNumKeys,
};

// Adds the first `limit` of `values` under `key` and the keys after it.
template <typename Values>
void AddGroup(int32_t key, int limit, const Values& values,
              AttributeList* list) {
  int i = 0;
  for (int64_t value : values) {
    if (i == limit) break;
    list->Add(key + i++, value);
  }
}

template <typename Dims, typename Get>
void AddEach(int32_t key, const Dims& dims, Get get, AttributeList* list) {
  int i = 0;
  for (const auto& dim : dims) {
    if (i == kDims) break;
    list->Add(key + i++, get(dim));
  }
}

void AddWindow(const xla::Window& window, AttributeList* list) {
  using Dim = xla::WindowDimension;
  const auto& dims = window.dimensions();
  AddEach(kSizes, dims, [](const Dim& d) { return d.size(); }, list);
  AddEach(kStrides, dims, [](const Dim& d) { return d.stride(); }, list);
  AddEach(kLow, dims, [](const Dim& d) { return d.padding_low(); }, list);
  AddEach(kHigh, dims, [](const Dim& d) { return d.padding_high(); }, list);
  AddEach(
      kBaseDilations, dims, [](const Dim& d) { return d.base_dilation(); },
      list);
  AddEach(
      kWindowDilations, dims, [](const Dim& d) { return d.window_dilation(); },
      list);
}

// A dot as batch x lhs x contracting times batch x contracting x rhs.
void AddDot(const HloInstruction& dot, AttributeList* list) {
  const xla::DotDimensionNumbers& numbers = dot.dot_dimension_numbers();
  AddGroup(kLhsContracting, kNumbers, numbers.lhs_contracting_dimensions(),
           list);
  AddGroup(kRhsContracting, kNumbers, numbers.rhs_contracting_dimensions(),
           list);
  AddGroup(kLhsBatch, kNumbers, numbers.lhs_batch_dimensions(), list);
  AddGroup(kRhsBatch, kNumbers, numbers.rhs_batch_dimensions(), list);
  const xla::Shape& lhs = dot.operand(0)->shape();
  const xla::Shape& rhs = dot.operand(1)->shape();
  int64_t batch = 1;
  for (int64_t dim : numbers.lhs_batch_dimensions()) {
    batch = SaturatingProduct(batch, DimensionOf(lhs, dim));
  }
  int64_t contracting = 1;
  for (int64_t dim : numbers.lhs_contracting_dimensions()) {
    contracting = SaturatingProduct(contracting, DimensionOf(lhs, dim));
  }
  const int64_t shared = SaturatingProduct(batch, contracting);
  const auto rest = [shared](const xla::Shape& shape) -> int64_t {
    if (shared == 0 || !shape.IsArray()) return 0;
    return ElementCount(shape.dimensions()) / shared;
  };
  list->Add(kBatchSize, batch);
  list->Add(kLhsSize, rest(lhs));
  list->Add(kRhsSize, rest(rhs));
  list->Add(kContractingSize, contracting);
}

void AddConvolution(const HloInstruction& convolution, AttributeList* list) {
  AddWindow(convolution.window(), list);
  const xla::ConvolutionDimensionNumbers& numbers =
      convolution.convolution_dimension_numbers();
  list->Add(kInputBatch, numbers.input_batch_dimension());
  list->Add(kInputFeature, numbers.input_feature_dimension());
  list->Add(kKernelInputFeature, numbers.kernel_input_feature_dimension());
  list->Add(kKernelOutputFeature, numbers.kernel_output_feature_dimension());
  list->Add(kOutputBatch, numbers.output_batch_dimension());
  list->Add(kOutputFeature, numbers.output_feature_dimension());
  AddGroup(kInputSpatial, kSpatial, numbers.input_spatial_dimensions(), list);
  AddGroup(kKernelSpatial, kSpatial, numbers.kernel_spatial_dimensions(), list);
  AddGroup(kOutputSpatial, kSpatial, numbers.output_spatial_dimensions(), list);
  list->Add(kFeatureGroups, convolution.feature_group_count());
  list->Add(kBatchGroups, convolution.batch_group_count());
}

void AddPad(const HloInstruction& pad, AttributeList* list) {
  using Dim = xla::PaddingConfig::PaddingConfigDimension;
  const auto& dims = pad.padding_config().dimensions();
  AddEach(kLow, dims, [](const Dim& d) { return d.edge_padding_low(); }, list);
  AddEach(
      kHigh, dims, [](const Dim& d) { return d.edge_padding_high(); }, list);
  AddEach(
      kBaseDilations, dims,
      [](const Dim& d) { return d.interior_padding() + 1; }, list);
}

void AddGather(const HloInstruction& gather, AttributeList* list) {
  const xla::GatherDimensionNumbers& numbers =
      gather.gather_dimension_numbers();
  AddGroup(kSizes, kDims, gather.gather_slice_sizes(), list);
  AddGroup(kSliceDimensions, kNumbers, numbers.offset_dims(), list);
  AddGroup(kCollapsed, kNumbers, numbers.collapsed_slice_dims(), list);
  AddGroup(kIndexMap, kNumbers, numbers.start_index_map(), list);
  list->Add(kIndexVectorDimension, numbers.index_vector_dim());
}

void AddScatter(const HloInstruction& scatter, AttributeList* list) {
  const xla::ScatterDimensionNumbers& numbers =
      scatter.scatter_dimension_numbers();
  AddGroup(kSliceDimensions, kNumbers, numbers.update_window_dims(), list);
  AddGroup(kCollapsed, kNumbers, numbers.inserted_window_dims(), list);
  AddGroup(kIndexMap, kNumbers, numbers.scatter_dims_to_operand_dims(), list);
  list->Add(kIndexVectorDimension, numbers.index_vector_dim());
}

}  // namespace

const std::vector<std::string>& AttributeNames() {
  static const auto* const names = [] {
    auto* result = new std::vector<std::string>(kNumKeys);
    const auto group = [result](int begin, int count, absl::string_view name) {
      for (int i = 0; i < count; ++i) {
        (*result)[begin + i] = absl::StrCat(name, "_", i);
      }
    };
    group(kDimensions, kDims, "dimensions");
    group(kSizes, kDims, "sizes");
    group(kStrides, kDims, "strides");
    group(kLow, kDims, "low");
    group(kHigh, kDims, "high");
    group(kBaseDilations, kDims, "base_dilations");
    group(kWindowDilations, kDims, "window_dilations");
    group(kLhsContracting, kNumbers, "lhs_contracting");
    group(kRhsContracting, kNumbers, "rhs_contracting");
    group(kLhsBatch, kNumbers, "lhs_batch");
    group(kRhsBatch, kNumbers, "rhs_batch");
    (*result)[kBatchSize] = "dot_batch_size";
    (*result)[kLhsSize] = "dot_lhs_size";
    (*result)[kRhsSize] = "dot_rhs_size";
    (*result)[kContractingSize] = "dot_contracting_size";
    (*result)[kInputBatch] = "input_batch";
    (*result)[kInputFeature] = "input_feature";
    (*result)[kKernelInputFeature] = "kernel_input_feature";
    (*result)[kKernelOutputFeature] = "kernel_output_feature";
    (*result)[kOutputBatch] = "output_batch";
    (*result)[kOutputFeature] = "output_feature";
    group(kInputSpatial, kSpatial, "input_spatial");
    group(kKernelSpatial, kSpatial, "kernel_spatial");
    group(kOutputSpatial, kSpatial, "output_spatial");
    (*result)[kFeatureGroups] = "feature_group_count";
    (*result)[kBatchGroups] = "batch_group_count";
    group(kSliceDimensions, kNumbers, "slice_dimensions");
    group(kCollapsed, kNumbers, "collapsed_dimensions");
    group(kIndexMap, kNumbers, "index_map");
    (*result)[kIndexVectorDimension] = "index_vector_dimension";
    return result;
  }();
  return *names;
}

void AppendAttributes(const HloInstruction& instruction, AttributeList* list) {
  switch (instruction.opcode()) {
    case HloOpcode::kAllGather:
    case HloOpcode::kAllGatherStart:
    case HloOpcode::kBroadcast:
    case HloOpcode::kConcatenate:
    case HloOpcode::kIota:
    case HloOpcode::kReduce:
    case HloOpcode::kReduceScatter:
    case HloOpcode::kReverse:
    case HloOpcode::kSort:
    case HloOpcode::kTranspose:
      AddGroup(kDimensions, kDims, instruction.dimensions(), list);
      break;
    case HloOpcode::kAllToAll:
      // Its dimension is optional, and `dimensions` is fatal without one.
      if (auto split = xla::Cast<xla::HloAllToAllInstruction>(&instruction)
                           ->split_dimension()) {
        list->Add(kDimensions, *split);
      }
      break;
    case HloOpcode::kSlice:
      AddGroup(kStrides, kDims, instruction.slice_strides(), list);
      AddGroup(kLow, kDims, instruction.slice_starts(), list);
      AddGroup(kHigh, kDims, instruction.slice_limits(), list);
      break;
    case HloOpcode::kDynamicSlice:
      AddGroup(kSizes, kDims, instruction.dynamic_slice_sizes(), list);
      break;
    case HloOpcode::kFft:
      AddGroup(kSizes, kDims, instruction.fft_length(), list);
      break;
    case HloOpcode::kPad:
      AddPad(instruction, list);
      break;
    case HloOpcode::kDot:
      AddDot(instruction, list);
      break;
    case HloOpcode::kConvolution:
      AddConvolution(instruction, list);
      break;
    case HloOpcode::kReduceWindow:
    case HloOpcode::kSelectAndScatter:
      AddWindow(instruction.window(), list);
      break;
    case HloOpcode::kGather:
      AddGather(instruction, list);
      break;
    case HloOpcode::kScatter:
      AddScatter(instruction, list);
      break;
    default:
      break;
  }
}

}  // namespace hloenv
