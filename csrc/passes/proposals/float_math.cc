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
constexpr double kRootOfHalf = 0x1.6a09e667f3bcdp-1;
constexpr int64_t kRootOfHalfBits = 0x3fe6a09e667f3bcd;
static_assert(kRootOfHalf * kRootOfHalf > 0.49);
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
constexpr double kLeastExponent = -160, kLargestExponent = 136;

// Functions of doubles that are numbers of 32 bits.
class Logarithms {
 public:
  explicit Logarithms(Elementwise& build) : build_(build) {}

  HloInstruction* Plus(HloInstruction* x, HloInstruction* y) {
    return build_.Binary(HloOpcode::kAdd, x, y);
  }
  HloInstruction* Less(HloInstruction* x, HloInstruction* y) {
    return build_.Binary(HloOpcode::kSubtract, x, y);
  }
  HloInstruction* Times(HloInstruction* x, HloInstruction* y) {
    return build_.Binary(HloOpcode::kMultiply, x, y);
  }

  // The binary logarithm of a number that is not negative.
  HloInstruction* Log2(HloInstruction* x) {
    HloInstruction* bits = build_.Bits(x, xla::S64);
    HloInstruction* shift = build_.Constant(kMantissaBits);
    HloInstruction* exponent =
        build_.Binary(HloOpcode::kShiftRightArithmetic,
                      Less(bits, build_.Constant(kRootOfHalfBits)), shift);
    HloInstruction* moved =
        build_.Binary(HloOpcode::kShiftLeft, exponent, shift);
    HloInstruction* mantissa = build_.Bits(Less(bits, moved), xla::F64);
    HloInstruction* one = build_.Number(1.0);
    HloInstruction* s = build_.Binary(HloOpcode::kDivide, Less(mantissa, one),
                                      Plus(mantissa, one));
    // By 32 bits, which more processors convert to doubles in vectors.
    HloInstruction* whole =
        build_.Convert(build_.Convert(exponent, xla::S32), xla::F64);
    HloInstruction* found =
        Plus(whole, Times(s, Polynomial(kLogarithm, Times(s, s), build_)));
    found = build_.Select(ComparisonDirection::kEq, x, build_.Number(0.0),
                          build_.Number(-kInfinity), found);
    // Infinity, and what is no number.
    return build_.Select(ComparisonDirection::kLt, x, build_.Number(kInfinity),
                         found, x);
  }

  HloInstruction* Exp2(HloInstruction* x) {
    HloInstruction* limited = build_.Binary(
        HloOpcode::kMinimum, build_.Number(kLargestExponent),
        build_.Binary(HloOpcode::kMaximum, build_.Number(kLeastExponent), x));
    HloInstruction* whole = build_.Unary(HloOpcode::kRoundNearestEven, limited);
    HloInstruction* rest =
        Polynomial(kPowerOfTwo, Less(limited, whole), build_);
    HloInstruction* exponent =
        build_.Convert(build_.Convert(whole, xla::S32), xla::S64);
    HloInstruction* bits = build_.Binary(
        HloOpcode::kShiftLeft, Plus(exponent, build_.Constant(kExponentBias)),
        build_.Constant(kMantissaBits));
    return Times(rest, build_.Bits(bits, xla::F64));
  }

 private:
  Elementwise& build_;
};

xla::PrimitiveType ComputedIn(xla::PrimitiveType type) {
  return type == xla::F64 ? xla::F64 : xla::F32;
}

HloInstruction* OneOf(xla::PrimitiveType type, Elementwise& build) {
  return build.Convert(build.Constant(1.0f), type);
}

HloInstruction* BuildCubeRoot(HloInstruction* x, Elementwise& build) {
  Logarithms in(build);
  HloInstruction* size =
      build.Unary(HloOpcode::kAbs, build.Convert(x, xla::F64));
  HloInstruction* third = build.Number(1.0 / 3.0);
  HloInstruction* root = in.Exp2(in.Times(in.Log2(size), third));
  return build.Convert(
      IfNegative(x, build.Unary(HloOpcode::kNegate, root), root, build),
      x->shape().element_type());
}

HloInstruction* BuildOverRoot(HloInstruction* dividend, HloInstruction* x,
                              Elementwise& build) {
  const xla::PrimitiveType type = x->shape().element_type();
  const xla::PrimitiveType wide = ComputedIn(type);
  // XLA's simplifier would make a reciprocal square root of a quotient by a
  // square root again, but not by the larger one of that and a number.
  HloInstruction* root = build.Unary(HloOpcode::kSqrt, build.Convert(x, wide));
  HloInstruction* divisor =
      build.Binary(HloOpcode::kMaximum, root,
                   build.Unary(HloOpcode::kNegate, OneOf(wide, build)));
  HloInstruction* above =
      dividend == nullptr ? OneOf(wide, build) : build.Convert(dividend, wide);
  return build.Convert(build.Binary(HloOpcode::kDivide, above, divisor), type);
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
        return BuildOverRoot(x.size() > 1 ? x[1] : nullptr, x[0], build);
      },
      proposals);
}

}  // namespace

HloInstruction* BuildNarrowPower(HloInstruction* x, HloInstruction* y,
                                 Elementwise& build) {
  Logarithms in(build);
  HloInstruction* zero = build.Number(0.0);
  HloInstruction* base = build.Convert(x, xla::F64);
  HloInstruction* exponent = build.Convert(y, xla::F64);
  HloInstruction* size = build.Unary(HloOpcode::kAbs, base);
  HloInstruction* logarithm = in.Log2(size);
  // 1, whatever the exponent, and of any number if that is 0.
  HloInstruction* product =
      build.Select(ComparisonDirection::kEq, logarithm, zero, zero,
                   in.Times(exponent, logarithm));
  product =
      build.Select(ComparisonDirection::kEq, exponent, zero, zero, product);
  HloInstruction* power = in.Exp2(product);
  HloInstruction* whole = build.Unary(HloOpcode::kFloor, exponent);
  HloInstruction* half = in.Times(exponent, build.Number(0.5));
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
      "cube-root",
      "Rewrites a cube root, but not of doubles, as logarithm and power in "
      "double precision. Floats round differently, by the last bits; numbers "
      "below the smallest normal one count as zeros.",
      &ProposeCubeRoot};
  return rule;
}
const Rule& LogOfOneMoreRule() {
  static constexpr Rule rule = {
      "log-plus-one",
      "Rewrites log(1 + x), but not of doubles, as the logarithm of the "
      "rounded sum and a quotient for what was rounded, which "
      "xla_cpu_enable_fast_math undoes. Floats round differently, by the last "
      "bits.",
      &ProposeLogOfOneMore};
  return rule;
}
const Rule& OverRootRule() {
  static constexpr Rule rule = {
      "over-root",
      "Rewrites a reciprocal square root, or a quotient by a square root, as a "
      "quotient that XLA does not make a reciprocal square root of. Floats "
      "round differently, by the last bits.",
      &ProposeOverRoot};
  return rule;
}
}  // namespace hloenv
