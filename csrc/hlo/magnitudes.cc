// SPDX-License-Identifier: Apache-2.0
#include "hlo/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "hlo/order.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"
#include "xla/types.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// Between which magnitudes a number is moderate.
struct Limits {
  double smallest = 0;
  double largest = std::numeric_limits<double>::infinity();

  Limits operator&(const Limits& other) const {
    return {std::max(smallest, other.smallest),
            std::min(largest, other.largest)};
  }
};

// Of a format whose numbers lie between 2^(underflow - 1) and 2^overflow.
Limits LimitsOf(int underflow, int overflow) {
  return {std::exp2((underflow - 1) / 2.0), std::exp2(overflow / 2.0)};
}

Limits LimitsOf(xla::PrimitiveType type) {
  if (xla::primitive_util::IsComplexType(type)) {
    type = xla::primitive_util::ComplexComponentType(type);
  }
  if (!xla::primitive_util::IsFloatingPointType(type)) return {};
  return LimitsOf(xla::primitive_util::UnderflowExponent(type),
                  xla::primitive_util::OverflowExponent(type));
}

// The limits of all formats that some instruction rounds to: where -1e9 becomes
// a float16, it is an infinity.
Limits LimitsOfConversions(const xla::HloModule& module) {
  Limits limits;
  for (const xla::HloComputation* computation : module.computations()) {
    for (const HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() == HloOpcode::kConvert) {
        limits = limits & LimitsOf(instruction->shape().element_type());
      } else if (instruction->opcode() == HloOpcode::kReducePrecision) {
        // Wider formats than float64 round nothing to infinity.
        const int bits = std::min(instruction->exponent_bits(), 11);
        const int overflow = 1 << (bits - 1);
        limits = limits & LimitsOf(2 - overflow, overflow);
      }
    }
  }
  return limits;
}

void AddValue(double value, const Limits& limits, Extremes* extremes) {
  extremes->positive |= value > limits.largest;
  extremes->negative |= value < -limits.largest;
  extremes->nan |= std::isnan(value);
  extremes->small |= value != 0 && std::abs(value) < limits.smallest;
}

template <typename Value>
Extremes OfValues(const xla::Literal& literal, const Limits& limits) {
  Extremes extremes;
  for (const Value& value : literal.data<Value>()) {
    if constexpr (xla::is_complex_v<Value>) {
      AddValue(static_cast<double>(value.real()), limits, &extremes);
      AddValue(static_cast<double>(value.imag()), limits, &extremes);
    } else {
      AddValue(static_cast<double>(value), limits, &extremes);
    }
  }
  return extremes;
}

// Of a tuple, those of all of its arrays: an element has the tuple as its
// source.
Extremes OfLiteral(const xla::Literal& literal, const Limits& conversions) {
  if (literal.shape().IsTuple()) {
    Extremes extremes;
    for (const xla::Literal& element : literal.Clone().DecomposeTuple()) {
      extremes = extremes | OfLiteral(element, conversions);
    }
    return extremes;
  }
  if (!literal.shape().IsArray()) return {};
  const xla::PrimitiveType type = literal.shape().element_type();
  const Limits limits = LimitsOf(type) & conversions;
  return xla::primitive_util::ArrayTypeSwitch(
      [&](auto number) -> Extremes {
        using Value = xla::primitive_util::NativeTypeOf<number>;
        return OfValues<Value>(literal, limits);
      },
      type);
}

// The largest number of an iota is as much part of the module as a constant.
Extremes OfIota(const HloInstruction& iota, const Limits& conversions) {
  const auto* instruction = xla::Cast<xla::HloIotaInstruction>(&iota);
  const int64_t size = iota.shape().dimensions(instruction->iota_dimension());
  Extremes extremes;
  AddValue(static_cast<double>(size - 1),
           LimitsOf(iota.shape().element_type()) & conversions, &extremes);
  return extremes;
}

Extremes Negated(Extremes x) {
  return {x.negative, x.positive, x.small, x.nan};
}
Extremes Maximum(Extremes a, Extremes b) {
  return {a.positive || b.positive, a.negative && b.negative,
          a.small || b.small};
}
Extremes Minimum(Extremes a, Extremes b) {
  return Negated(Maximum(Negated(a), Negated(b)));
}
// Infinities of other signs together are not a number, as is one times zero.
Extremes Sum(Extremes a, Extremes b) {
  return {a.positive || b.positive, a.negative || b.negative,
          a.small && b.small,
          (a.positive && b.negative) || (a.negative && b.positive)};
}
Extremes Product(Extremes a, Extremes b) {
  const bool large = a.large() || b.large();
  return {large, large, a.small || b.small, large};
}
Extremes OfEitherSign(Extremes x) {
  return {x.large(), x.large(), x.small, x.large()};
}

// Whether moderate numbers may give an extreme one, as log(0) does.
bool MayBeSingular(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAcos:
    case HloOpcode::kAcosh:
    case HloOpcode::kAsin:
    case HloOpcode::kAtanh:
    case HloOpcode::kBitcastConvert:
    case HloOpcode::kConvolution:
    case HloOpcode::kCosh:
    case HloOpcode::kDivide:
    case HloOpcode::kDot:
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kMap:
    case HloOpcode::kPower:
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kRemainder:
    case HloOpcode::kRsqrt:
    case HloOpcode::kScatter:
    case HloOpcode::kSelectAndScatter:
    case HloOpcode::kSinh:
    case HloOpcode::kSqrt:
    case HloOpcode::kTan:
      return true;
    default:
      return false;
  }
}

// Whether several moderate numbers together may give an extreme one.
bool MayOverflow(HloOpcode opcode) {
  return opcode == HloOpcode::kAdd || opcode == HloOpcode::kMultiply ||
         opcode == HloOpcode::kSubtract;
}

bool HasZero(const xla::Literal& literal) {
  return xla::primitive_util::ArrayTypeSwitch(
      [&](auto number) {
        using Value = xla::primitive_util::NativeTypeOf<number>;
        return absl::c_linear_search(literal.data<Value>(), Value{});
      },
      literal.shape().element_type());
}

// What an operation makes of values that the module determines: of these,
// infinities too are part of the module.
Extremes SingularOf(const HloInstruction& instruction,
                    const Limits& conversions, KnownValues& known) {
  const bool may_be_singular = MayBeSingular(instruction.opcode());
  if (!instruction.shape().IsArray() ||
      !(may_be_singular || MayOverflow(instruction.opcode()))) {
    return {};
  }
  const KnownValue value = known.Of(instruction);
  if (value.literal != nullptr) return OfLiteral(*value.literal, conversions);
  if (!may_be_singular) return {};
  if (value.is_fixed) return {true, true, true, true};  // it may be anything
  if (instruction.opcode() != HloOpcode::kDivide) return {};
  const KnownValue divisor = known.Of(*instruction.operand(1));
  const bool may_be_zero =
      divisor.literal != nullptr ? HasZero(*divisor.literal) : divisor.is_fixed;
  return {may_be_zero, may_be_zero, false, may_be_zero};
}

// The operand that a select takes all elements from, where the module
// determines its predicate, one truth value for all: jnp.var divides by n, or
// is not a number where n is none.
const HloInstruction* TakenBy(const HloInstruction& select,
                              KnownValues& known) {
  const HloInstruction* predicate = select.operand(0);
  while (predicate->opcode() == HloOpcode::kBroadcast ||
         predicate->opcode() == HloOpcode::kReshape) {
    predicate = predicate->operand(0);
  }
  // Masks of many elements would use up what may be evaluated.
  if (xla::ShapeUtil::ElementsIn(predicate->shape()) != 1) return nullptr;
  const std::shared_ptr<const xla::Literal> literal =
      known.Of(*predicate).literal;
  if (literal == nullptr) return nullptr;
  return select.operand(literal->GetFirstElement<bool>() ? 1 : 2);
}

bool IsIntegral(const HloInstruction& instruction) {
  return instruction.shape().IsArray() &&
         xla::primitive_util::IsIntegralType(
             instruction.shape().element_type());
}

// Whether its result holds no floats of its operands.
bool HasNoFloats(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kCompare ||
         instruction.opcode() == HloOpcode::kIsFinite ||
         (IsIntegral(instruction) &&
          instruction.opcode() != HloOpcode::kBitcastConvert);
}

bool IsNumber(const HloInstruction& instruction, double number) {
  const HloInstruction* constant = &instruction;
  while (constant->opcode() == HloOpcode::kBroadcast) {
    constant = constant->operand(0);
  }
  return constant->opcode() == HloOpcode::kConstant &&
         xla::ShapeUtil::IsScalar(constant->shape()) &&
         constant->literal().GetAsDouble({}) == number;
}

// Whether a select takes `x * inf` where |x| is 1, as the inverse error
// function does: a value of its argument, like that by which a division is by
// zero.
bool IsPole(const HloInstruction& select) {
  const HloInstruction& test = *select.operand(0);
  const HloInstruction& pole = *select.operand(1);
  return test.opcode() == HloOpcode::kCompare &&
         test.comparison_direction() == xla::ComparisonDirection::kEq &&
         test.operand(0)->opcode() == HloOpcode::kAbs &&
         IsNumber(*test.operand(1), 1) &&
         pole.opcode() == HloOpcode::kMultiply &&
         pole.operand(0) == test.operand(0)->operand(0) &&
         IsNumber(*pole.operand(1), std::numeric_limits<double>::infinity());
}

// Whether each window holds more than padding.
bool HasElementsInAllWindows(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kReduceWindow &&
         absl::c_all_of(instruction.window().dimensions(),
                        [](const xla::WindowDimension& dimension) {
                          return dimension.base_dilation() == 1 &&
                                 dimension.window_dilation() == 1 &&
                                 dimension.padding_low() < dimension.size() &&
                                 dimension.padding_high() < dimension.size();
                        });
}

}  // namespace

Magnitudes::Magnitudes(const xla::HloModule& module, KnownValues* known) {
  const Limits conversions = LimitsOfConversions(module);
  std::vector<const HloInstruction*> computed;
  for (const xla::HloComputation* computation : CalleesFirst(module)) {
    for (const HloInstruction* instruction :
         computation->MakeInstructionPostOrder()) {
      const HloOpcode opcode = instruction->opcode();
      if (opcode == HloOpcode::kSelect) {
        const HloInstruction* taken = IsPole(*instruction)
                                          ? instruction->operand(2)
                                          : TakenBy(*instruction, *known);
        if (taken != nullptr) taken_[instruction] = taken;
      }
      const Extremes singular = SingularOf(*instruction, conversions, *known);
      if (singular.any()) extremes_[instruction] = singular;
      if (opcode == HloOpcode::kConstant || opcode == HloOpcode::kIota) {
        const Extremes extremes =
            opcode == HloOpcode::kIota
                ? OfIota(*instruction, conversions)
                : OfLiteral(instruction->literal(), conversions);
        if (extremes.any()) extremes_[instruction] = extremes;
      } else if (!OnlyForwards(*instruction)) {
        computed.push_back(instruction);
      }
    }
  }
  // Each round only adds; a loop's body may need several.
  bool changed = !extremes_.empty();
  while (changed) {
    changed = false;
    for (const HloInstruction* instruction : computed) {
      const Extremes extremes = Computed(*instruction);
      if (!extremes.any()) continue;
      Extremes& known = extremes_[instruction];
      const Extremes merged = known | extremes;
      changed |= !(merged == known);
      known = merged;
    }
  }
}

Extremes Magnitudes::Of(const HloInstruction& instruction) const {
  if (extremes_.empty()) return {};
  if (!OnlyForwards(instruction)) return Known(instruction);
  Extremes extremes;
  for (const HloInstruction* source : sources_.Of(instruction)) {
    extremes = extremes | Known(*source);
  }
  if (!IsIntegral(instruction)) return extremes;
  // Those of floats beside it in a tuple, as of an argmax, which starts from
  // -inf; bits of a float may still be large.
  return {extremes.positive || extremes.nan, extremes.negative || extremes.nan,
          extremes.small};
}

Extremes Magnitudes::Known(const HloInstruction& instruction) const {
  const auto found = extremes_.find(&instruction);
  return found == extremes_.end() ? Extremes{} : found->second;
}

// The extremes of the result of `instruction`, from those of its operands and
// those in the computations that it calls.
Extremes Magnitudes::Computed(const HloInstruction& instruction) const {
  const auto taken = taken_.find(&instruction);
  if (taken != taken_.end()) return Of(*taken->second);
  Extremes extremes = OfOperation(instruction);
  if (HasNoFloats(instruction)) return extremes;
  for (const HloInstruction* operand : instruction.operands()) {
    extremes.nan |= Of(*operand).nan;
  }
  // What sorts compare is not in the result.
  if (instruction.opcode() == HloOpcode::kSort) return extremes;
  for (const xla::HloComputation* called : instruction.called_computations()) {
    for (const HloInstruction* each : called->instructions()) {
      extremes = extremes | Of(*each);
    }
  }
  return extremes;
}

Extremes Magnitudes::OfOperation(const HloInstruction& instruction) const {
  const auto operand = [&](int64_t i) { return Of(*instruction.operand(i)); };
  const auto all = [&](int64_t begin, int64_t end) {
    Extremes extremes;
    for (int64_t i = begin; i < end; ++i) extremes = extremes | operand(i);
    return extremes;
  };
  switch (instruction.opcode()) {
    case HloOpcode::kAbs:
      return {operand(0).large(), false, operand(0).small};
    case HloOpcode::kAdd:
      return Sum(operand(0), operand(1));
    case HloOpcode::kClamp:
      return Minimum(operand(2), Maximum(operand(0), operand(1)));
    case HloOpcode::kConvolution:
    case HloOpcode::kDot:
      return Product(operand(0), operand(1));
    case HloOpcode::kDivide: {
      const bool large = operand(0).large() || operand(1).small;
      return {large, large, operand(0).small || operand(1).large(), large};
    }
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kGather:
      return operand(0);
    case HloOpcode::kDynamicUpdateSlice:
      return all(0, 2);
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
      return {operand(0).positive, false, false};
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kSqrt:
      return {operand(0).positive, false, false, operand(0).negative};
    case HloOpcode::kRsqrt:
      return {false, false, false, operand(0).negative};
    case HloOpcode::kCbrt:
      return {operand(0).positive, operand(0).negative, false};
    case HloOpcode::kMaximum:
      return Maximum(operand(0), operand(1));
    case HloOpcode::kMinimum:
      return Minimum(operand(0), operand(1));
    case HloOpcode::kMultiply:
      if (instruction.operand(0) == instruction.operand(1) &&
          !xla::ShapeUtil::ElementIsComplex(instruction.shape())) {
        return {operand(0).large(), false, operand(0).small};
      }
      return Product(operand(0), operand(1));
    case HloOpcode::kNegate:
      return Negated(operand(0));
    case HloOpcode::kPower:
      return all(0, 2).any() ? Extremes{true, true, true, true} : Extremes{};
    case HloOpcode::kCos:
    case HloOpcode::kSin:  // of infinities, not a number
      return {false, false, false, operand(0).large()};
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kScatter:
      return Reduced(instruction);
    case HloOpcode::kSelect:
      return all(1, 3);
    case HloOpcode::kSubtract:
      return Sum(operand(0), Negated(operand(1)));
    // Bounded, or no floats.
    case HloOpcode::kAtan2:
    case HloOpcode::kCompare:
    case HloOpcode::kErf:
    case HloOpcode::kIsFinite:
    case HloOpcode::kLogistic:
    case HloOpcode::kSign:
    case HloOpcode::kTanh:
      return {};
    // Those that move or round their operands keep signs.
    case HloOpcode::kBitcast:
    case HloOpcode::kBroadcast:
    case HloOpcode::kCeil:
    case HloOpcode::kConcatenate:
    case HloOpcode::kConvert:
    case HloOpcode::kCopy:
    case HloOpcode::kFloor:
    case HloOpcode::kPad:
    case HloOpcode::kReal:
    case HloOpcode::kReducePrecision:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kRoundNearestAfz:
    case HloOpcode::kRoundNearestEven:
    case HloOpcode::kSlice:
    case HloOpcode::kSort:
    case HloOpcode::kTopK:
    case HloOpcode::kTranspose:
      return all(0, instruction.operand_count());
    default:
      return OfEitherSign(all(0, instruction.operand_count()));
  }
}

// Of reductions: what starts one is an operand like the others.
Extremes Magnitudes::Reduced(const HloInstruction& instruction) const {
  const HloInstruction& root = *instruction.to_apply()->root_instruction();
  Extremes all;
  for (const HloInstruction* operand : instruction.operands()) {
    all = all | Of(*operand);
  }
  // Of parameters, or else it may change signs.
  const bool is_plain =
      root.operand_count() == 2 && absl::c_all_of(root.operands(), [](auto* x) {
        return x->opcode() == HloOpcode::kParameter;
      });
  if (!is_plain) return OfEitherSign(all);
  const HloOpcode opcode = root.opcode();
  switch (opcode) {
    case HloOpcode::kAdd:
      all.nan |= all.positive && all.negative;
      return all;
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum: {
      // A scatter leaves most of its operand alone.
      if (instruction.opcode() != HloOpcode::kReduce &&
          !HasElementsInAllWindows(instruction)) {
        return all;
      }
      if (xla::ShapeUtil::IsZeroElementArray(instruction.operand(0)->shape())) {
        return all;
      }
      const Extremes array = Of(*instruction.operand(0));
      const Extremes start = Of(*instruction.operand(1));
      return opcode == HloOpcode::kMaximum ? Maximum(array, start)
                                           : Minimum(array, start);
    }
    default:
      return OfEitherSign(all);
  }
}

}  // namespace hloenv
