// SPDX-License-Identifier: Apache-2.0
// Integers in the order of numbers, for rules that compare many numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/literal.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {

// Instructions of a comparator or reducer up to which samples of numbers show
// what it does.
inline constexpr int64_t kMaxSampled = 64;

// Numbers of each kind that comparisons tell apart.
std::vector<xla::Literal> SampleNumbers(xla::PrimitiveType type);
// Not-a-number for a complex one.
double NumberOf(const xla::Literal& scalar);

// Whether the elements are their indices in `dimension`.
bool IsIota(const xla::HloInstruction& instruction, int64_t dimension);

// Adds elementwise instructions on arrays of one shape and layout.
class Elementwise {
 public:
  Elementwise(xla::HloComputation* computation, const xla::Shape& shape)
      : computation_(computation), shape_(shape) {}

  xla::Shape ShapeOf(xla::PrimitiveType type) const {
    return xla::ShapeUtil::ChangeElementType(shape_, type);
  }
  xla::HloInstruction* Add(std::unique_ptr<xla::HloInstruction> instruction) {
    return computation_->AddInstruction(std::move(instruction));
  }
  template <typename T>
  xla::HloInstruction* Constant(T number) {
    xla::HloInstruction* scalar = Add(xla::HloInstruction::CreateConstant(
        xla::LiteralUtil::CreateR0<T>(number)));
    return Add(xla::HloInstruction::CreateBroadcast(
        ShapeOf(scalar->shape().element_type()), scalar, {}));
  }
  // A double other than -0 and not-a-number, as one instruction for all uses.
  xla::HloInstruction* Number(double number) {
    const auto [found, is_new] = numbers_.try_emplace(number, nullptr);
    if (is_new) found->second = Constant(number);
    return found->second;
  }
  xla::HloInstruction* Iota(xla::PrimitiveType type, int64_t dimension) {
    return Add(xla::HloInstruction::CreateIota(ShapeOf(type), dimension));
  }
  xla::HloInstruction* Convert(xla::HloInstruction* x, xla::PrimitiveType type);
  // The bits of `x` as another type of the same size.
  xla::HloInstruction* Bits(xla::HloInstruction* x, xla::PrimitiveType type);
  xla::HloInstruction* Binary(xla::HloOpcode opcode, xla::HloInstruction* x,
                              xla::HloInstruction* y);
  xla::HloInstruction* Unary(xla::HloOpcode opcode, xla::HloInstruction* x);
  xla::HloInstruction* Not(xla::HloInstruction* x);
  xla::HloInstruction* Compare(xla::ComparisonDirection direction,
                               xla::HloInstruction* x, xla::HloInstruction* y);
  xla::HloInstruction* Where(xla::HloInstruction* predicate,
                             xla::HloInstruction* on_true,
                             xla::HloInstruction* on_false);
  // `Where` of a comparison.
  xla::HloInstruction* Select(xla::ComparisonDirection direction,
                              xla::HloInstruction* x, xla::HloInstruction* y,
                              xla::HloInstruction* on_true,
                              xla::HloInstruction* on_false);

 private:
  xla::HloComputation* computation_;
  xla::Shape shape_;
  std::map<double, xla::HloInstruction*> numbers_;
};

// The elements of a row-major array of fewer than 2^31 elements at `indices`,
// of 32 bits, of one dimension; these have its other dimensions.
xla::HloInstruction* TakenAlong(xla::HloInstruction* x,
                                xla::HloInstruction* indices,
                                int64_t dimension);

// Whether numbers have keys of up to 32 bits.
bool HasKeys(xla::PrimitiveType type);
// Integers of 32 bits, of as many as floats have, in the order in which a
// reduction prefers the numbers:
// the largest one is that of not-a-number, then of the largest or smallest
// number. Zeros have one key, and so have subnormal numbers, which are zeros to
// the backend's comparisons, unless the number is to be found from its key.
// Done with the bits, as XLA's simplifier ignores the sign of zeros, and of
// floats of 16 bits with their own: converted to 32 bits, those that were
// rounded from such would be compared as they were before
// (xla_allow_excess_precision).
xla::HloInstruction* KeyOf(xla::HloInstruction* x, bool is_max,
                           Elementwise& build, bool keeps_subnormal = false);

}  // namespace hloenv
