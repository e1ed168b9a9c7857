// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/kernel_cone.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/element_values.h"
#include "passes/proposals/own_kernel.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/primitive_util.h"
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
    case HloOpcode::kReshape:
      return true;
    case HloOpcode::kDynamicSlice:
      return false;
    default:
      return MovesElements(instruction) ||
             (instruction.IsElementwise() && instruction.operand_count() > 0);
  }
}

}  // namespace

bool MovesElements(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kConcatenate:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kPad:
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
    case HloOpcode::kTranspose:
      return true;
    default:
      return false;
  }
}

bool MayReturnItsOperand(const KernelCone& cone) {
  const HloInstruction& array = *cone.inside.back();
  const xla::Shape& shape = array.shape();
  const int64_t elements = xla::ShapeUtil::ElementsIn(shape);
  std::vector<const HloInstruction*> left;
  for (const HloInstruction* read : cone.reads) {
    if (read->shape().IsArray() &&
        xla::ShapeUtil::ElementsIn(read->shape()) == elements &&
        xla::ShapeUtil::ByteSizeOf(read->shape()) ==
            xla::ShapeUtil::ByteSizeOf(shape)) {
      left.push_back(read);
    }
  }
  // The simplifier rounds the constants of these to few digits.
  if (!left.empty() && xla::ShapeUtil::ElementIsFloating(shape) &&
      xla::primitive_util::BitWidth(shape.element_type()) < 16) {
    return true;
  }
  // Where what is read is transposed, layouts may do that.
  const bool is_transposed =
      absl::c_any_of(cone.inside, [](const HloInstruction* each) {
        return each->opcode() == HloOpcode::kTranspose;
      });
  for (int draw = 0; draw < ElementValues::kDraws && !left.empty(); ++draw) {
    ElementValues values(cone.reads, draw);
    // The first and the last element, which often are a border, and others.
    constexpr int64_t kStep = 7919;
    const int64_t place = draw == 0 ? 0
                          : draw == 1
                              ? elements - 1
                              : draw * (elements / 3 + kStep) % elements;
    if (values.Of(array, place) == nullptr) return true;
    const auto differs = [&](const HloInstruction* read) {
      const std::vector<int64_t> places =
          is_transposed ? values.PlacesOf(*read) : std::vector<int64_t>{place};
      return absl::c_all_of(places, [&](int64_t each) {
        return values.Compared(array, place, *read, each) ==
               ElementValues::Likeness::kDifferent;
      });
    };
    left.erase(std::remove_if(left.begin(), left.end(), differs), left.end());
  }
  return !left.empty();
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
