// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/kernel_cone.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/math_rules.h"
#include "passes/proposals/own_kernel.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr size_t kMaxInside = 128;

// Whether it costs nothing to compute it in several kernels.
bool CostsNothing(const HloInstruction& instruction) {
  const HloInstruction* source = &instruction;
  while (source->opcode() == HloOpcode::kBroadcast && IsPlain(*source)) {
    source = source->operand(0);
  }
  return IsPlain(*source) &&
         (source->opcode() == HloOpcode::kIota ||
          (source->opcode() == HloOpcode::kConstant &&
           xla::ShapeUtil::IsEffectiveScalar(source->shape())));
}

// Whether XLA fuses it with its only reader.
bool IsFused(const HloInstruction& instruction) {
  if (!IsPlain(instruction) || instruction.IsRoot()) return false;
  switch (instruction.opcode()) {
    case HloOpcode::kBroadcast:
    case HloOpcode::kConcatenate:
    case HloOpcode::kPad:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
    case HloOpcode::kTranspose:
      return true;
    default:
      return instruction.IsElementwise() && instruction.operand_count() > 0;
  }
}

// Whether slices of one array, side by side, or one array alone.
bool IsWhole(const HloInstruction& concatenation) {
  const int64_t axis = concatenation.concatenate_dimension();
  const HloInstruction* array = nullptr;
  int64_t end = 0;
  for (const HloInstruction* part : concatenation.operands()) {
    const bool is_slice = part->opcode() == HloOpcode::kSlice;
    const HloInstruction* source = is_slice ? part->operand(0) : part;
    if ((array != nullptr && source != array) ||
        (is_slice ? part->slice_starts(axis) : 0) != end) {
      return false;
    }
    array = source;
    end += part->shape().dimensions(axis);
  }
  return true;
}

// Arithmetic with constants, (a x + b) / (c x + d) of an operand x, and the
// largest number in it.
struct Arithmetic {
  const HloInstruction* operand = nullptr;  // null: it is something else
  double a = 1, b = 0, c = 0, d = 1;
  double largest = 0;
};

Arithmetic ArithmeticOf(const HloInstruction& instruction) {
  if (instruction.opcode() == HloOpcode::kNegate) {
    return {instruction.operand(0), -1, 0, 0, 1, 0};
  }
  if (instruction.operand_count() != 2) return {};
  const std::optional<double> left = ConstantOf(*instruction.operand(0));
  const std::optional<double> right = ConstantOf(*instruction.operand(1));
  if (left.has_value() == right.has_value()) return {};
  const HloInstruction* operand = instruction.operand(left.has_value() ? 1 : 0);
  const double number = left.has_value() ? *left : *right;
  const double size = std::abs(number);
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
      return {operand, 1, number, 0, 1, size};
    case HloOpcode::kSubtract:
      if (left.has_value()) return {operand, -1, number, 0, 1, size};
      return {operand, 1, -number, 0, 1, size};
    case HloOpcode::kMultiply:
      return {operand, number, 0, 0, 1, size};
    case HloOpcode::kDivide:
      if (left.has_value()) return {operand, 0, number, 1, 0, size};
      return {operand, 1, 0, 0, number, size};
    default:
      return {};
  }
}

// Appends what chains of arithmetic with constants start from, if these cancel:
// the simplifier joins them.
void AppendCancelled(const HloInstruction& instruction,
                     std::vector<const HloInstruction*>& found) {
  // In types of few bits, the joined number is rounded.
  constexpr double kTolerance = 0.01;
  Arithmetic chain = ArithmeticOf(instruction);
  while (chain.operand != nullptr) {
    const Arithmetic next = ArithmeticOf(*chain.operand);
    chain = {next.operand,
             chain.a * next.a + chain.b * next.c,
             chain.a * next.b + chain.b * next.d,
             chain.c * next.a + chain.d * next.c,
             chain.c * next.b + chain.d * next.d,
             std::max(chain.largest, next.largest)};
    const double unit = kTolerance * std::abs(chain.d);
    if (chain.operand != nullptr && std::abs(chain.a - chain.d) <= unit &&
        std::abs(chain.b) <= unit * std::max(chain.largest, 1.0) &&
        std::abs(chain.c) <= unit) {
      found.push_back(chain.operand);
    }
  }
}

// What XLA's simplifier may make of it: its operands, or what these are
// computed of; nothing where it is an operation of its own.
std::vector<const HloInstruction*> PassedOn(const HloInstruction& instruction) {
  std::vector<const HloInstruction*> operands(instruction.operands().begin(),
                                              instruction.operands().end());
  const auto undoes = [&](HloOpcode opcode) {
    return operands[0]->opcode() == opcode
               ? std::vector<const HloInstruction*>{operands[0]->operand(0)}
               : std::vector<const HloInstruction*>{};
  };
  // Beside a number that changes nothing; any operand for some operations.
  const auto beside = [&](std::optional<double> number, bool is_of_either) {
    std::vector<const HloInstruction*> found;
    const auto is_neutral = [&](const HloInstruction& other) {
      return number.has_value() ? ConstantOf(other) == number
                                : CostsNothing(other);
    };
    if (is_neutral(*operands[1])) found.push_back(operands[0]);
    if (is_of_either && is_neutral(*operands[0])) found.push_back(operands[1]);
    return found;
  };
  const auto with_cancelled = [&](std::vector<const HloInstruction*> found) {
    AppendCancelled(instruction, found);
    return found;
  };
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
      return with_cancelled(beside(0, true));
    case HloOpcode::kSubtract:
      return with_cancelled(beside(0, false));
    case HloOpcode::kMultiply:
      return with_cancelled(beside(1, true));
    case HloOpcode::kDivide:
      return with_cancelled(beside(1, false));
    case HloOpcode::kPower:
      return beside(1, false);
    case HloOpcode::kAnd:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kOr:
    case HloOpcode::kXor:
      if (operands[0] == operands[1]) return {operands[0]};
      return beside(std::nullopt, true);
    case HloOpcode::kSelect:
      if (operands[1] == operands[2] || CostsNothing(*operands[0])) {
        return {operands[1], operands[2]};
      }
      return {};
    case HloOpcode::kClamp:
      return {operands[1]};
    case HloOpcode::kConcatenate:
      return IsWhole(instruction) ? operands
                                  : std::vector<const HloInstruction*>{};
    case HloOpcode::kAbs:
    case HloOpcode::kBroadcast:
    case HloOpcode::kConvert:
    case HloOpcode::kCopy:
    case HloOpcode::kPad:
    case HloOpcode::kReducePrecision:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
    case HloOpcode::kTranspose:
      return {operands[0]};
    case HloOpcode::kExp:
      return undoes(HloOpcode::kLog);
    case HloOpcode::kLog:
      return undoes(HloOpcode::kExp);
    case HloOpcode::kNegate:
      return with_cancelled(undoes(HloOpcode::kNegate));
    case HloOpcode::kNot:
      return undoes(HloOpcode::kNot);
    case HloOpcode::kComplex:
      if (operands[0]->opcode() == HloOpcode::kReal &&
          operands[1]->opcode() == HloOpcode::kImag) {
        return {operands[0]->operand(0)};
      }
      return {};
    case HloOpcode::kImag:
    case HloOpcode::kReal:
      if (operands[0]->opcode() == HloOpcode::kComplex) {
        return {operands[0]->operands().begin(), operands[0]->operands().end()};
      }
      return {};
    default:
      return {};
  }
}

}  // namespace

bool MayReturnItsOperand(const KernelCone& cone) {
  const absl::flat_hash_set<const HloInstruction*> reads(cone.reads.begin(),
                                                         cone.reads.end());
  absl::flat_hash_set<const HloInstruction*> visited;
  std::vector<const HloInstruction*> stack = {cone.inside.back()};
  while (!stack.empty()) {
    const HloInstruction* value = stack.back();
    stack.pop_back();
    if (reads.contains(value)) return true;
    if (!visited.insert(value).second) continue;
    for (const HloInstruction* each : PassedOn(*value)) stack.push_back(each);
  }
  return false;
}

KernelCone ConeOf(const HloInstruction& array, RuleContext& context,
                  absl::FunctionRef<bool(const HloInstruction&)> is_kept) {
  KernelCone cone{{&array}, {}};
  absl::flat_hash_set<const HloInstruction*> inside = {&array};
  // How many of their users are inside.
  absl::flat_hash_map<const HloInstruction*, int64_t> readers;
  for (size_t i = 0; i < cone.inside.size(); ++i) {
    for (const HloInstruction* operand : cone.inside[i]->unique_operands()) {
      if (inside.contains(operand)) continue;
      const bool is_own = ++readers[operand] == operand->user_count();
      const bool is_inside =
          CostsNothing(*operand) || (is_own && inside.size() < kMaxInside &&
                                     IsFused(*operand) && !is_kept(*operand));
      if (is_inside) {
        inside.insert(operand);
        cone.inside.push_back(operand);
      }
    }
  }
  const auto by_place = [&](const HloInstruction* a, const HloInstruction* b) {
    return context.PlaceOf(*a) < context.PlaceOf(*b);
  };
  absl::c_sort(cone.inside, by_place);
  for (const auto& [operand, count] : readers) {
    if (!inside.contains(operand)) cone.reads.push_back(operand);
  }
  absl::c_sort(cone.reads, by_place);
  return cone;
}

absl::StatusOr<HloInstruction*> CallOf(
    const KernelCone& cone, absl::Span<HloInstruction* const> images) {
  return InOwnKernel(
      images,
      [&](absl::Span<HloInstruction* const> parameters)
          -> absl::StatusOr<HloInstruction*> {
        absl::flat_hash_map<const HloInstruction*, HloInstruction*> made;
        for (size_t i = 0; i < parameters.size(); ++i) {
          made[cone.reads[i]] = parameters[i];
        }
        HloInstruction* last = nullptr;
        for (const HloInstruction* each : cone.inside) {
          std::vector<HloInstruction*> operands;
          for (const HloInstruction* operand : each->operands()) {
            operands.push_back(made.at(operand));
          }
          last = operands.empty()
                     ? parameters.front()->AddInstruction(each->Clone())
                     : CloneBeside(*each, each->shape(), operands);
          made[each] = last;
        }
        return last;
      });
}

}  // namespace hloenv
