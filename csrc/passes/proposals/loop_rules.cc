// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/loop_rules.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

std::optional<int64_t> IntegerOf(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kConstant ||
      !xla::ShapeUtil::IsScalar(instruction.shape()) ||
      !instruction.shape().AreAllLeavesIntegers()) {
    return std::nullopt;
  }
  return instruction.literal().GetFirstInteger();
}

int64_t ElementOf(const HloInstruction& instruction) {
  const bool is_element =
      instruction.opcode() == HloOpcode::kGetTupleElement &&
      instruction.operand(0)->opcode() == HloOpcode::kParameter;
  return is_element ? instruction.tuple_index() : -1;
}

bool IsRepeatable(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kWhile:
    case HloOpcode::kConditional:
    case HloOpcode::kCall:
    case HloOpcode::kAsyncStart:
    case HloOpcode::kAsyncUpdate:
    case HloOpcode::kAsyncDone:
    case HloOpcode::kRng:
    case HloOpcode::kRngGetAndUpdateState:
      return false;
    default:
      return !instruction.HasSideEffect() &&
             !instruction.HasControlDependencies() &&
             !instruction.has_sharding();
  }
}

namespace {

// The number of the element that a condition compares with a constant, as less
// than it, and this constant.
std::optional<std::pair<int64_t, int64_t>> LimitOf(
    const HloComputation& condition) {
  const HloInstruction& root = *condition.root_instruction();
  if (root.opcode() != HloOpcode::kCompare ||
      root.comparison_direction() != xla::ComparisonDirection::kLt ||
      ElementOf(*root.operand(0)) < 0) {
    return std::nullopt;
  }
  const std::optional<int64_t> limit = IntegerOf(*root.operand(1));
  if (!limit.has_value()) return std::nullopt;
  return std::make_pair(ElementOf(*root.operand(0)), *limit);
}

// Whether `next` is one more than element `index` of the parameter.
bool IsIncremented(const HloInstruction& next, int64_t index) {
  if (next.opcode() != HloOpcode::kAdd) return false;
  for (const int64_t side : {0, 1}) {
    if (ElementOf(*next.operand(side)) == index &&
        IntegerOf(*next.operand(1 - side)) == 1) {
      return true;
    }
  }
  return false;
}

std::optional<Counted> CountedOf(const HloInstruction& loop) {
  const auto limit = LimitOf(*loop.while_condition());
  const HloInstruction& initial = *loop.operand(0);
  const HloInstruction& next = *loop.while_body()->root_instruction();
  if (!limit.has_value() || initial.opcode() != HloOpcode::kTuple ||
      next.opcode() != HloOpcode::kTuple ||
      !IsIncremented(*next.operand(limit->first), limit->first)) {
    return std::nullopt;
  }
  const std::optional<int64_t> start =
      IntegerOf(*initial.operand(limit->first));
  if (!start.has_value() || *start >= limit->second) return std::nullopt;
  // Both are of 32 bits in practice; the difference must not overflow.
  constexpr int64_t kFar = int64_t{1} << 40;
  if (*start < -kFar || limit->second > kFar) return std::nullopt;
  return Counted{limit->first, *start, limit->second - *start};
}

// Whether all parts of a loop's state are arrays that stay as they are, with
// their layouts.
bool IsPlainState(const HloInstruction& loop) {
  const HloInstruction& initial = *loop.operand(0);
  const HloInstruction& next = *loop.while_body()->root_instruction();
  if (next.user_count() > 0) return false;
  for (int64_t i = 0; i < initial.operand_count(); ++i) {
    const xla::Shape& shape = loop.shape().tuple_shapes(i);
    if (!IsReplaceable(*initial.operand(i)) ||
        initial.operand(i)->shape() != shape ||
        next.operand(i)->shape() != shape) {
      return false;
    }
  }
  const HloInstruction& state = *loop.while_body()->parameter_instruction(0);
  for (const HloInstruction* user : state.users()) {
    if (user->opcode() != HloOpcode::kGetTupleElement ||
        user->shape() != loop.shape().tuple_shapes(user->tuple_index())) {
      return false;
    }
  }
  return absl::c_all_of(
      loop.while_condition()->instructions(),
      [](const HloInstruction* each) { return IsRepeatable(*each); });
}

}  // namespace

std::optional<FoundLoop> FoundLoopOf(const HloInstruction& last,
                                     RuleContext& context) {
  if (last.opcode() != HloOpcode::kGetTupleElement ||
      last.operand(0)->opcode() != HloOpcode::kWhile) {
    return std::nullopt;
  }
  const HloInstruction& loop = *last.operand(0);
  std::vector<const HloInstruction*> originals = LiveElementsOf(loop, context);
  if (originals.empty() || originals.back() != &last ||
      loop.HasControlDependencies() || loop.has_sharding()) {
    return std::nullopt;
  }
  for (const HloInstruction* each : originals) {
    if (each->opcode() != HloOpcode::kGetTupleElement ||
        !IsReplaceable(*each) ||
        each->shape() != loop.shape().tuple_shapes(each->tuple_index())) {
      return std::nullopt;
    }
  }
  const std::optional<Counted> counted = CountedOf(loop);
  if (!counted.has_value() || counted->trips < 2 || !IsPlainState(loop)) {
    return std::nullopt;
  }
  return FoundLoop{&loop, *counted, std::move(originals)};
}

}  // namespace hloenv
