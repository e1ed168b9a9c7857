// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/kernel_cone.h"

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

// What XLA's simplifier may make of it: one of its operands, or what that is
// computed of; null where it is an operation of its own.
const HloInstruction* PassedOn(const HloInstruction& instruction) {
  const auto operand = [&](int64_t i) { return instruction.operand(i); };
  const auto undoes = [&](HloOpcode opcode) {
    return operand(0)->opcode() == opcode ? operand(0)->operand(0) : nullptr;
  };
  const auto beside = [&](double number) {
    return ConstantOf(*operand(1)) == number ? operand(0) : nullptr;
  };
  const auto by_either = [&](double number) {
    return ConstantOf(*operand(0)) == number ? operand(1) : beside(number);
  };
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
      return by_either(0);
    case HloOpcode::kSubtract:
      return beside(0);
    case HloOpcode::kMultiply:
      return by_either(1);
    case HloOpcode::kDivide:
    case HloOpcode::kPower:
      return beside(1);
    case HloOpcode::kAnd:
    case HloOpcode::kClamp:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kOr:
    case HloOpcode::kSelect:
    case HloOpcode::kXor:
      return operand(instruction.operand_count() == 3 ? 1 : 0);
    case HloOpcode::kAbs:
    case HloOpcode::kConvert:
    case HloOpcode::kCopy:
    case HloOpcode::kReducePrecision:
    case HloOpcode::kReshape:
      return operand(0);
    case HloOpcode::kExp:
      return undoes(HloOpcode::kLog);
    case HloOpcode::kLog:
      return undoes(HloOpcode::kExp);
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
      return undoes(instruction.opcode());
    case HloOpcode::kImag:
    case HloOpcode::kReal:
      return operand(0)->opcode() == HloOpcode::kComplex
                 ? operand(0)->operand(
                       instruction.opcode() == HloOpcode::kImag ? 1 : 0)
                 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

bool MayReturnItsOperand(const KernelCone& cone) {
  const HloInstruction* value = cone.inside.back();
  while (value != nullptr && !absl::c_linear_search(cone.reads, value)) {
    value = PassedOn(*value);
  }
  return value != nullptr;
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
          last = parameters.front()->AddInstruction(
              each->CloneWithNewOperands(each->shape(), operands));
          made[each] = last;
        }
        return last;
      });
}

}  // namespace hloenv
