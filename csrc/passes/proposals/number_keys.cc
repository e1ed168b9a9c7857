// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/number_keys.h"

#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Literal;

// Of the bits of a float, those of infinity, and the smallest ones that are
// told apart from zero.
template <typename Bits>
HloInstruction* FloatKey(HloInstruction* bits, Bits infinity, Bits smallest,
                         bool is_max, Elementwise& build) {
  HloInstruction* zero = build.Constant<Bits>(0);
  HloInstruction* most = build.Constant<Bits>(std::numeric_limits<Bits>::max());
  HloInstruction* magnitude = build.Binary(HloOpcode::kAnd, bits, most);
  HloInstruction* key = build.Select(xla::ComparisonDirection::kLt, bits, zero,
                                     build.Not(magnitude), bits);
  key = build.Select(xla::ComparisonDirection::kLt, magnitude,
                     build.Constant<Bits>(smallest), zero, key);
  if (!is_max) key = build.Not(key);
  return build.Select(xla::ComparisonDirection::kGt, magnitude,
                      build.Constant<Bits>(infinity), most, key);
}

// Those with the two least and the two largest payloads, of each sign.
template <typename Bits>
void AddNans(xla::PrimitiveType type, Bits infinity,
             std::vector<Literal>& samples) {
  const xla::Shape scalar = xla::ShapeUtil::MakeShape(type, {});
  for (const Bits sign : {Bits{0}, std::numeric_limits<Bits>::min()}) {
    constexpr Bits kMax = std::numeric_limits<Bits>::max();
    for (const Bits bits :
         {static_cast<Bits>(infinity + 1), static_cast<Bits>(infinity + 2),
          static_cast<Bits>(kMax - 1), kMax}) {
      const auto signed_bits = static_cast<Bits>(bits | sign);
      samples.push_back(xla::LiteralUtil::CreateR0(signed_bits)
                            .BitcastConvert(scalar)
                            .value());
    }
  }
}

}  // namespace

std::vector<Literal> SampleNumbers(xla::PrimitiveType type) {
  std::vector<Literal> samples;
  const auto add = [&](auto number) {
    samples.push_back(xla::LiteralUtil::CreateR0(number).Convert(type).value());
  };
  if (xla::primitive_util::IsFloatingPointType(type)) {
    for (const float each : {-2.f, -0.f, 0.f, 1.f}) add(each);
    add(-std::numeric_limits<float>::infinity());
    add(std::numeric_limits<float>::infinity());
    add(std::numeric_limits<float>::quiet_NaN());
    add(-std::numeric_limits<float>::quiet_NaN());
    switch (type) {
      case xla::F16:
        AddNans<int16_t>(type, 0x7c00, samples);
        break;
      case xla::BF16:
        AddNans<int16_t>(type, 0x7f80, samples);
        break;
      case xla::F32:
        AddNans<int32_t>(type, 0x7f800000, samples);
        break;
      case xla::F64:
        AddNans<int64_t>(type, 0x7ff0000000000000, samples);
        break;
      default:
        break;
    }
  } else {
    for (const int32_t each : {0, 1, 5, 9}) add(each);
    if (xla::primitive_util::IsSignedIntegralType(type)) {
      for (const int32_t each : {-1, -2}) add(each);
    }
  }
  return samples;
}

double NumberOf(const Literal& scalar) {
  const absl::StatusOr<Literal> number = scalar.Convert(xla::F64);
  return number.ok() ? number->Get<double>({})
                     : std::numeric_limits<double>::quiet_NaN();
}

bool IsIota(const HloInstruction& instruction, int64_t dimension) {
  if (const auto* iota = xla::DynCast<xla::HloIotaInstruction>(&instruction)) {
    return iota->iota_dimension() == dimension;
  }
  return instruction.opcode() == HloOpcode::kBroadcast &&
         instruction.operand(0)->opcode() == HloOpcode::kIota &&
         absl::c_equal(instruction.dimensions(),
                       std::vector<int64_t>{dimension});
}

bool HasKeys(xla::PrimitiveType type) {
  switch (type) {
    case xla::F32:
    case xla::F16:
    case xla::BF16:
    case xla::S32:
    case xla::S16:
    case xla::S8:
    case xla::U16:
    case xla::U8:
      return true;
    default:
      return false;
  }
}

HloInstruction* Elementwise::Convert(HloInstruction* x,
                                     xla::PrimitiveType type) {
  if (x->shape().element_type() == type) return x;
  return Add(HloInstruction::CreateConvert(ShapeOf(type), x));
}

HloInstruction* Elementwise::Bits(HloInstruction* x, xla::PrimitiveType type) {
  return Add(HloInstruction::CreateBitcastConvert(ShapeOf(type), x));
}

// GCC leaves the upper bits of an opcode undefined that a function passes on,
// where they are those of a constant of 8 bits; XLA's code, compiled by clang,
// reads them. Not for opcodes from kTriangularSolve (128) on, such as kXor.
HloInstruction* Elementwise::Binary(HloOpcode opcode, HloInstruction* x,
                                    HloInstruction* y) {
  return Add(HloInstruction::CreateBinary(ShapeOf(x->shape().element_type()),
                                          opcode, x, y));
}

HloInstruction* Elementwise::Unary(HloOpcode opcode, HloInstruction* x) {
  return Add(HloInstruction::CreateUnary(x->shape(), opcode, x));
}

HloInstruction* Elementwise::Not(HloInstruction* x) {
  return Unary(HloOpcode::kNot, x);
}

HloInstruction* Elementwise::Compare(xla::ComparisonDirection direction,
                                     HloInstruction* x, HloInstruction* y) {
  return Add(
      HloInstruction::CreateCompare(ShapeOf(xla::PRED), x, y, direction));
}

HloInstruction* Elementwise::Where(HloInstruction* predicate,
                                   HloInstruction* on_true,
                                   HloInstruction* on_false) {
  return Add(HloInstruction::CreateTernary(
      ShapeOf(on_true->shape().element_type()), HloOpcode::kSelect, predicate,
      on_true, on_false));
}

HloInstruction* Elementwise::Select(xla::ComparisonDirection direction,
                                    HloInstruction* x, HloInstruction* y,
                                    HloInstruction* on_true,
                                    HloInstruction* on_false) {
  return Where(Compare(direction, x, y), on_true, on_false);
}

HloInstruction* TakenAlong(HloInstruction* x, HloInstruction* indices,
                           int64_t dimension) {
  const xla::Shape& shape = x->shape();
  Elementwise build(x->parent(), indices->shape());
  const int64_t count = xla::ShapeUtil::ElementsIn(indices->shape());
  int64_t stride = 1;
  HloInstruction* position = nullptr;
  for (auto d = static_cast<int64_t>(shape.dimensions().size()) - 1; d >= 0;
       --d) {
    HloInstruction* index = d == dimension ? indices : build.Iota(xla::S32, d);
    if (stride > 1) {
      index = build.Binary(HloOpcode::kMultiply, index,
                           build.Constant(static_cast<int32_t>(stride)));
    }
    position = position == nullptr
                   ? index
                   : build.Binary(HloOpcode::kAdd, position, index);
    stride *= shape.dimensions(d);
  }
  const auto reshaped = [&](HloInstruction* array, std::vector<int64_t> dims) {
    return x->parent()->AddInstruction(HloInstruction::CreateReshape(
        xla::ShapeUtil::MakeShape(array->shape().element_type(), dims), array));
  };
  xla::GatherDimensionNumbers numbers;
  numbers.add_collapsed_slice_dims(0);
  numbers.add_start_index_map(0);
  numbers.set_index_vector_dim(1);
  HloInstruction* gathered =
      x->parent()->AddInstruction(HloInstruction::CreateGather(
          xla::ShapeUtil::MakeShape(shape.element_type(), {count}),
          reshaped(x, {stride}), reshaped(position, {count, 1}), numbers, {1},
          /*indices_are_sorted=*/false));
  return x->parent()->AddInstruction(HloInstruction::CreateReshape(
      build.ShapeOf(shape.element_type()), gathered));
}

HloInstruction* KeyOf(HloInstruction* x, bool is_max, Elementwise& build,
                      bool keeps_subnormal) {
  const xla::PrimitiveType type = x->shape().element_type();
  if (type == xla::F64) {
    return FloatKey<int64_t>(build.Bits(x, xla::S64), 0x7ff0000000000000,
                             keeps_subnormal ? 1 : 0x0010000000000000, is_max,
                             build);
  }
  if (type == xla::F32) {
    return FloatKey<int32_t>(build.Bits(x, xla::S32), 0x7f800000,
                             keeps_subnormal ? 1 : 0x00800000, is_max, build);
  }
  if (type == xla::BF16) {
    return FloatKey<int16_t>(build.Bits(x, xla::S16), 0x7f80,
                             keeps_subnormal ? 1 : 0x0080, is_max, build);
  }
  // Its subnormal numbers are normal ones to the backend, which compares floats
  // of 32 bits.
  if (type == xla::F16) {
    return FloatKey<int16_t>(build.Bits(x, xla::S16), 0x7c00, 1, is_max, build);
  }
  HloInstruction* number = build.Convert(x, xla::S32);
  return is_max ? number : build.Not(number);
}

}  // namespace hloenv
