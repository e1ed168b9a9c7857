// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/convolution.h"

#include "support/status.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;

namespace {

bool IsFullArray(const xla::Shape& shape) {
  return shape.IsArray() && shape.is_static() &&
         !xla::ShapeUtil::IsZeroElementArray(shape);
}

// Whether multiplications at full precision are what the operands ask for.
bool HasUsualPrecision(const xla::PrecisionConfig& precision) {
  return precision.algorithm() == xla::PrecisionConfig::ALG_UNSET &&
         absl::c_none_of(precision.operand_precision(), [](int each) {
           return each > xla::PrecisionConfig::HIGHEST;
         });
}

std::vector<SpatialDimension> SpatialOf(const HloInstruction& convolution) {
  const auto& numbers = convolution.convolution_dimension_numbers();
  const xla::Shape& input = convolution.operand(0)->shape();
  std::vector<SpatialDimension> spatial;
  for (int d = 0; d < numbers.input_spatial_dimensions_size(); ++d) {
    const xla::WindowDimension& window = convolution.window().dimensions(d);
    const int64_t size = input.dimensions(numbers.input_spatial_dimensions(d));
    spatial.push_back(
        {size,
         convolution.shape().dimensions(numbers.output_spatial_dimensions(d)),
         window.size(), window.stride(), window.padding_low(),
         window.padding_high(), window.window_dilation(),
         size == 1 ? 1 : window.base_dilation(), window.window_reversal()});
  }
  return spatial;
}

Labelled GroupsFirst(const Labelled& array) {
  std::string labels = array.labels;
  const size_t at = labels.find('g');
  if (at == std::string::npos) return array;
  labels.erase(at, 1);
  return Ordered(array, "g" + labels);
}

}  // namespace

std::optional<Convolution> Convolution::Of(const HloInstruction& instruction,
                                           RuleContext& context, Form form) {
  std::optional<Convolution> result = OfAnyPadding(instruction, context, form);
  if (!result.has_value()) return std::nullopt;
  double padded = result->num_elements();
  for (const SpatialDimension& each : result->spatial_) {
    padded *=
        static_cast<double>(each.dilated() + each.pad_low + each.pad_high) /
        static_cast<double>(each.input);
  }
  return result->Fits(padded) ? result : std::nullopt;
}

std::optional<Convolution> Convolution::OfAnyPadding(
    const HloInstruction& instruction, RuleContext& context, Form form) {
  if (instruction.opcode() != xla::HloOpcode::kConvolution ||
      !IsPlain(instruction) || instruction.operand_count() != 2 ||
      !HasUsualPrecision(instruction.precision_config())) {
    return std::nullopt;
  }
  const HloInstruction& input = *instruction.operand(0);
  const HloInstruction& kernel = *instruction.operand(1);
  const auto& numbers = instruction.convolution_dimension_numbers();
  if (numbers.input_spatial_dimensions_size() > 3 ||
      !IsFullArray(instruction.shape()) || !IsFullArray(input.shape()) ||
      !IsFullArray(kernel.shape()) ||
      !HasExactTypes(input.shape(), kernel.shape(), instruction.shape()) ||
      context.ExtremesOf(kernel).large() ||
      (form == Form::kFused && context.IsCompared(instruction))) {
    return std::nullopt;
  }
  Convolution result;
  result.instruction_ = &instruction;
  result.spatial_ = SpatialOf(instruction);
  for (const SpatialDimension& each : result.spatial_) {
    // Negative padding that removes the whole input.
    if (each.pad_low <= -each.dilated() || each.pad_high <= -each.dilated()) {
      return std::nullopt;
    }
  }
  result.has_batch_groups_ = instruction.batch_group_count() > 1;
  result.groups_ =
      instruction.batch_group_count() * instruction.feature_group_count();
  result.batch_ =
      instruction.shape().dimensions(numbers.output_batch_dimension());
  result.inputs_ =
      kernel.shape().dimensions(numbers.kernel_input_feature_dimension());
  result.outputs_ =
      kernel.shape().dimensions(numbers.kernel_output_feature_dimension()) /
      result.groups_;
  result.accumulation_ = {AccumulationType(instruction.shape().element_type()),
                          instruction.precision_config()};
  return result;
}

double Convolution::num_elements() const {
  return static_cast<double>(
      xla::ShapeUtil::ElementsIn(instruction_->operand(0)->shape()));
}

bool Convolution::Fits(double elements) const {
  return FitsBeside(
      elements, num_elements() + static_cast<double>(xla::ShapeUtil::ElementsIn(
                                     instruction_->shape())));
}

std::vector<Index> IndicesBelow(const Index& sizes) {
  std::vector<Index> indices = {{}};
  for (int64_t size : sizes) {
    std::vector<Index> longer;
    for (const Index& index : indices) {
      for (int64_t i = 0; i < size; ++i) {
        longer.push_back(index);
        longer.back().push_back(i);
      }
    }
    indices = std::move(longer);
  }
  return indices;
}

Index Convolution::taps() const {
  Index sizes;
  for (const SpatialDimension& each : spatial_) sizes.push_back(each.taps);
  return sizes;
}

Index Convolution::positions() const {
  Index sizes;
  for (const SpatialDimension& each : spatial_) sizes.push_back(each.output);
  return sizes;
}

int64_t Convolution::num_taps() const {
  return absl::c_accumulate(taps(), int64_t{1}, std::multiplies<int64_t>());
}

std::string Convolution::ReversedTaps() const {
  std::string labels;
  for (size_t d = 0; d < spatial_.size(); ++d) {
    if (spatial_[d].reversed) labels += TapLabel(d);
  }
  return labels;
}

int64_t Convolution::num_positions() const {
  return absl::c_accumulate(positions(), int64_t{1},
                            std::multiplies<int64_t>());
}

Labelled Convolution::Input(HloInstruction* value, bool groups_first) const {
  const auto& numbers = instruction_->convolution_dimension_numbers();
  Labelled input{value, std::string(RankOf(value->shape()), ' ')};
  input.labels[numbers.input_batch_dimension()] = 'b';
  input.labels[numbers.input_feature_dimension()] = 'i';
  for (size_t d = 0; d < spatial_.size(); ++d) {
    input.labels[numbers.input_spatial_dimensions(d)] = PositionLabel(d);
  }
  if (has_batch_groups_) {
    input = SplitLabel(input, 'b', "gb", {groups_, batch_});
  } else if (groups_ > 1) {
    input = SplitLabel(input, 'i', "gi", {groups_, inputs_});
  }
  input = WithoutUnits(input, "bi");
  return groups_first ? GroupsFirst(input) : input;
}

Labelled Convolution::Kernel(HloInstruction* value, bool groups_first) const {
  const auto& numbers = instruction_->convolution_dimension_numbers();
  Labelled kernel{value, std::string(RankOf(value->shape()), ' ')};
  kernel.labels[numbers.kernel_input_feature_dimension()] = 'i';
  kernel.labels[numbers.kernel_output_feature_dimension()] = 'o';
  for (size_t d = 0; d < spatial_.size(); ++d) {
    kernel.labels[numbers.kernel_spatial_dimensions(d)] = TapLabel(d);
  }
  if (groups_ > 1) {
    kernel = SplitLabel(kernel, 'o', "go", {groups_, outputs_});
  }
  kernel = WithoutUnits(kernel, "io");
  return groups_first ? GroupsFirst(kernel) : kernel;
}

std::string Convolution::OutputLabels() const {
  const auto& numbers = instruction_->convolution_dimension_numbers();
  std::string labels;
  for (int64_t at = 0; at < RankOf(instruction_->shape()); ++at) {
    if (at == numbers.output_batch_dimension()) {
      if (batch_ > 1) labels += 'b';
    } else if (at == numbers.output_feature_dimension()) {
      if (groups_ > 1) labels += 'g';
      if (outputs_ > 1) labels += 'o';
    }
    for (size_t d = 0; d < spatial_.size(); ++d) {
      if (at == numbers.output_spatial_dimensions(d)) {
        labels += PositionLabel(d);
      }
    }
  }
  return labels;
}

Labelled Convolution::PaddedInput(const Labelled& input) const {
  std::vector<Padding> paddings;
  for (size_t d = 0; d < spatial_.size(); ++d) {
    const SpatialDimension& each = spatial_[d];
    paddings.push_back({PositionLabel(d), each.pad_low, each.pad_high,
                        each.base_dilation - 1});
  }
  return Padded(input, paddings);
}

Labelled Convolution::InputAt(const Labelled& padded, const Index& tap) const {
  std::vector<Cut> cuts;
  for (size_t d = 0; d < spatial_.size(); ++d) {
    const SpatialDimension& each = spatial_[d];
    cuts.push_back(
        {PositionLabel(d), each.OffsetOf(tap[d]), each.output, each.stride});
  }
  return Sliced(padded, cuts);
}

Labelled Convolution::KernelAt(const Labelled& kernel, const Index& tap) const {
  std::vector<Cut> cuts;
  for (size_t d = 0; d < spatial_.size(); ++d) {
    cuts.push_back({TapLabel(d), tap[d], 1});
  }
  return WithoutUnits(Sliced(kernel, cuts), "xyz");
}

namespace {

// Whether labels are in the order of the output, and none is missing there.
bool IsOrdered(absl::string_view labels, absl::string_view output) {
  size_t at = 0;
  for (const char label : labels) {
    at = output.find(label, at);
    if (at == absl::string_view::npos) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<Labelled> Convolution::Product(Labelled input,
                                              Labelled kernel) const {
  bool sums = false;
  bool has_free = false;
  std::string result;
  const std::string output = OutputLabels();
  for (char label : output) {
    if (input.Has(label) || kernel.Has(label)) result += label;
  }
  for (char label : input.labels) {
    (kernel.Has(label) ? sums : has_free) |= label != 'g';
    // Labels that the rules add, such as the index of a phase.
    if (!kernel.Has(label) && result.find(label) == std::string::npos) {
      result += label;
    }
  }
  for (char label : kernel.labels) {
    if (input.Has(label)) continue;
    has_free = true;
    if (result.find(label) == std::string::npos) result += label;
  }
  if (!sums || !has_free) {
    return MultiplyOf(input, kernel, result, accumulation_);
  }
  // The result of a dot has the dimensions of the left operand first.
  const size_t feature = output.find('o');
  const bool is_feature_first = feature != std::string::npos &&
                                !spatial_.empty() &&
                                feature < output.find(PositionLabel(0));
  // XLA's CPU backend cannot run products of BF16 with a result of F32 that is
  // transposed, as here or by what reads the convolution.
  if (input.value->shape().element_type() == xla::BF16 &&
      accumulation_.type == xla::F32 &&
      (instruction_->shape().element_type() == xla::F32 ||
       !IsOrdered(is_feature_first ? DotLabels(kernel, input, result)
                                   : DotLabels(input, kernel, result),
                  output))) {
    input = Converted(input, xla::F32);
    kernel = Converted(kernel, xla::F32);
  }
  return is_feature_first
             ? DotOf(kernel, input, result, WithOperandsSwapped(accumulation_))
             : DotOf(input, kernel, result, accumulation_);
}

absl::StatusOr<Labelled> Convolution::Sum(const Labelled& input,
                                          const Labelled& kernel) const {
  HLOENV_ASSIGN_OR_RETURN(const Labelled product, Product(input, kernel));
  int64_t terms = 1;
  for (char label : input.labels) {
    if (label != 'g' && kernel.Has(label)) terms *= input.SizeOf(label);
  }
  return terms == 1 ? SumFromZero({product}) : product;
}

HloInstruction* Convolution::Finish(const Labelled& output) const {
  const xla::Shape& shape = instruction_->shape();
  const Labelled ordered =
      Converted(Ordered(output, OutputLabels()), shape.element_type());
  if (ordered.value->shape().dimensions() == shape.dimensions()) {
    return ordered.value;
  }
  return ordered.value->parent()->AddInstruction(HloInstruction::CreateReshape(
      xla::ShapeUtil::MakeShape(shape.element_type(), shape.dimensions()),
      ordered.value));
}

}  // namespace hloenv
