// SPDX-License-Identifier: Apache-2.0
// Proposes arithmetic for functions that XLA's CPU backend computes by a call
// of the C library for each element: sine, cosine and tangent, the angle of a
// point (atan2, of which jax makes the inverse functions), the remainder of a
// division, powers with some exponents, and erf of doubles. Narrow numbers in
// double precision, where it is exact or has bits to spare, so that LLVM uses
// vectors; doubles with what they have no bits for in a second one
// (double_math.cc). For example
//
//   s = f32[1000] sine(x)
//
// becomes, with numbers c[i] of 28 bits whose sum is 2 / pi,
//
//   p[i] = double(x) * c[i], less the nearest multiple of 4; each is exact
//   n = round(p[0] + ... + p[6])
//   r = (p[0] + ... + p[6] - n) * pi / 2
//   s = float(n is odd ? cos(r) : sin(r), negated if n mod 4 is 2 or 3)
//
// with polynomials for sin(r) and cos(r).
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "passes/proposals/general_passes.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/math_rules.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::ComparisonDirection;
using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Of 2 / pi: 28 bits each, from the first on. The last covers the largest
// number of 32 bits, 2^128, with 60 bits more.
constexpr double kTwoOverPi[] = {
    0x1.45f306cp-1,   0x1.c9c882ap-29,  0x1.4fe13a8p-59, 0x1.f47d4d0p-86,
    0x1.bb81b6cp-113, 0x1.4acc9e0p-143, 0x1.0e4107cp-170};
constexpr double kPi = 3.14159265358979323846;
// Of pi, less the double.
constexpr double kPiRest = 1.2246467991473532e-16;
// Of sin(r) / r and cos(r) in r^2: Taylor's, with an error of 2e-9 up to pi/4.
constexpr double kSine[] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040,
                            1.0 / 362880};
constexpr double kCosine[] = {1.0,        -1.0 / 2,    1.0 / 24,
                              -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};
// Of atan(v) / v in v^2: Chebyshev's, with an error of 3e-11 up to tan(pi/8).
constexpr double kArcTangent[] = {
    0.9999999999791235,   -0.33333332127608084, 0.19999885877408158,
    -0.1428163866204129,  0.11041046684565024,  -0.08459066511268877,
    0.047129068012516304,
};
constexpr double kTangentOfEighth = 0.41421356237309503;
// Below, sine and tangent differ from their argument by less than a rounding.
constexpr float kSmall = 0x1p-12f;
// Quotients below have so few bits that a double tells them from the next
// integer, and that their product with the divisor is exact.
constexpr double kMaxQuotient = 0x1p28;
// Of exponents, in quarters; of doubles, which lose a bit with each doubling.
constexpr int64_t kMaxQuarters = 4 * 16;
constexpr int64_t kMaxQuartersOfDoubles = 4 * 8;

// An angle as a multiple n of pi / 2 and a rest of pi / 4 at most.
struct Reduced {
  HloInstruction* quadrant;  // n, or an integer that differs by one of 4
  HloInstruction* rest;
};

Reduced ReducedAngle(HloInstruction* x, Elementwise& build) {
  HloInstruction* wide = build.Convert(x, xla::F64);
  HloInstruction* four = build.Number(4.0);
  std::vector<HloInstruction*> parts;
  for (const double each : kTwoOverPi) {
    HloInstruction* product =
        build.Binary(HloOpcode::kMultiply, wide, build.Number(each));
    HloInstruction* turns = build.Unary(
        HloOpcode::kRoundNearestEven,
        build.Binary(HloOpcode::kMultiply, product, build.Number(0.25)));
    parts.push_back(
        build.Binary(HloOpcode::kSubtract, product,
                     build.Binary(HloOpcode::kMultiply, turns, four)));
  }
  HloInstruction* small = parts.back();
  for (size_t i = parts.size() - 1; i-- > 1;) {
    small = build.Binary(HloOpcode::kAdd, parts[i], small);
  }
  HloInstruction* quadrant =
      build.Unary(HloOpcode::kRoundNearestEven,
                  build.Binary(HloOpcode::kAdd, parts[0], small));
  // The large part first: that difference is exact.
  HloInstruction* rest = build.Binary(
      HloOpcode::kAdd, build.Binary(HloOpcode::kSubtract, parts[0], quadrant),
      small);
  return {quadrant,
          build.Binary(HloOpcode::kMultiply, rest, build.Number(kPi / 2))};
}

HloInstruction* BuildPeriodic(HloOpcode function, HloInstruction* x,
                              Elementwise& build) {
  const auto [quadrant, rest] = ReducedAngle(x, build);
  HloInstruction* square = build.Binary(HloOpcode::kMultiply, rest, rest);
  HloInstruction* sine = build.Binary(HloOpcode::kMultiply, rest,
                                      Polynomial(kSine, square, build));
  HloInstruction* cosine = Polynomial(kCosine, square, build);
  const xla::PrimitiveType type = x->shape().element_type();
  HloInstruction* value =
      build.Convert(OfQuadrant(function, quadrant, sine, cosine, build), type);
  if (function == HloOpcode::kCos) return value;
  // Also keeps the sign of a zero, and numbers below the smallest normal one.
  HloInstruction* small = build.Convert(build.Constant(kSmall), type);
  return build.Select(ComparisonDirection::kLt, build.Unary(HloOpcode::kAbs, x),
                      small, x, value);
}

// The angle of the point (x, y).
HloInstruction* BuildAngle(HloInstruction* y, HloInstruction* x,
                           Elementwise& build) {
  const xla::PrimitiveType type = x->shape().element_type();
  const auto magnitude = [&](HloInstruction* number) {
    return build.Unary(HloOpcode::kAbs, build.Convert(number, xla::F64));
  };
  HloInstruction* height = magnitude(y);
  HloInstruction* width = magnitude(x);
  HloInstruction* larger = build.Binary(HloOpcode::kMaximum, height, width);
  HloInstruction* smaller = build.Binary(HloOpcode::kMinimum, height, width);
  HloInstruction* zero = build.Number(0.0);
  HloInstruction* one = build.Number(1.0);
  HloInstruction* slope = build.Binary(HloOpcode::kDivide, smaller, larger);
  // Of two infinite numbers, and of two zeros.
  slope = build.Select(ComparisonDirection::kEq, height, width, one, slope);
  slope = build.Select(ComparisonDirection::kEq, larger, zero, zero, slope);
  const auto if_steep = [&](HloInstruction* steep, HloInstruction* flat) {
    return build.Select(ComparisonDirection::kGt, slope,
                        build.Number(kTangentOfEighth), steep, flat);
  };
  HloInstruction* turned = build.Binary(
      HloOpcode::kDivide, build.Binary(HloOpcode::kSubtract, slope, one),
      build.Binary(HloOpcode::kAdd, slope, one));
  HloInstruction* tangent = if_steep(turned, slope);
  const bool is_double = type == xla::F64;
  HloInstruction* base = if_steep(build.Number(kPi / 4), zero);
  HloInstruction* angle;
  if (is_double) {
    HloInstruction* base_rest = if_steep(build.Number(kPiRest / 4), zero);
    angle = DoubleArcTangent(tangent, base, base_rest, build);
  } else {
    HloInstruction* square =
        build.Binary(HloOpcode::kMultiply, tangent, tangent);
    angle = build.Binary(HloOpcode::kMultiply, tangent,
                         Polynomial(kArcTangent, square, build));
    angle = build.Binary(HloOpcode::kAdd, angle, base);
  }
  // A half of a turn, or a quarter, less the angle.
  const auto from = [&](double share) {
    HloInstruction* turn = build.Number(kPi * share);
    if (!is_double) return build.Binary(HloOpcode::kSubtract, turn, angle);
    HloInstruction* rest = build.Binary(HloOpcode::kSubtract, angle,
                                        build.Number(kPiRest * share));
    return build.Binary(HloOpcode::kSubtract, turn, rest);
  };
  angle =
      build.Select(ComparisonDirection::kGt, height, width, from(0.5), angle);
  angle = IfNegative(x, from(1.0), angle, build);
  angle = IfNegative(y, build.Unary(HloOpcode::kNegate, angle), angle, build);
  return build.Convert(angle, type);
}

// The remainder, if the quotient is below kMaxQuotient.
HloInstruction* ExactRemainder(HloInstruction* x, HloInstruction* y,
                               Elementwise& build) {
  HloInstruction* dividend = build.Convert(x, xla::F64);
  HloInstruction* divisor = build.Convert(y, xla::F64);
  HloInstruction* quotient =
      build.Binary(HloOpcode::kDivide, dividend, divisor);
  HloInstruction* zero = build.Number(0.0);
  HloInstruction* whole =
      build.Select(ComparisonDirection::kLt, quotient, zero,
                   build.Unary(HloOpcode::kCeil, quotient),
                   build.Unary(HloOpcode::kFloor, quotient));
  HloInstruction* rest =
      build.Binary(HloOpcode::kSubtract, dividend,
                   build.Binary(HloOpcode::kMultiply, whole, divisor));
  return build.Convert(CorrectedRest(rest, dividend, divisor, build),
                       x->shape().element_type());
}

absl::StatusOr<HloInstruction*> BuildRemainder(HloInstruction* x,
                                               HloInstruction* y) {
  const xla::Shape& shape = x->shape();
  const bool is_double = shape.element_type() == xla::F64;
  // All quotients are small, or the C library's function is called for all.
  Elementwise build(x->parent(), shape);
  const auto magnitude = [&](HloInstruction* number) {
    return build.Unary(HloOpcode::kAbs, build.Convert(number, xla::F64));
  };
  HloInstruction* limit =
      build.Binary(HloOpcode::kMultiply, magnitude(Whole(y, shape)),
                   build.Number(is_double ? kMaxDoubleQuotient : kMaxQuotient));
  HloInstruction* is_small =
      build.Compare(ComparisonDirection::kLt, magnitude(x), limit);
  HloInstruction* infinity =
      build.Number(std::numeric_limits<double>::infinity());
  HloInstruction* is_fast =
      build.Binary(HloOpcode::kAnd, is_small,
                   build.Compare(ComparisonDirection::kLt, limit, infinity));
  if (is_double) {
    HloInstruction* least = build.Number(kMinDivisor * kMaxDoubleQuotient);
    is_fast =
        build.Binary(HloOpcode::kAnd, is_fast,
                     build.Compare(ComparisonDirection::kGe, limit, least));
  }
  // XLA would multiply by the inverse of a constant, which is not exact.
  return WhereAll(
      is_fast, {x, BarrierOf(y)},
      [is_double](Arrays of, Elementwise& in) {
        return is_double ? DoubleRemainder(of[0], of[1], in)
                         : ExactRemainder(of[0], of[1], in);
      },
      [](Arrays of, Elementwise& in) {
        // Without a barrier XLA makes a selection, and computes both where it
        // does not fuse that with all that reads it.
        return in.Binary(HloOpcode::kRemainder, BarrierOf(of[0]), of[1]);
      });
}

// x to the power of a number of quarters, other than 0.
HloInstruction* BuildPower(HloInstruction* x, int64_t quarters,
                           Elementwise& build) {
  const int64_t count = std::abs(quarters);
  const bool is_whole = count % 4 == 0;
  HloInstruction* base = build.Convert(x, xla::F64);
  HloInstruction* zero = build.Number(0.0);
  if (!is_whole) {  // of which the power of a negative zero is positive
    base = build.Select(ComparisonDirection::kEq, base, zero, zero, base);
  }
  HloInstruction* power = nullptr;
  const auto multiply = [&](HloInstruction* factor) {
    power = power == nullptr
                ? factor
                : build.Binary(HloOpcode::kMultiply, power, factor);
  };
  HloInstruction* square = base;
  for (int64_t left = count / 4; left > 0; left /= 2) {
    if (left % 2 == 1) multiply(square);
    if (left > 1) square = build.Binary(HloOpcode::kMultiply, square, square);
  }
  if (!is_whole) {
    HloInstruction* root = build.Unary(HloOpcode::kSqrt, base);
    if (count % 4 >= 2) multiply(root);
    if (count % 2 == 1) multiply(build.Unary(HloOpcode::kSqrt, root));
    // The only negative number that has one.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    power =
        build.Select(ComparisonDirection::kEq, base, build.Number(-kInfinity),
                     build.Number(kInfinity), power);
  }
  if (quarters < 0) {
    power = build.Binary(HloOpcode::kDivide, build.Number(1.0), power);
  }
  return build.Convert(power, x->shape().element_type());
}

// Whether a power is one that XLA's simplifier has a form of its own for.
bool IsCommon(double exponent) {
  return exponent == 0 || std::abs(exponent) == 0.5 ||
         std::abs(exponent) == 1 || exponent == 2 || exponent == 3;
}

// An exponent in quarters; nothing if it has none, or too many.
std::optional<int64_t> QuartersOf(double exponent, xla::PrimitiveType type) {
  const int64_t limit = type == xla::F64 ? kMaxQuartersOfDoubles : kMaxQuarters;
  const double quarters = 4 * exponent;
  if (!(std::abs(quarters) <= limit) || quarters != std::floor(quarters)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(quarters);
}

// Whether operand and result of a branch, which are in memory, fit beside what
// the computation is given and makes.
bool MayBeWritten(const HloInstruction& root) {
  double others = 0;
  const auto count = [&](const HloInstruction& value) {
    xla::ShapeUtil::ForEachLeafShape(
        value.shape(), [&](const xla::Shape& leaf, const xla::ShapeIndex&) {
          if (!leaf.IsArray()) return;
          others += static_cast<double>(xla::ShapeUtil::ElementsIn(leaf));
        });
  };
  for (const HloInstruction* each : root.parent()->parameter_instructions()) {
    count(*each);
  }
  count(*root.parent()->root_instruction());
  return FitsBeside(
      2 * static_cast<double>(xla::ShapeUtil::ElementsIn(root.shape())),
      others);
}

const Rule& PeriodicRule();
const Rule& AngleRule();
const Rule& ErfRule();
const Rule& PowerRule();
const Rule& QuotientRule();
const Rule& RemainderRule();

void ProposePeriodic(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  const HloOpcode function = root.opcode();
  if ((function != HloOpcode::kSin && function != HloOpcode::kCos &&
       function != HloOpcode::kTan) ||
      !IsFunctionOfFloats(root, context)) {
    return;
  }
  // Those of narrow numbers have no branches.
  const bool has_branches = root.shape().element_type() == xla::F64;
  if (has_branches && !MayBeWritten(root)) return;
  Propose(
      PeriodicRule(), root, {root.operand(0)},
      [function, &root](Arrays x) -> absl::StatusOr<HloInstruction*> {
        if (root.shape().element_type() == xla::F64) {
          return BuildDoublePeriodic(function, x[0]);
        }
        Elementwise build(x[0]->parent(), root.shape());
        return BuildPeriodic(function, x[0], build);
      },
      proposals);
}

void ProposeAngle(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kAtan2 || !IsFunctionOfFloats(root, context))
    return;
  Propose(
      AngleRule(), root, {root.operand(0), root.operand(1)},
      [&root](absl::Span<HloInstruction* const> x) {
        Elementwise build(x[0]->parent(), root.shape());
        return BuildAngle(x[0], x[1], build);
      },
      proposals);
}

void ProposeErf(const HloInstruction& root, RuleContext& context,
                std::vector<Proposal>& proposals) {
  // XLA has arithmetic for those of narrow numbers.
  if (root.opcode() != HloOpcode::kErf ||
      root.shape().element_type() != xla::F64 ||
      !IsFunctionOfFloats(root, context)) {
    return;
  }
  Propose(
      ErfRule(), root, {root.operand(0)},
      [&root](Arrays x) {
        Elementwise build(x[0]->parent(), root.shape());
        return BuildDoubleErf(x[0], build);
      },
      proposals);
}

// Known as 1, 2, 4, ...: LLVM computes such remainders without a call.
bool IsWholePowerOfTwo(const KnownValue& divisor) {
  if (divisor.literal == nullptr ||
      !xla::ShapeUtil::IsScalar(divisor.literal->shape())) {
    return false;
  }
  const double number = NumberOf(*divisor.literal);
  int exponent;
  return number >= 1.0 && std::frexp(number, &exponent) == 0.5;
}

void ProposeRemainder(const HloInstruction& root, RuleContext& context,
                      std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kRemainder ||
      !IsFunctionOfFloats(root, context) || !MayBeWritten(root)) {
    return;
  }
  if (IsWholePowerOfTwo(context.Known(*root.operand(1)))) return;
  const HloInstruction* divisor = root.operand(1);
  // A number is broadcast in each branch, rather than written to memory.
  if (divisor->opcode() == HloOpcode::kBroadcast &&
      divisor->operand(0)->shape().dimensions().empty()) {
    divisor = divisor->operand(0);
  }
  Propose(
      RemainderRule(), root, {root.operand(0), divisor},
      [](absl::Span<HloInstruction* const> x) {
        return BuildRemainder(x[0], x[1]);
      },
      proposals);
}

void ProposePower(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kPower || !IsFunctionOfFloats(root, context))
    return;
  const xla::PrimitiveType type = root.shape().element_type();
  const std::optional<double> exponent = ConstantOf(*root.operand(1));
  if (exponent.has_value() && IsCommon(*exponent)) return;
  const std::optional<int64_t> quarters =
      exponent.has_value() ? QuartersOf(*exponent, type) : std::nullopt;
  if (!quarters.has_value() && type == xla::F64) return;
  std::vector<const HloInstruction*> reads = {root.operand(0)};
  if (!quarters.has_value()) reads.push_back(root.operand(1));
  Propose(
      PowerRule(), root, std::move(reads),
      [quarters, &root](absl::Span<HloInstruction* const> x) {
        Elementwise build(x[0]->parent(), root.shape());
        return quarters.has_value() ? BuildPower(x[0], *quarters, build)
                                    : BuildNarrowPower(x[0], x[1], build);
      },
      proposals);
}

// Of integers of 32 bits, whose quotients doubles have bits for. A half more is
// in the same quotient, and is so, too, where XLA multiplies by the inverse of
// a divisor that it finds to be constant.
HloInstruction* BuildQuotient(const HloInstruction& root, Arrays x,
                              Elementwise& build) {
  const xla::PrimitiveType type = root.shape().element_type();
  HloInstruction* zero = build.Convert(build.Constant<int32_t>(0), type);
  HloInstruction* half = build.Number(0.5);
  if (type == xla::S32) {
    half = build.Select(ComparisonDirection::kLt, x[0], zero,
                        build.Number(-0.5), half);
  }
  HloInstruction* quotient = build.Convert(
      build.Binary(
          HloOpcode::kDivide,
          build.Binary(HloOpcode::kAdd, build.Convert(x[0], xla::F64), half),
          build.Convert(x[1], xla::F64)),
      type);
  HloInstruction* ones = build.Convert(build.Constant<int32_t>(-1), type);
  if (type == xla::S32) {  // of the smallest number, too
    quotient = build.Select(ComparisonDirection::kEq, x[1], ones,
                            build.Unary(HloOpcode::kNegate, x[0]), quotient);
  }
  if (root.opcode() == HloOpcode::kDivide) {
    return build.Select(ComparisonDirection::kEq, x[1], zero, ones, quotient);
  }
  return build.Binary(HloOpcode::kSubtract, x[0],
                      build.Binary(HloOpcode::kMultiply, quotient, x[1]));
}

void ProposeQuotient(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  const xla::PrimitiveType type = root.shape().element_type();
  const bool is_meant = root.opcode() == HloOpcode::kDivide ||
                        root.opcode() == HloOpcode::kRemainder;
  if (!is_meant || (type != xla::S32 && type != xla::U32) || !IsPlain(root) ||
      xla::ShapeUtil::IsZeroElementArray(root.shape())) {
    return;
  }
  // LLVM multiplies by the inverse of a constant, in vectors.
  if (context.Known(*root.operand(1)).is_fixed) return;
  Propose(
      QuotientRule(), root, {root.operand(0), root.operand(1)},
      [&root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        Elementwise build(x[0]->parent(), root.shape());
        return BuildQuotient(root, x, build);
      },
      proposals);
}

const Rule& PeriodicRule() {
  static constexpr Rule rule = {
      "periodic",
      "Rewrites a sine, cosine or tangent as a reduction of the angle and "
      "polynomials, in double precision; of doubles where all are below 2^20, "
      "which is tested when it runs. Floats round differently, by the last "
      "bits.",
      &ProposePeriodic};
  return rule;
}
const Rule& AngleRule() {
  static constexpr Rule rule = {
      "angle",
      "Rewrites atan2 as a division and a polynomial, in double precision. "
      "Floats round differently, by the last bits; numbers below the smallest "
      "normal one count as zeros.",
      &ProposeAngle};
  return rule;
}
const Rule& ErfRule() {
  static constexpr Rule rule = {
      "erf",
      "Rewrites an error function of doubles as polynomials and an "
      "exponential. Floats round differently, by the last bits.",
      &ProposeErf};
  return rule;
}
const Rule& PowerRule() {
  static constexpr Rule rule = {
      "power",
      "Rewrites a power whose exponent is a number of quarters, of up to 16 (8 "
      "for doubles), as products and square roots, in double precision; of "
      "other exponents, but not of doubles, by logarithms in double precision. "
      "Floats round differently, by the last bits; numbers below the smallest "
      "normal one count as zeros; negative powers of doubles above 4e307 are "
      "infinite.",
      &ProposePower};
  return rule;
}
const Rule& RemainderRule() {
  static constexpr Rule rule = {
      "remainder",
      "Rewrites a remainder as arithmetic in double precision, where all "
      "quotients are below 2^28 (2^26 of doubles), which is tested when it "
      "runs: with one that is not, or is no number, it stays a remainder. "
      "Exact.",
      &ProposeRemainder};
  return rule;
}

const Rule& QuotientRule() {
  static constexpr Rule rule = {
      "quotient",
      "Rewrites a quotient or remainder of integers of 32 bits as one of "
      "doubles. Exact.",
      &ProposeQuotient};
  return rule;
}

absl::Span<const Rule> MathFormRules() {
  static const auto* rules = new std::vector<Rule>{
      AngleRule(),        CholeskyRule(), CubeRootRule(),  ErfRule(),
      LogOfOneMoreRule(), LuRule(),       OverRootRule(),  PeriodicRule(),
      PowerRule(),        QuotientRule(), RemainderRule(), TriangularRule(),
      WidenedRule()};
  return *rules;
}

}  // namespace

PassInfo MathFormsPass() {
  return RulePass(
      "math-forms", "hloenv::MathForms",
      "Proposes arithmetic, of which LLVM makes vectors, for functions that "
      "XLA's CPU backend computes by a call of the C library for each element: "
      "sine, cosine, tangent, atan2, remainder, powers, cube roots, erf of "
      "doubles; for quotients of integers, of which it has no vectors; for "
      "reciprocal square roots, log(1 + x) and functions of float16, which it "
      "computes slowly; and for triangular systems and factors of many tiny "
      "matrices, for each of which jax calls LAPACK. Run it before layout "
      "assignment.",
      MathFormRules(), [](const Options& options) {
        return MakeRulePass("math-forms", MathFormRules(), options);
      });
}

}  // namespace hloenv
