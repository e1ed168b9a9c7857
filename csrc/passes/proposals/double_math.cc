// SPDX-License-Identifier: Apache-2.0
// Functions of doubles as arithmetic, for math-forms. There is no wider type to
// compute in: where a double has not enough bits, the rest is in a second one.
#include <cstdint>

#include "passes/proposals/labelled.h"
#include "passes/proposals/math_rules.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {
namespace {

using xla::ComparisonDirection;
using xla::HloInstruction;
using xla::HloOpcode;

constexpr double kQuadrants = 0x1.45f306dc9c883p-1;
// pi / 2 in three parts. The first two have 31 and 32 bits, so that their
// products with up to 2^20 are exact.
constexpr double kHalfPi[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34,
                              0x1.3198a2e037073p-69};
constexpr double kMaxAngle = 0x1p20;
// Below, sine and tangent differ from their argument by less than a rounding.
constexpr double kSmallAngle = 0x1p-27;
// Of (sin(r) / r - 1) / r^2, (cos(r) - 1 + r^2 / 2) / r^4 up to pi / 4, and of
// (1 - atan(t) / t) / t^2 up to tan(pi / 8), in the square: Chebyshev's, with
// errors of 2e-17, 1e-18 and 1e-18.
constexpr double kSineOfDouble[] = {
    -0.16666666666666666,   0.008333333333330948,   -0.00019841269836756774,
    2.7557316101617874e-06, -2.505113165023518e-08, 1.5918115263265974e-10};
constexpr double kCosineOfDouble[] = {
    0.041666666666666664,    -0.0013888888888887398, 2.480158729876456e-05,
    -2.7557317271145144e-07, 2.087614614655861e-09,  -1.1382623647474604e-11};
constexpr double kArcTangentOfDouble[] = {
    0.3333333333333333,    -0.19999999999999804, 0.14285714285659779,
    -0.11111111105150588,  0.09090908753259112,  -0.07692296368042296,
    0.0666642476020052,    -0.05878927554473807, 0.05230443640686948,
    -0.045515447340221615, 0.03456931506332609,  -0.016284375050043393};
// Of erf(x) / x up to 1, in the square, with an error of 7e-18; and of
// exp(x^2) * erfc(x) from 1 to 6, in (x - 2) / (x + 2), with one of 2e-19.
constexpr double kErf[] = {
    1.1283791670955126,      -0.3761263890318375,     0.11283791670954879,
    -0.026866170645076792,   0.0052239776248180145,   -0.000854832698083379,
    0.0001205533111164271,   -1.4925595266831182e-05, 1.6461000484121368e-06,
    -1.6350312701054695e-07, 1.4659775274047436e-08,  -1.1372848856791674e-09,
    5.957176147748911e-11};
constexpr double kErfc[] = {
    0.25539567631050575,    -0.4271858474139584,    0.24165819424246646,
    -0.07897858101573213,   0.003732892404327764,   0.006997461739200444,
    -0.0008471432509203844, -0.000981977026567889,  4.355560219515472e-05,
    0.00017436116545392264, 2.7525480361206068e-05, -2.7579864674305787e-05,
    -1.396807230177146e-05, 1.392621183618803e-06,  3.789215643758464e-06,
    1.1780775215625583e-06, -5.322696855655786e-07, -4.215301054238321e-07};
// From here on, the error function of doubles is 1.
constexpr double kMaxErf = 6.0;
// Of a double's 52 bits, those that its product with 26 bits has room for.
constexpr uint64_t kUpperBits = ~uint64_t{0} << 27;

HloInstruction* PeriodicBelowLimit(HloOpcode function, HloInstruction* x,
                                   Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* turns =
      build.Unary(HloOpcode::kRoundNearestEven, in.Times(x, kQuadrants));
  // Exact, and exact but for `error`.
  HloInstruction* first = in.Less(x, in.Times(turns, kHalfPi[0]));
  HloInstruction* part = in.Times(turns, kHalfPi[1]);
  HloInstruction* second = in.Less(first, part);
  HloInstruction* taken = in.Less(second, first);
  HloInstruction* error =
      in.Less(in.Less(first, in.Less(second, taken)), in.Sum(part, taken));
  HloInstruction* low = in.Less(error, in.Times(turns, kHalfPi[2]));
  HloInstruction* rest = in.Sum(second, low);
  low = in.Sum(in.Less(second, rest), low);

  HloInstruction* square = in.Times(rest, rest);
  HloInstruction* half_square = in.Times(square, 0.5);
  // rest + low - low * rest^2 / 2 + rest^3 * polynomial
  HloInstruction* sine =
      in.Sum(rest, in.Sum(in.Less(low, in.Times(half_square, low)),
                          in.Times(in.Times(square, rest),
                                   Polynomial(kSineOfDouble, square, build))));
  // 1 - rest^2 / 2, and what is lost there, + rest^4 * polynomial - rest * low
  HloInstruction* one = build.Number(1.0);
  HloInstruction* large = in.Less(one, half_square);
  HloInstruction* lost = in.Less(in.Less(one, large), half_square);
  HloInstruction* small =
      in.Less(in.Times(in.Times(square, square),
                       Polynomial(kCosineOfDouble, square, build)),
              in.Times(rest, low));
  HloInstruction* cosine = in.Sum(large, in.Sum(lost, small));
  HloInstruction* value = OfQuadrant(function, turns, sine, cosine, build);
  if (function == HloOpcode::kCos) return value;
  // Also keeps the sign of a zero.
  return build.Select(ComparisonDirection::kLt, build.Unary(HloOpcode::kAbs, x),
                      build.Number(kSmallAngle), x, value);
}

}  // namespace

absl::StatusOr<HloInstruction*> BuildDoublePeriodic(HloOpcode function,
                                                    HloInstruction* x) {
  Elementwise build(x->parent(), x->shape());
  HloInstruction* is_small =
      build.Compare(ComparisonDirection::kLt, build.Unary(HloOpcode::kAbs, x),
                    build.Number(kMaxAngle));
  return WhereAll(
      is_small, {x},
      [function](Arrays of, Elementwise& in) {
        return PeriodicBelowLimit(function, of[0], in);
      },
      [function](Arrays of, Elementwise& in) {
        // Of branches without a barrier XLA makes a selection, and computes
        // both.
        return in.Unary(function, BarrierOf(of[0]));
      });
}

HloInstruction* DoubleArcTangent(HloInstruction* t, HloInstruction* base,
                                 HloInstruction* base_rest,
                                 Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* square = in.Times(t, t);
  HloInstruction* small = in.Times(
      in.Times(t, square), Polynomial(kArcTangentOfDouble, square, build));
  return in.Sum(base, in.Sum(in.Less(base_rest, small), t));
}

HloInstruction* BuildDoubleErf(HloInstruction* x, Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* near = in.Times(x, Polynomial(kErf, in.Times(x, x), build));
  HloInstruction* size = build.Unary(HloOpcode::kAbs, x);
  HloInstruction* one = build.Number(1.0);
  HloInstruction* two = build.Number(2.0);
  HloInstruction* limited =
      build.Binary(HloOpcode::kMinimum, size, build.Number(kMaxErf));
  HloInstruction* place = build.Binary(
      HloOpcode::kDivide, in.Less(limited, two), in.Sum(limited, two));
  HloInstruction* decay =
      build.Unary(HloOpcode::kExp,
                  build.Unary(HloOpcode::kNegate, in.Times(limited, limited)));
  HloInstruction* far =
      in.Less(one, in.Times(decay, Polynomial(kErfc, place, build)));
  far = build.Select(ComparisonDirection::kLt, x, build.Number(0.0),
                     build.Unary(HloOpcode::kNegate, far), far);
  return build.Select(ComparisonDirection::kLt, size, one, near, far);
}

HloInstruction* DoubleRemainder(HloInstruction* x, HloInstruction* y,
                                Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* zero = build.Number(0.0);
  HloInstruction* quotient = build.Binary(HloOpcode::kDivide, x, y);
  HloInstruction* whole =
      build.Select(ComparisonDirection::kLt, quotient, zero,
                   build.Unary(HloOpcode::kCeil, quotient),
                   build.Unary(HloOpcode::kFloor, quotient));
  // The products with both halves of the divisor are exact, and so are the
  // differences, as they are small.
  HloInstruction* upper =
      build.Bits(build.Binary(HloOpcode::kAnd, build.Bits(y, xla::U64),
                              build.Constant<uint64_t>(kUpperBits)),
                 xla::F64);
  HloInstruction* rest = in.Less(in.Less(x, in.Times(whole, upper)),
                                 in.Times(whole, in.Less(y, upper)));
  return CorrectedRest(rest, x, y, build);
}

HloInstruction* CorrectedRest(HloInstruction* rest, HloInstruction* dividend,
                              HloInstruction* divisor, Elementwise& build) {
  DoubleMath in(build);
  HloInstruction* zero = build.Number(0.0);
  const auto signed_as_dividend = [&](HloInstruction* number) {
    return build.Select(ComparisonDirection::kLt, dividend, zero,
                        build.Unary(HloOpcode::kNegate, number), number);
  };
  HloInstruction* size = build.Unary(HloOpcode::kAbs, divisor);
  HloInstruction* one = signed_as_dividend(size);
  HloInstruction* place = signed_as_dividend(rest);
  HloInstruction* found =
      build.Select(ComparisonDirection::kLt, place, zero, in.Sum(rest, one),
                   build.Select(ComparisonDirection::kGe, place, size,
                                in.Less(rest, one), rest));
  // A zero has the sign of the dividend.
  return build.Select(ComparisonDirection::kEq, found, zero,
                      in.Times(dividend, zero), found);
}

}  // namespace hloenv
