// SPDX-License-Identifier: Apache-2.0
#include "rewrite/perturb.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>

#include "support/status.h"
#include "xla/primitive_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

constexpr absl::string_view kTarget = "hloenv.rounding";

bool IsFloat(const xla::Shape& shape) {
  return shape.IsArray() &&
         (xla::primitive_util::IsFloatingPointType(shape.element_type()) ||
          xla::primitive_util::IsComplexType(shape.element_type()));
}

bool HasFloats(const xla::Shape& shape) {
  bool has_floats = false;
  xla::ShapeUtil::ForEachSubshape(
      shape, [&](const xla::Shape& leaf, const xla::ShapeIndex&) {
        has_floats |= IsFloat(leaf);
      });
  return has_floats;
}

int BitWidth(const xla::Shape& shape) {
  return xla::primitive_util::BitWidth(shape.element_type());
}

// Whether `instruction` rounds its result. Data movement, selection and
// operations with integral results (floor, sign, ...) do not.
bool Rounds(const HloInstruction& instruction) {
  if (!HasFloats(instruction.shape())) return false;
  switch (instruction.opcode()) {
    case HloOpcode::kAcos:
    case HloOpcode::kAcosh:
    case HloOpcode::kAdd:
    case HloOpcode::kAllReduce:
    case HloOpcode::kAsin:
    case HloOpcode::kAsinh:
    case HloOpcode::kAtan2:
    case HloOpcode::kAtanh:
    case HloOpcode::kBatchNormGrad:
    case HloOpcode::kBatchNormInference:
    case HloOpcode::kBatchNormTraining:
    case HloOpcode::kCbrt:
    case HloOpcode::kCholesky:
    case HloOpcode::kConvolution:
    case HloOpcode::kCos:
    case HloOpcode::kCosh:
    case HloOpcode::kDivide:
    case HloOpcode::kDot:
    case HloOpcode::kErf:
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
    case HloOpcode::kFft:
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kLogistic:
    case HloOpcode::kMap:
    case HloOpcode::kMultiply:
    case HloOpcode::kPower:
    case HloOpcode::kReducePrecision:
    case HloOpcode::kReduceScatter:
    case HloOpcode::kRemainder:
    case HloOpcode::kRsqrt:
    case HloOpcode::kSin:
    case HloOpcode::kSinh:
    case HloOpcode::kSqrt:
    case HloOpcode::kSubtract:
    case HloOpcode::kTan:
    case HloOpcode::kTanh:
    case HloOpcode::kTriangularSolve:
      return true;
    case HloOpcode::kAbs:  // of complex numbers
      return instruction.operand(0)->shape().element_type() !=
             instruction.shape().element_type();
    case HloOpcode::kConvert:
      return IsFloat(instruction.operand(0)->shape()) &&
             BitWidth(instruction.operand(0)->shape()) >
                 BitWidth(instruction.shape());
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kScatter:
    case HloOpcode::kSelectAndScatter: {
      const HloComputation* reducer = instruction.called_computations().back();
      return std::any_of(
          reducer->instructions().begin(), reducer->instructions().end(),
          [](const HloInstruction* inner) { return Rounds(*inner); });
    }
    default:
      return false;
  }
}

// The computations that are not applied to single elements, in a fixed order.
std::vector<HloComputation*> ArrayComputations(const HloModule& module) {
  std::vector<HloComputation*> found = {module.entry_computation()};
  absl::flat_hash_set<const HloComputation*> seen = {found.front()};
  for (size_t i = 0; i < found.size(); ++i) {  // `found` grows
    for (const HloInstruction* instruction : found[i]->instructions()) {
      switch (instruction->opcode()) {
        case HloOpcode::kCall:
        case HloOpcode::kConditional:
        case HloOpcode::kFusion:
        case HloOpcode::kWhile:
          break;
        default:
          continue;
      }
      for (HloComputation* called : instruction->called_computations()) {
        if (seen.insert(called).second) found.push_back(called);
      }
    }
  }
  return found;
}

// The next value of the same sign, away from zero or towards it. Returns
// `value` if it is zero or has no such neighbour.
template <typename T>
T Neighbour(T value, bool is_up) {
  using Bits = std::conditional_t<
      sizeof(T) == 1, uint8_t,
      std::conditional_t<
          sizeof(T) == 2, uint16_t,
          std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
  const auto before = static_cast<double>(value);
  if (before == 0 || !std::isfinite(before)) return value;
  if (is_up && (value == std::numeric_limits<T>::max() ||
                value == std::numeric_limits<T>::lowest())) {
    return value;
  }
  Bits bits;
  std::memcpy(&bits, &value, sizeof(T));
  bits = static_cast<Bits>(is_up ? bits + 1 : bits - 1);
  T moved;
  std::memcpy(static_cast<void*>(&moved), &bits, sizeof(T));
  const auto after = static_cast<double>(moved);
  return std::isfinite(after) && std::signbit(after) == std::signbit(before)
             ? moved
             : value;
}

void Perturb(xla::Literal* literal, std::mt19937_64* rng) {
  xla::ShapeUtil::ForEachSubshape(
      literal->shape(), [&](const xla::Shape& leaf, const xla::ShapeIndex& at) {
        if (!IsFloat(leaf)) return;
        xla::primitive_util::ArrayTypeSwitch(
            [&](auto type) {
              using Native = xla::primitive_util::NativeTypeOf<type()>;
              const auto move = [rng](auto value) {
                return Neighbour(value, ((*rng)() & 1) != 0);
              };
              for (Native& value : literal->data<Native>(at)) {
                if constexpr (xla::is_complex_v<Native>) {
                  // Fixes the order of the random numbers.
                  const auto real = move(value.real());
                  value = Native(real, move(value.imag()));
                } else if constexpr (!std::is_integral_v<Native> &&
                                     !xla::is_specialized_integral_v<Native>) {
                  value = move(value);
                }
              }
            },
            leaf.element_type());
      });
}

OnCustomCall OnRounding(std::function<void(xla::Literal*)> change,
                        OnCustomCall other) {
  return
      [change = std::move(change), other = std::move(other)](
          const HloInstruction* call, absl::Span<const xla::Literal*> operands)
          -> absl::StatusOr<xla::Literal> {
        if (call->custom_call_target() == kTarget) {
          xla::Literal result = operands[0]->Clone();
          change(&result);
          return result;
        }
        if (other != nullptr) return other(call, operands);
        return Error(
            kExecuteError,
            absl::StrCat("custom call '", call->name(), "' to '",
                         call->custom_call_target(), "' cannot be evaluated"));
      };
}

}  // namespace

absl::StatusOr<Module> WithRoundings(const Module& module) {
  std::unique_ptr<HloModule> clone = module.CloneHlo();
  for (HloComputation* computation : ArrayComputations(*clone)) {
    std::vector<HloInstruction*> rounding;
    for (HloInstruction* instruction : computation->instructions()) {
      if (Rounds(*instruction)) rounding.push_back(instruction);
    }
    for (HloInstruction* instruction : rounding) {
      const std::vector<HloInstruction*> users(instruction->users().begin(),
                                               instruction->users().end());
      HloInstruction* call =
          computation->AddInstruction(HloInstruction::CreateCustomCall(
              instruction->shape(), {instruction}, kTarget));
      for (HloInstruction* user : users) {
        HLOENV_RETURN_IF_ERROR(instruction->ReplaceUseWith(user, call));
      }
      if (computation->root_instruction() == instruction) {
        computation->set_root_instruction(call);
      }
    }
  }
  return Module(std::move(clone));
}

OnCustomCall PerturbRoundings(uint64_t seed, OnCustomCall other) {
  auto rng = std::make_shared<std::mt19937_64>(seed);
  return OnRounding([rng](xla::Literal* value) { Perturb(value, rng.get()); },
                    std::move(other));
}

OnCustomCall KeepRoundings(OnCustomCall other) {
  return OnRounding([](xla::Literal*) {}, std::move(other));
}

absl::StatusOr<std::vector<std::string>> InterpretPerturbed(
    const Module& module, absl::Span<const Bytes> inputs, uint64_t seed) {
  HLOENV_ASSIGN_OR_RETURN(const Module perturbed, WithRoundings(module));
  return Interpret(perturbed, inputs, PerturbRoundings(seed));
}

}  // namespace hloenv
