// SPDX-License-Identifier: Apache-2.0
// Functions of numbers of 32 bits or fewer as arithmetic, for math-forms: where
// that takes more bits than the number has, in double precision.
#include <cmath>
#include <limits>

#include "passes/proposals/labelled.h"
#include "passes/proposals/math_rules.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/primitive_util.h"

namespace hloenv {
namespace {

using xla::ComparisonDirection;
using xla::HloInstruction;
using xla::HloOpcode;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMantissaBits = 52, kExponentBias = 1023;
// Of the root of 1/2.
constexpr int64_t kRootOfHalfBits = 0x3fe6a09e667f3bcd;
// Of log2(m) / s in s^2, where s = (m - 1) / (m + 1), for m of 0.7 to 1.4:
// Taylor's, 2 / ln(2) / (2 k + 1), with an error of 2e-12.
constexpr double kTwoOverLog = 2.8853900817779268;
constexpr double kLogarithm[] = {
    kTwoOverLog,     kTwoOverLog / 3,  kTwoOverLog / 5, kTwoOverLog / 7,
    kTwoOverLog / 9, kTwoOverLog / 11, kTwoOverLog / 13};
// Of 2^f up to 1/2: Taylor's, ln(2)^k / k!, with an error of 2e-10.
constexpr double kLog = 0.69314718055994531;
constexpr double kPowerOfTwo[] = {1.0,
                                  kLog,
                                  0.24022650695910072,
                                  0.055504108664821580,
                                  0.0096181291076284772,
                                  0.0013333558146428443,
                                  0.00015403530393381610,
                                  1.5252733804059841e-05,
                                  1.3215486790144307e-06};
// Exponents of two from which on a number of 32 bits is 0 or infinite.
constexpr double kMinExponent = -160, kMaxExponent = 136;

// The binary logarithm of doubles that are numbers of 32 bits, not negative.
HloInstruction* Log2(HloInstruction* x, Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* bits = build.Bits(x, xla::S64);
  HloInstruction* shift = build.Constant(kMantissaBits);
  HloInstruction* exponent =
      build.Binary(HloOpcode::kShiftRightArithmetic,
                   in.Less(bits, build.Constant(kRootOfHalfBits)), shift);
  HloInstruction* moved = build.Binary(HloOpcode::kShiftLeft, exponent, shift);
  HloInstruction* mantissa = build.Bits(in.Less(bits, moved), xla::F64);
  HloInstruction* one = build.Number(1.0);
  HloInstruction* s = build.Binary(HloOpcode::kDivide, in.Less(mantissa, one),
                                   in.Sum(mantissa, one));
  // By 32 bits, which more processors convert to doubles in vectors.
  HloInstruction* whole =
      build.Convert(build.Convert(exponent, xla::S32), xla::F64);
  HloInstruction* found =
      in.Sum(whole, in.Times(s, Polynomial(kLogarithm, in.Times(s, s), build)));
  found = build.Select(ComparisonDirection::kEq, x, build.Number(0.0),
                       build.Number(-kInfinity), found);
  // Infinity, and what is no number.
  return build.Select(ComparisonDirection::kLt, x, build.Number(kInfinity),
                      found, x);
}

// 2^x, in the range of numbers of 32 bits.
HloInstruction* Exp2(HloInstruction* x, Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* limited = build.Binary(
      HloOpcode::kMinimum, build.Number(kMaxExponent),
      build.Binary(HloOpcode::kMaximum, build.Number(kMinExponent), x));
  HloInstruction* whole = build.Unary(HloOpcode::kRoundNearestEven, limited);
  HloInstruction* rest =
      Polynomial(kPowerOfTwo, in.Less(limited, whole), build);
  HloInstruction* exponent =
      build.Convert(build.Convert(whole, xla::S32), xla::S64);
  HloInstruction* bits = build.Binary(
      HloOpcode::kShiftLeft, in.Sum(exponent, build.Constant(kExponentBias)),
      build.Constant(kMantissaBits));
  return in.Times(rest, build.Bits(bits, xla::F64));
}

xla::PrimitiveType ComputedIn(xla::PrimitiveType type) {
  return type == xla::F64 ? xla::F64 : xla::F32;
}

HloInstruction* OneOf(xla::PrimitiveType type, Elementwise& build) {
  return build.Convert(build.Constant(1.0f), type);
}

HloInstruction* BuildCubeRoot(HloInstruction* x, Elementwise& build) {
  HloInstruction* size =
      build.Unary(HloOpcode::kAbs, build.Convert(x, xla::F64));
  HloInstruction* third = DoubleMath(build).Times(Log2(size, build), 1.0 / 3.0);
  HloInstruction* root = Exp2(third, build);
  return build.Convert(
      IfNegative(x, build.Unary(HloOpcode::kNegate, root), root, build),
      x->shape().element_type());
}

// With `is_power`, x**-0.5, which is infinity for negative zero and 0 for
// negative infinity.
HloInstruction* BuildOverRoot(HloInstruction* dividend, HloInstruction* x,
                              bool is_power, Elementwise& build) {
  const xla::PrimitiveType type = x->shape().element_type();
  const xla::PrimitiveType wide = ComputedIn(type);
  // XLA's simplifier would make a reciprocal square root of a quotient by a
  // square root again, but not by the larger one of that and a number.
  HloInstruction* root = build.Unary(HloOpcode::kSqrt, build.Convert(x, wide));
  HloInstruction* divisor =
      build.Binary(HloOpcode::kMaximum, root,
                   build.Unary(HloOpcode::kNegate, OneOf(wide, build)));
  if (is_power) divisor = build.Unary(HloOpcode::kAbs, divisor);
  HloInstruction* above =
      dividend == nullptr ? OneOf(wide, build) : build.Convert(dividend, wide);
  HloInstruction* quotient =
      build.Convert(build.Binary(HloOpcode::kDivide, above, divisor), type);
  if (!is_power) return quotient;
  const auto whole = [&](float number) {
    return build.Convert(build.Constant(number), type);
  };
  return build.Select(ComparisonDirection::kEq, x,
                      whole(-std::numeric_limits<float>::infinity()),
                      whole(0.0f), quotient);
}

HloInstruction* BuildLogOfOneMore(HloInstruction* x, Elementwise& build) {
  const xla::PrimitiveType type = x->shape().element_type();
  HloInstruction* u = build.Convert(x, xla::F32);
  HloInstruction* one = build.Constant(1.0f);
  // Otherwise XLA would find that 1 + u - 1 is u.
  HloInstruction* hidden = BarrierOf(x->parent()->AddInstruction(
      HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0<float>(1.0f))));
  HloInstruction* sum =
      build.Binary(HloOpcode::kAdd, Whole(hidden, build.ShapeOf(xla::F32)), u);
  HloInstruction* logarithm = build.Unary(HloOpcode::kLog, sum);
  // What the rounding of the sum changes.
  HloInstruction* ratio = build.Binary(
      HloOpcode::kDivide, u, build.Binary(HloOpcode::kSubtract, sum, one));
  HloInstruction* found = build.Binary(HloOpcode::kMultiply, logarithm, ratio);
  HloInstruction* infinity =
      build.Constant(std::numeric_limits<float>::infinity());
  found = build.Select(ComparisonDirection::kEq, u, infinity, u, found);
  return build.Convert(
      build.Select(ComparisonDirection::kEq, sum, one, u, found), type);
}

// Whether XLA's CPU backend calls the C library's function of float32 for each
// element of float16 in those fusions that it writes by tiles. (In others it
// converts to float32 itself, and loses nothing by it.) Not square roots, which
// are slow in the former alone, and slower as float32 in the latter.
bool IsCalledInHalf(HloOpcode function) {
  return function == HloOpcode::kExp || function == HloOpcode::kExpm1 ||
         function == HloOpcode::kLog;
}

// Of numbers of 32 bits or fewer; XLA calls the C library for doubles, which
// have no bits to spare.
void ProposeNarrow(const Rule& rule, const HloInstruction& root,
                   HloOpcode function,
                   HloInstruction* (*build)(HloInstruction*, Elementwise&),
                   RuleContext& context, std::vector<Proposal>& proposals) {
  if (root.opcode() != function || root.shape().element_type() == xla::F64 ||
      !IsFunctionOfFloats(root, context)) {
    return;
  }
  Propose(
      rule, root, {root.operand(0)},
      [build, &root](Arrays x) {
        Elementwise in(x[0]->parent(), root.shape());
        return build(x[0], in);
      },
      proposals);
}

void ProposeCubeRoot(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  ProposeNarrow(CubeRootRule(), root, HloOpcode::kCbrt, &BuildCubeRoot, context,
                proposals);
}

void ProposeLogOfOneMore(const HloInstruction& root, RuleContext& context,
                         std::vector<Proposal>& proposals) {
  ProposeNarrow(LogOfOneMoreRule(), root, HloOpcode::kLog1p, &BuildLogOfOneMore,
                context, proposals);
}

void ProposeOverRoot(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  const HloInstruction* dividend = nullptr;
  const HloInstruction* of = nullptr;
  if (root.opcode() == HloOpcode::kRsqrt) {
    of = root.operand(0);
  } else if (root.opcode() == HloOpcode::kDivide &&
             root.operand(1)->opcode() == HloOpcode::kSqrt) {
    dividend = root.operand(0);
    of = root.operand(1)->operand(0);
  } else if (root.opcode() == HloOpcode::kPower &&
             ConstantOf(*root.operand(1)) == -0.5) {
    of = root.operand(0);
  }
  if (of == nullptr || !IsFunctionOfFloats(root, context)) return;
  std::vector<const HloInstruction*> reads = {of};
  if (dividend != nullptr) reads.push_back(dividend);
  Propose(
      OverRootRule(), root, std::move(reads),
      [&root](Arrays x) {
        Elementwise build(x[0]->parent(), root.shape());
        return BuildOverRoot(x.size() > 1 ? x[1] : nullptr, x[0],
                             root.opcode() == HloOpcode::kPower, build);
      },
      proposals);
}

void ProposeWidened(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const xla::PrimitiveType type = root.shape().element_type();
  if (type != xla::F16 || !IsCalledInHalf(root.opcode()) ||
      !IsFunctionOfFloats(root, context)) {
    return;
  }
  Propose(
      WidenedRule(), root, {root.operand(0)},
      [&root](Arrays x) {
        Elementwise in(x[0]->parent(), root.shape());
        HloInstruction* value =
            in.Unary(root.opcode(), in.Convert(x[0], xla::F32));
        return in.Convert(value, root.shape().element_type());
      },
      proposals);
}

}  // namespace

HloInstruction* BuildNarrowPower(HloInstruction* x, HloInstruction* y,
                                 Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* zero = build.Number(0.0);
  HloInstruction* base = build.Convert(x, xla::F64);
  HloInstruction* exponent = build.Convert(y, xla::F64);
  HloInstruction* size = build.Unary(HloOpcode::kAbs, base);
  HloInstruction* logarithm = Log2(size, build);
  // 1, whatever the exponent, and of any number if that is 0.
  HloInstruction* product =
      build.Select(ComparisonDirection::kEq, logarithm, zero, zero,
                   in.Times(exponent, logarithm));
  product =
      build.Select(ComparisonDirection::kEq, exponent, zero, zero, product);
  HloInstruction* power = Exp2(product, build);
  HloInstruction* whole = build.Unary(HloOpcode::kFloor, exponent);
  HloInstruction* half = in.Times(exponent, 0.5);
  HloInstruction* is_whole =
      build.Compare(ComparisonDirection::kEq, whole, exponent);
  HloInstruction* is_odd =
      build.Binary(HloOpcode::kAnd, is_whole,
                   build.Compare(ComparisonDirection::kNe,
                                 build.Unary(HloOpcode::kFloor, half), half));
  HloInstruction* is_negative = build.Binary(
      HloOpcode::kAnd, build.Compare(ComparisonDirection::kLt, base, zero),
      build.Compare(ComparisonDirection::kLt, size, build.Number(kInfinity)));
  HloInstruction* not_a_number =
      build.Constant(std::numeric_limits<double>::quiet_NaN());
  power = build.Where(
      build.Binary(HloOpcode::kAnd, is_negative, build.Not(is_whole)),
      not_a_number, power);
  HloInstruction* negated =
      build.Where(is_odd, build.Unary(HloOpcode::kNegate, power), power);
  return build.Convert(IfNegative(x, negated, power, build),
                       x->shape().element_type());
}

const Rule& CubeRootRule() {
  static constexpr Rule rule = {
      "cube_root",
      "Rewrites a cube root, but not of doubles, as logarithm and power in "
      "double precision. Floats round differently, by the last bits; numbers "
      "below the smallest normal one count as zeros.",
      &ProposeCubeRoot};
  return rule;
}
const Rule& LogOfOneMoreRule() {
  static constexpr Rule rule = {
      "log_plus_one",
      "Rewrites log(1 + x), but not of doubles, as the logarithm of the "
      "rounded sum and a quotient for what was rounded, which "
      "xla_cpu_enable_fast_math undoes. Floats round differently, by the last "
      "bits.",
      &ProposeLogOfOneMore};
  return rule;
}
const Rule& OverRootRule() {
  static constexpr Rule rule = {
      "over_root",
      "Rewrites a reciprocal square root, or a quotient by a square root, as a "
      "quotient that XLA does not make a reciprocal square root of. Floats "
      "round differently, by the last bits.",
      &ProposeOverRoot};
  return rule;
}
const Rule& WidenedRule() {
  static constexpr Rule rule = {
      "widened",
      "Rewrites an exponential, its difference to 1, or a logarithm of float16 "
      "as one of float32, whose result is rounded. Floats may round "
      "differently, by the last bit.",
      &ProposeWidened};
  return rule;
}
}  // namespace hloenv
