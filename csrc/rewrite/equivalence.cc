// SPDX-License-Identifier: Apache-2.0
#include "rewrite/equivalence.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/analysis.h"
#include "xla/hlo/ir/hlo_casting_utils.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

bool IsPlainLayout(const xla::Layout& layout) {
  return layout.tiles().empty() && layout.memory_space() == 0 &&
         layout.element_size_in_bits() == 0 && !layout.has_physical_shape() &&
         layout.dynamic_shape_metadata_prefix_bytes() == 0 &&
         layout.tail_padding_alignment_in_elements() == 1 &&
         layout.index_primitive_type() == xla::PRIMITIVE_TYPE_INVALID &&
         layout.pointer_primitive_type() == xla::PRIMITIVE_TYPE_INVALID &&
         layout.split_configs().empty();
}

// Opcodes without attributes of their own.
bool HasNoAttributes(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAbs:
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kAtan2:
    case HloOpcode::kBitcastConvert:
    case HloOpcode::kCeil:
    case HloOpcode::kClamp:
    case HloOpcode::kConvert:
    case HloOpcode::kCos:
    case HloOpcode::kDivide:
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
    case HloOpcode::kFloor:
    case HloOpcode::kIsFinite:
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kLogistic:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kPower:
    case HloOpcode::kRemainder:
    case HloOpcode::kRsqrt:
    case HloOpcode::kSelect:
    case HloOpcode::kShiftLeft:
    case HloOpcode::kShiftRightArithmetic:
    case HloOpcode::kShiftRightLogical:
    case HloOpcode::kSign:
    case HloOpcode::kSin:
    case HloOpcode::kSqrt:
    case HloOpcode::kSubtract:
    case HloOpcode::kTanh:
    case HloOpcode::kTuple:
    case HloOpcode::kXor:
      return true;
    default:
      return false;
  }
}

bool SameFrontendAttributes(const HloInstruction& a, const HloInstruction& b) {
  if (!a.has_frontend_attributes() && !b.has_frontend_attributes()) return true;
  if (a.has_frontend_attributes() != b.has_frontend_attributes()) return false;
  const auto& left = a.frontend_attributes().map();
  const auto& right = b.frontend_attributes().map();
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left) {
    auto it = right.find(key);
    if (it == right.end() || it->second != value) return false;
  }
  return true;
}

bool SharesLiteral(const HloInstruction& a, const HloInstruction& b) {
  return a.opcode() == HloOpcode::kConstant &&
         xla::Cast<xla::HloConstantInstruction>(&a)->HasLiteral() &&
         xla::Cast<xla::HloConstantInstruction>(&b)->HasLiteral() &&
         &a.literal() == &b.literal();
}

}  // namespace

bool SameShape(const xla::Shape& a, const xla::Shape& b) {
  if (a.IsArray() && b.IsArray() && a.has_layout() && b.has_layout()) {
    if (a.element_type() != b.element_type() ||
        a.dimensions() != b.dimensions() ||
        a.layout().minor_to_major() != b.layout().minor_to_major()) {
      return false;
    }
    if (!a.is_dynamic() && !b.is_dynamic() && IsPlainLayout(a.layout()) &&
        IsPlainLayout(b.layout())) {
      return true;
    }
  }
  return xla::Shape::Equal()(a, b);
}

bool SameInstruction(
    const HloInstruction& a, bool a_has_extras, const HloInstruction& b,
    absl::FunctionRef<bool(const HloComputation*, const HloComputation*)>
        same_computation) {
  if (a.opcode() != b.opcode() || a.operand_count() != b.operand_count() ||
      !SameShape(a.shape(), b.shape())) {
    return false;
  }
  if (!a_has_extras && !HasExtras(b)) {
    if (HasNoAttributes(a.opcode()) || SharesLiteral(a, b)) return true;
    if (a.opcode() == HloOpcode::kGetTupleElement) {
      return a.tuple_index() == b.tuple_index();
    }
  }
  // `Identical` compares shardings only where both have one.
  if (a.has_sharding() != b.has_sharding() ||
      a.has_result_accuracy() != b.has_result_accuracy()) {
    return false;
  }
  const auto any = [](const HloInstruction*, const HloInstruction*) {
    return true;
  };
  if (!SharesLiteral(a, b) &&
      !a.Identical(b, any, same_computation, /*layout_sensitive=*/true,
                   /*sharding_sensitive=*/true)) {
    return false;
  }
  // `Identical` compares called computations for some opcodes only.
  const auto& called = a.called_computations();
  const auto& other_called = b.called_computations();
  if (called.size() != other_called.size()) return false;
  for (size_t i = 0; i < called.size(); ++i) {
    if (!same_computation(called[i], other_called[i])) return false;
  }
  return SameFrontendAttributes(a, b);
}

bool SameGraph(
    const HloComputation& a, const HloComputation& b,
    absl::FunctionRef<bool(const HloComputation*, const HloComputation*)>
        same_computation) {
  if (a.instruction_count() != b.instruction_count() ||
      a.num_parameters() != b.num_parameters()) {
    return false;
  }
  absl::flat_hash_map<const HloInstruction*, const HloInstruction*> image;
  absl::flat_hash_set<const HloInstruction*> taken;
  std::vector<std::pair<const HloInstruction*, const HloInstruction*>> waiting;
  // Whether `right` is, or can be, the image of `left`.
  const auto match = [&](const HloInstruction* left,
                         const HloInstruction* right) {
    const auto [it, is_new] = image.try_emplace(left, right);
    if (!is_new) return it->second == right;
    waiting.emplace_back(left, right);
    return taken.insert(right).second;
  };
  for (int64_t i = 0; i < a.num_parameters(); ++i) {
    if (!match(a.parameter_instruction(i), b.parameter_instruction(i))) {
      return false;
    }
  }
  if (!match(a.root_instruction(), b.root_instruction())) return false;
  while (!waiting.empty()) {
    const auto [left, right] = waiting.back();
    waiting.pop_back();
    if (!SameInstruction(*left, HasExtras(*left), *right, same_computation)) {
      return false;
    }
    for (int64_t i = 0; i < left->operand_count(); ++i) {
      if (!match(left->operand(i), right->operand(i))) return false;
    }
  }
  return static_cast<int64_t>(image.size()) == a.instruction_count();
}

}  // namespace hloenv
