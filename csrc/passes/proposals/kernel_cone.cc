// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/kernel_cone.h"

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
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
      return beside(0, true);
    case HloOpcode::kSubtract:
      return beside(0, false);
    case HloOpcode::kMultiply:
      return beside(1, true);
    case HloOpcode::kDivide:
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
    case HloOpcode::kNot:
      return undoes(instruction.opcode());
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
