// SPDX-License-Identifier: Apache-2.0
// What the rules of math-forms share, which are in several files.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape.h"

namespace hloenv {

using Arrays = absl::Span<xla::HloInstruction* const>;
using OfOperands = std::function<xla::HloInstruction*(Arrays, Elementwise&)>;

// Whether a function of floats may be written as arithmetic, which may be
// computed once for each reader, and rounded differently.
bool IsFunctionOfFloats(const xla::HloInstruction& root, RuleContext& context);
// A number, also broadcast; nothing for others.
std::optional<double> ConstantOf(const xla::HloInstruction& array);

// Arithmetic on doubles of one shape.
class DoubleMath {
 public:
  explicit DoubleMath(Elementwise& build) : build_(build) {}

  xla::HloInstruction* Sum(xla::HloInstruction* x, xla::HloInstruction* y) {
    return build_.Binary(xla::HloOpcode::kAdd, x, y);
  }
  xla::HloInstruction* Less(xla::HloInstruction* x, xla::HloInstruction* y) {
    return build_.Binary(xla::HloOpcode::kSubtract, x, y);
  }
  xla::HloInstruction* Times(xla::HloInstruction* x, xla::HloInstruction* y) {
    return build_.Binary(xla::HloOpcode::kMultiply, x, y);
  }
  xla::HloInstruction* Times(xla::HloInstruction* x, double y) {
    return Times(x, build_.Number(y));
  }

 private:
  Elementwise& build_;
};

// The sum of coefficients[i] * z^i.
xla::HloInstruction* Polynomial(absl::Span<const double> coefficients,
                                xla::HloInstruction* z, Elementwise& build);
// Sine, cosine or tangent of an angle of `quadrant` quarters of a turn and a
// rest, whose sine and cosine are given.
xla::HloInstruction* OfQuadrant(xla::HloOpcode function,
                                xla::HloInstruction* quadrant,
                                xla::HloInstruction* sine,
                                xla::HloInstruction* cosine,
                                Elementwise& build);
// One function of arrays where `is_fast` holds for all elements, which is
// tested when it runs, and another one otherwise. Operands without
// dimensions are broadcast in each, rather than written to memory.
absl::StatusOr<xla::HloInstruction*> WhereAll(xla::HloInstruction* is_fast,
                                              Arrays operands,
                                              const OfOperands& fast,
                                              const OfOperands& any);
// An array or, of one without dimensions, its broadcast to `shape`.
xla::HloInstruction* Whole(xla::HloInstruction* x, const xla::Shape& shape);

// One of two by the sign of a number, also that of a zero.
xla::HloInstruction* IfNegative(xla::HloInstruction* number,
                                xla::HloInstruction* then,
                                xla::HloInstruction* otherwise,
                                Elementwise& build);

// x^y of numbers of 32 bits or fewer.
xla::HloInstruction* BuildNarrowPower(xla::HloInstruction* x,
                                      xla::HloInstruction* y,
                                      Elementwise& build);

// Sine, cosine or tangent of doubles: fast below 2^20.
absl::StatusOr<xla::HloInstruction*> BuildDoublePeriodic(
    xla::HloOpcode function, xla::HloInstruction* x);
// atan(t) of doubles up to tan(pi / 8), and `base` more, a double and what it
// lacks.
xla::HloInstruction* DoubleArcTangent(xla::HloInstruction* t,
                                      xla::HloInstruction* base,
                                      xla::HloInstruction* base_rest,
                                      Elementwise& build);
// The error function of doubles.
xla::HloInstruction* BuildDoubleErf(xla::HloInstruction* x, Elementwise& build);
// The remainder of doubles, exact where quotients are below kMaxDoubleQuotient
// and the divisor is at least kMinDivisor: a half of it is a normal number.
inline constexpr double kMaxDoubleQuotient = 0x1p26;
inline constexpr double kMinDivisor = 0x1p-900;
xla::HloInstruction* DoubleRemainder(xla::HloInstruction* x,
                                     xla::HloInstruction* y,
                                     Elementwise& build);

// A remainder of doubles, where the quotient may be one too many or too few, as
// XLA's simplifier makes it by multiplying by the inverse of a constant.
xla::HloInstruction* CorrectedRest(xla::HloInstruction* rest,
                                   xla::HloInstruction* dividend,
                                   xla::HloInstruction* divisor,
                                   Elementwise& build);

const Rule& CubeRootRule();      // float_math.cc
const Rule& LogOfOneMoreRule();  // float_math.cc
const Rule& OverRootRule();      // float_math.cc
const Rule& WidenedRule();       // float_math.cc
const Rule& TriangularRule();    // lapack_calls.cc
const Rule& CholeskyRule();      // lapack_calls.cc
const Rule& LuRule();            // lapack_calls.cc

}  // namespace hloenv
