// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/window_taps.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "passes/proposals/rules.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;

int64_t TapsOf(const xla::Window& window) {
  constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
  int64_t taps = 1;
  for (const auto& dimension : window.dimensions()) {
    const int64_t size = std::max<int64_t>(dimension.size(), 1);
    taps = taps > kMany / size ? kMany : taps * size;
  }
  return taps;
}

bool HasPadding(const xla::Window& window) {
  return absl::c_any_of(window.dimensions(), [](const auto& dimension) {
    return dimension.padding_low() > 0 || dimension.padding_high() > 0 ||
           dimension.base_dilation() > 1;
  });
}

bool FitsWithPadding(const xla::Shape& operand, const xla::Window& window,
                     int64_t elements) {
  const auto unpadded =
      static_cast<double>(xla::ShapeUtil::ElementsIn(operand));
  double padded = 1;
  for (int d = 0; d < window.dimensions_size(); ++d) {
    const auto& dimension = window.dimensions(d);
    padded *= static_cast<double>(
        dimension.padding_low() + dimension.padding_high() +
        (operand.dimensions(d) - 1) * dimension.base_dilation() + 1);
  }
  return FitsBeside(padded, unpadded + static_cast<double>(elements));
}

std::vector<std::vector<int64_t>> OffsetsOf(const xla::Window& window) {
  std::vector<std::vector<int64_t>> all;
  const int rank = window.dimensions_size();
  for (int64_t tap = 0; tap < TapsOf(window); ++tap) {
    std::vector<int64_t> offsets(rank);
    int64_t rest = tap;
    for (int d = rank; d-- > 0;) {
      const auto& dimension = window.dimensions(d);
      offsets[d] = rest % dimension.size() * dimension.window_dilation();
      rest /= dimension.size();
    }
    all.push_back(std::move(offsets));
  }
  return all;
}

HloInstruction* WithPadding(HloInstruction* operand, const xla::Window& window,
                            HloInstruction* value) {
  xla::PaddingConfig padding;
  xla::Shape shape = operand->shape();
  bool changes = false;
  for (int d = 0; d < window.dimensions_size(); ++d) {
    const auto& from = window.dimensions(d);
    auto* to = padding.add_dimensions();
    to->set_edge_padding_low(from.padding_low());
    to->set_edge_padding_high(from.padding_high());
    to->set_interior_padding(from.base_dilation() - 1);
    const int64_t size = shape.dimensions(d);
    shape.set_dimensions(d, from.padding_low() + from.padding_high() +
                                (size - 1) * from.base_dilation() + 1);
    changes |= from.padding_low() != 0 || from.padding_high() != 0 ||
               from.base_dilation() != 1;
  }
  if (!changes) return operand;
  return operand->parent()->AddInstruction(
      HloInstruction::CreatePad(shape, operand, value, padding));
}

HloInstruction* TapOf(HloInstruction* padded, const xla::Window& window,
                      const std::vector<int64_t>& offsets,
                      absl::Span<const int64_t> result) {
  std::vector<int64_t> limits(offsets.size()), strides(offsets.size());
  for (size_t d = 0; d < offsets.size(); ++d) {
    strides[d] = window.dimensions(static_cast<int>(d)).stride();
    limits[d] = offsets[d] + (result[d] - 1) * strides[d] + 1;
  }
  return padded->parent()->AddInstruction(
      HloInstruction::CreateSlice(xla::ShapeUtil::MakeShapeWithDescendingLayout(
                                      padded->shape().element_type(), result),
                                  padded, offsets, limits, strides));
}

}  // namespace hloenv
