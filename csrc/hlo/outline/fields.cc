// SPDX-License-Identifier: Apache-2.0
#include "hlo/outline/fields.h"

namespace hloenv {

void SetSlices(const xla::HloInstructionProto& proto,
               OutlineInstruction* self) {
  Ints starts;
  Ints limits;
  Ints strides;
  for (const auto& each : proto.slice_dimensions()) {
    starts.push_back(each.start());
    limits.push_back(each.limit());
    strides.push_back(each.stride());
  }
  self->Set(Field::kStarts, std::move(starts));
  self->Set(Field::kLimits, std::move(limits));
  self->Set(Field::kStrides, std::move(strides));
}

void SetPadding(const xla::PaddingConfig& proto, OutlineInstruction* self) {
  Ints low;
  Ints high;
  Ints interior;
  for (const auto& each : proto.dimensions()) {
    low.push_back(each.edge_padding_low());
    high.push_back(each.edge_padding_high());
    interior.push_back(each.interior_padding());
  }
  self->Set(Field::kPadLow, std::move(low));
  self->Set(Field::kPadHigh, std::move(high));
  self->Set(Field::kPadInterior, std::move(interior));
}

void SetDot(const xla::DotDimensionNumbers& proto, OutlineInstruction* self) {
  self->Set(Field::kLhsContracting, ToInts(proto.lhs_contracting_dimensions()));
  self->Set(Field::kRhsContracting, ToInts(proto.rhs_contracting_dimensions()));
  self->Set(Field::kLhsBatch, ToInts(proto.lhs_batch_dimensions()));
  self->Set(Field::kRhsBatch, ToInts(proto.rhs_batch_dimensions()));
}

void SetWindow(const xla::Window& proto, OutlineInstruction* self) {
  Ints parts[6];
  for (const xla::WindowDimension& each : proto.dimensions()) {
    const int64_t values[] = {each.size(),          each.stride(),
                              each.padding_low(),   each.padding_high(),
                              each.base_dilation(), each.window_dilation()};
    for (int i = 0; i < 6; ++i) parts[i].push_back(values[i]);
  }
  const Field kFields[] = {
      Field::kWindowSize,        Field::kWindowStride,
      Field::kWindowPadLow,      Field::kWindowPadHigh,
      Field::kWindowLhsDilation, Field::kWindowRhsDilation};
  for (int i = 0; i < 6; ++i) self->Set(kFields[i], std::move(parts[i]));
}

static Ints Joined(int64_t first, int64_t second, Ints others) {
  Ints joined = {first, second};
  joined.insert(joined.end(), others.begin(), others.end());
  return joined;
}

void SetConvolution(const xla::HloInstructionProto& proto,
                    OutlineInstruction* self) {
  SetWindow(proto.window(), self);
  const auto& dims = proto.convolution_dimension_numbers();
  self->Set(Field::kConvInput,
            Joined(dims.input_batch_dimension(), dims.input_feature_dimension(),
                   ToInts(dims.input_spatial_dimensions())));
  self->Set(Field::kConvKernel,
            Joined(dims.kernel_input_feature_dimension(),
                   dims.kernel_output_feature_dimension(),
                   ToInts(dims.kernel_spatial_dimensions())));
  self->Set(
      Field::kConvOutput,
      Joined(dims.output_batch_dimension(), dims.output_feature_dimension(),
             ToInts(dims.output_spatial_dimensions())));
  // In protos 0 means 1.
  self->Set(Field::kFeatureGroups,
            {std::max<int64_t>(proto.feature_group_count(), 1)});
  self->Set(Field::kBatchGroups,
            {std::max<int64_t>(proto.batch_group_count(), 1)});
}

void SetGather(const xla::HloInstructionProto& proto,
               OutlineInstruction* self) {
  const auto& dims = proto.gather_dimension_numbers();
  self->Set(Field::kSizes, ToInts(proto.gather_slice_sizes()));
  self->Set(Field::kOffsetDims, ToInts(dims.offset_dims()));
  self->Set(Field::kCollapsedDims, ToInts(dims.collapsed_slice_dims()));
  self->Set(Field::kIndexMap, ToInts(dims.start_index_map()));
  self->Set(Field::kOperandBatch, ToInts(dims.operand_batching_dims()));
  self->Set(Field::kIndicesBatch, ToInts(dims.start_indices_batching_dims()));
  self->Set(Field::kIndexVectorDim, {dims.index_vector_dim()});
}

void SetScatter(const xla::ScatterDimensionNumbers& dims,
                OutlineInstruction* self) {
  self->Set(Field::kOffsetDims, ToInts(dims.update_window_dims()));
  self->Set(Field::kCollapsedDims, ToInts(dims.inserted_window_dims()));
  self->Set(Field::kIndexMap, ToInts(dims.scatter_dims_to_operand_dims()));
  self->Set(Field::kOperandBatch, ToInts(dims.input_batching_dims()));
  self->Set(Field::kIndicesBatch, ToInts(dims.scatter_indices_batching_dims()));
  self->Set(Field::kIndexVectorDim, {dims.index_vector_dim()});
}

}  // namespace hloenv
