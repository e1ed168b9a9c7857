// SPDX-License-Identifier: Apache-2.0
#include "graph/bytes.h"

#include "graph/shapes.h"
#include "xla/layout_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;
using xla::ShapeUtil;

int64_t SizeOf(const Shape& shape) {
  if (shape.IsArray()) {
    return shape.has_layout()
               ? ArrayBytes(shape, ElementCount(shape.dimensions()))
               : 0;
  }
  return xla::LayoutUtil::HasLayout(shape)
             ? ShapeUtil::ByteSizeOf(shape, kPointerBytes)
             : 0;
}

int64_t LeafSizeOf(const Shape& shape) {
  if (!shape.IsTuple()) return SizeOf(shape);
  int64_t bytes = 0;
  for (const Shape& element : shape.tuple_shapes()) {
    bytes += LeafSizeOf(element);
  }
  return bytes;
}

namespace {

// What a fusion reads of one of its parameters: an instruction that slices it
// reads the slice, those that read all of it share one reading.
int64_t BytesReadOf(const HloInstruction& parameter) {
  int64_t bytes = 0;
  bool is_read_whole = false;
  const auto read_whole = [&] {
    if (!is_read_whole) bytes += SizeOf(parameter.shape());
    is_read_whole = true;
  };
  for (const HloInstruction* user : parameter.users()) {
    switch (user->opcode()) {
      case HloOpcode::kFusion:
        for (int64_t index : user->OperandIndices(&parameter)) {
          const auto& parameters = user->fused_parameters();
          if (index < static_cast<int64_t>(parameters.size())) {
            bytes += BytesReadOf(*parameters[index]);
          }
        }
        break;
      case HloOpcode::kSlice:
        bytes += SizeOf(user->shape());
        break;
      case HloOpcode::kDynamicSlice:
        if (user->operand(0) == &parameter) {
          bytes += SizeOf(user->shape());
        } else {
          read_whole();
        }
        break;
      case HloOpcode::kDynamicUpdateSlice:
        if (user->operand(0) != &parameter) read_whole();
        break;
      case HloOpcode::kBroadcast:
      case HloOpcode::kReshape:
        bytes += SizeOf(parameter.shape());
        break;
      default:
        read_whole();
    }
  }
  return bytes;
}

// What a fusion writes: a dynamic-update-slice at the root writes its update.
int64_t BytesWrittenOf(const Shape& shape, const HloInstruction* producer) {
  if (shape.IsTuple()) {
    const bool is_tuple =
        producer != nullptr && producer->opcode() == HloOpcode::kTuple;
    int64_t bytes = 0;
    for (size_t i = 0; i < shape.tuple_shapes().size(); ++i) {
      bytes += BytesWrittenOf(
          shape.tuple_shapes(i),
          is_tuple && shape.tuple_shapes(i).IsArray() &&
                  static_cast<int64_t>(i) < producer->operand_count()
              ? producer->operand(i)
              : nullptr);
    }
    return bytes;
  }
  if (!shape.IsArray()) return 0;
  if (producer != nullptr &&
      producer->opcode() == HloOpcode::kDynamicUpdateSlice) {
    return SizeOf(producer->operand(1)->shape());
  }
  return SizeOf(shape);
}

}  // namespace

int64_t BytesAccessedByFusion(const HloInstruction& fusion) {
  int64_t bytes =
      BytesWrittenOf(fusion.shape(), fusion.fused_expression_root());
  for (const HloInstruction* instruction :
       fusion.fused_instructions_computation()->instructions()) {
    if (instruction->opcode() == HloOpcode::kConstant &&
        instruction->shape().IsArray() &&
        ShapeUtil::ElementsIn(instruction->shape()) > 1) {
      bytes += SizeOf(instruction->shape());
    }
  }
  for (const HloInstruction* parameter : fusion.fused_parameters()) {
    bytes += BytesReadOf(*parameter);
  }
  return bytes;
}

}  // namespace hloenv
