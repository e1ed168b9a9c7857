// SPDX-License-Identifier: Apache-2.0
// Proposes loops that compute several large arrays element by element with four
// iterations in each: XLA has a kernel for each of the arrays, and copies them
// as long as another kernel reads their last values, so that most of an
// iteration is memory that is read and written.
#include "absl/algorithm/container.h"
#include "passes/proposals/cut_rules.h"
#include "passes/proposals/loop_rules.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kIterations = 4;
// Iterations from which on; arrays; the bytes of all of them, which are in the
// cache of a core below; and operations of one element, times the arrays: each
// array's kernel computes the earlier iterations of all arrays again.
constexpr int64_t kMinTrips = 8;
constexpr int64_t kMinArrays = 2;
constexpr int64_t kMaxArrays = 4;
constexpr int64_t kMinBytes = int64_t{1} << 20;
constexpr int64_t kMaxWork = 48;
constexpr int64_t kDivision = 6;

// Operations that an elementwise instruction is as many as; -1 for functions
// that are not arithmetic.
int64_t WorkOf(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAbs:
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kClamp:
    case HloOpcode::kCompare:
    case HloOpcode::kConvert:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kSelect:
    case HloOpcode::kSubtract:
    case HloOpcode::kXor:
      return xla::ShapeUtil::ElementIsComplex(instruction.shape()) ? 4 : 1;
    case HloOpcode::kDivide:
    case HloOpcode::kSqrt:
      return xla::ShapeUtil::ElementIsFloating(instruction.shape()) ? kDivision
                                                                    : -1;
    default:
      return -1;
  }
}

// A number that is computed of numbers alone.
bool IsNumber(const HloInstruction& instruction) {
  const auto is_one = [](const HloInstruction* each) {
    return each->shape().IsArray() &&
           xla::ShapeUtil::ElementsIn(each->shape()) == 1;
  };
  return is_one(&instruction) &&
         (ElementOf(instruction) >= 0 ||
          absl::c_all_of(instruction.operands(), is_one));
}

// Whether the state of the loop is arrays of one shape, each element of which
// is computed by few operations on the same element of others.
bool IsByElement(const FoundLoop& found) {
  const HloComputation& body = *found.loop->while_body();
  const HloInstruction& next = *body.root_instruction();
  const HloInstruction* array = nullptr;
  int64_t arrays = 0;
  int64_t bytes = 0;
  for (int64_t i = 0; i < next.operand_count(); ++i) {
    const HloInstruction& each = *next.operand(i);
    if (ElementOf(each) == i || IsNumber(each)) continue;
    if (array != nullptr &&
        !xla::ShapeUtil::SameDimensions(array->shape(), each.shape())) {
      return false;
    }
    array = &each;
    ++arrays;
    bytes += xla::ShapeUtil::ByteSizeOfElements(each.shape());
  }
  if (arrays < kMinArrays || arrays > kMaxArrays || bytes < kMinBytes) {
    return false;
  }
  int64_t work = 0;
  for (const HloInstruction* each : body.instructions()) {
    if (each->opcode() == HloOpcode::kParameter || each == &next ||
        ElementOf(*each) >= 0 || IsNumber(*each) ||
        each->opcode() == HloOpcode::kBroadcast) {
      continue;
    }
    const int64_t own = WorkOf(*each);
    if (own < 0 ||
        !xla::ShapeUtil::SameDimensions(array->shape(), each->shape())) {
      return false;
    }
    work += own;
  }
  return arrays * work <= kMaxWork;
}

}  // namespace

const Rule& IterationsRule() {
  static constexpr Rule rule = {
      "iterations",
      "Rewrites a loop that counts from one constant to another, and computes "
      "each element of several large arrays by few operations on the same "
      "element, as one with four iterations in each, which reads and writes "
      "the arrays once. The operations are the same, but fused kernels may "
      "round differently.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        const std::optional<FoundLoop> found = FoundLoopOf(last, context);
        if (found.has_value() && found->counted.trips >= kMinTrips &&
            IsByElement(*found)) {
          ProposeUnrolled(IterationsRule(), kIterations, last, context,
                          proposals);
        }
      }};
  return rule;
}

}  // namespace hloenv
