// SPDX-License-Identifier: Apache-2.0
#include "hlo/trip_count.h"

#include <limits>
#include <optional>

#include "xla/literal.h"
#include "xla/primitive_util.h"
#include "xla/xla_data.pb.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// The constant that `instruction` is, as an integer scalar.
std::optional<int64_t> IntegerConstant(const HloInstruction* instruction) {
  while (instruction->opcode() == HloOpcode::kCopy ||
         instruction->opcode() == HloOpcode::kBitcast) {
    instruction = instruction->operand(0);
  }
  if (instruction->opcode() != HloOpcode::kConstant ||
      !instruction->shape().IsArray() ||
      !instruction->shape().dimensions().empty()) {
    return std::nullopt;
  }
  const std::optional<int64_t> value =
      instruction->literal().GetIntegralAsS64({});
  // A larger number than that.
  const bool is_huge = value.has_value() && *value < 0 &&
                       xla::primitive_util::IsUnsignedIntegralType(
                           instruction->shape().element_type());
  return is_huge ? std::nullopt : value;
}

// The index of the element of the computation's only parameter that
// `instruction` is.
std::optional<int64_t> TupleElement(const HloInstruction* instruction) {
  while (instruction->opcode() == HloOpcode::kCopy) {
    instruction = instruction->operand(0);
  }
  if (instruction->opcode() != HloOpcode::kGetTupleElement ||
      instruction->operand(0)->opcode() != HloOpcode::kParameter) {
    return std::nullopt;
  }
  return instruction->tuple_index();
}

// A compare of a tuple element with a constant: element `op` limit.
struct Condition {
  int64_t element;
  int64_t limit;
  xla::ComparisonDirection direction;
};

std::optional<Condition> ReadCondition(const HloInstruction* root) {
  if (root->opcode() != HloOpcode::kCompare) return std::nullopt;
  std::optional<int64_t> element = TupleElement(root->operand(0));
  std::optional<int64_t> limit = IntegerConstant(root->operand(1));
  xla::ComparisonDirection direction = root->comparison_direction();
  if (!element.has_value()) {
    element = TupleElement(root->operand(1));
    limit = IntegerConstant(root->operand(0));
    direction =
        xla::Comparison(direction, root->operand(0)->shape().element_type())
            .Converse()
            .GetDirection();
  }
  if (!element.has_value() || !limit.has_value()) return std::nullopt;
  return Condition{*element, *limit, direction};
}

// What one iteration adds to `element` of the loop's state.
std::optional<int64_t> ReadStep(const HloComputation* body, int64_t element) {
  const HloInstruction* root = body->root_instruction();
  if (root->opcode() != HloOpcode::kTuple || element >= root->operand_count()) {
    return std::nullopt;
  }
  const HloInstruction* next = root->operand(element);
  if (next->opcode() != HloOpcode::kAdd &&
      next->opcode() != HloOpcode::kSubtract) {
    return std::nullopt;
  }
  std::optional<int64_t> before = TupleElement(next->operand(0));
  std::optional<int64_t> step = IntegerConstant(next->operand(1));
  if (next->opcode() == HloOpcode::kSubtract) {
    if (step.has_value()) step = -*step;
  } else if (!before.has_value()) {
    before = TupleElement(next->operand(1));
    step = IntegerConstant(next->operand(0));
  }
  if (before != element || !step.has_value()) return std::nullopt;
  return step;
}

}  // namespace

int64_t WhileTripCount(const HloInstruction& instruction) {
  if (instruction.has_backend_config()) {
    auto config = instruction.backend_config<xla::WhileLoopBackendConfig>();
    if (config.ok() && config->has_known_trip_count()) {
      return config->known_trip_count().n();
    }
  }
  const std::optional<Condition> condition =
      ReadCondition(instruction.while_condition()->root_instruction());
  const HloInstruction* initial = instruction.operand(0);
  if (!condition.has_value() || initial->opcode() != HloOpcode::kTuple ||
      condition->element >= initial->operand_count()) {
    return -1;
  }
  const std::optional<int64_t> first =
      IntegerConstant(initial->operand(condition->element));
  const std::optional<int64_t> step =
      ReadStep(instruction.while_body(), condition->element);
  if (!first.has_value() || !step.has_value() || *step == 0) return -1;
  // As a count upwards to an exclusive limit.
  __int128 distance = static_cast<__int128>(condition->limit) - *first;
  __int128 pace = *step;
  switch (condition->direction) {
    case xla::ComparisonDirection::kLt:
      break;
    case xla::ComparisonDirection::kLe:
      distance += 1;
      break;
    case xla::ComparisonDirection::kGt:
      distance = -distance;
      pace = -pace;
      break;
    case xla::ComparisonDirection::kGe:
      distance = -distance + 1;
      pace = -pace;
      break;
    default:
      return -1;
  }
  if (distance <= 0) return 0;
  if (pace <= 0) return -1;
  const __int128 count = (distance + pace - 1) / pace;
  // Where the last step leaves the type, it goes on.
  const xla::PrimitiveType type =
      initial->operand(condition->element)->shape().element_type();
  const bool is_signed = xla::primitive_util::IsSignedIntegralType(type);
  const int bits = xla::primitive_util::BitWidth(type) - (is_signed ? 1 : 0);
  const __int128 limit = static_cast<__int128>(1) << bits;
  const __int128 last = *first + count * *step;
  if (last >= limit || last < (is_signed ? -limit : 0) ||
      count > std::numeric_limits<int64_t>::max()) {
    return -1;
  }
  return static_cast<int64_t>(count);
}

}  // namespace hloenv
