// SPDX-License-Identifier: Apache-2.0
// Attributes of a serialized instruction as fields of an outline.
#pragma once

#include <algorithm>
#include <utility>

#include "hlo/outline/outline.h"
#include "xla/service/hlo.pb.h"

namespace hloenv {

template <typename Numbers>
Ints ToInts(const Numbers& numbers) {
  return Ints(numbers.begin(), numbers.end());
}

void SetSlices(const xla::HloInstructionProto& proto, OutlineInstruction* self);
void SetPadding(const xla::PaddingConfig& proto, OutlineInstruction* self);
void SetDot(const xla::DotDimensionNumbers& proto, OutlineInstruction* self);
void SetWindow(const xla::Window& proto, OutlineInstruction* self);
void SetConvolution(const xla::HloInstructionProto& proto,
                    OutlineInstruction* self);
void SetGather(const xla::HloInstructionProto& proto, OutlineInstruction* self);
void SetScatter(const xla::ScatterDimensionNumbers& dims,
                OutlineInstruction* self);

}  // namespace hloenv
