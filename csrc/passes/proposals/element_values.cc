// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/element_values.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "hlo/evaluation.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
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
using Element = ElementValues::Element;

constexpr int64_t kMaxValueSteps = 4096;

std::vector<int64_t> IndexAt(const xla::Shape& shape, int64_t place) {
  std::vector<int64_t> index(shape.dimensions().size());
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = place % shape.dimensions(d);
    place /= shape.dimensions(d);
  }
  return index;
}

int64_t PlaceAt(const xla::Shape& shape, const std::vector<int64_t>& index) {
  int64_t place = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    place = place * shape.dimensions(d) + index[d];
  }
  return place;
}

// A well mixed number of an element of an array.
uint64_t MixedOf(uint64_t array, uint64_t place, uint64_t draw) {
  uint64_t mixed = array * 0x9E3779B97F4A7C15 + place * 0xD1B54A32D192ED03 +
                   draw * 0x8CB92BA72F3D8DD7;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

double FloatOf(uint64_t mixed, int draw) {
  constexpr int kExponents[ElementValues::kFiniteDraws] = {
      0, 1, -1, 2, -2, 3, -3, 10, -10, 0, 0, 0};
  const double sign = (mixed & 1) != 0 ? -1 : 1;
  if (draw == ElementValues::kFiniteDraws) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (draw > ElementValues::kFiniteDraws) {
    return sign * std::numeric_limits<double>::infinity();
  }
  const double mantissa = 1 + static_cast<double>(mixed >> 12) * 0x1p-52;
  return sign * std::ldexp(mantissa, kExponents[draw]);
}

Element Shared(absl::StatusOr<Literal> literal) {
  if (!literal.ok()) return nullptr;
  return std::make_shared<const Literal>(*std::move(literal));
}

// The number in a double, or both numbers.
std::complex<double> ComplexOf(const Literal& scalar) {
  const absl::StatusOr<Literal> wide = scalar.Convert(xla::C128);
  if (!wide.ok()) return std::numeric_limits<double>::quiet_NaN();
  return wide->Get<std::complex<double>>({});
}

// In which an element is computed: floats and complex numbers in doubles.
xla::PrimitiveType WideTypeOf(xla::PrimitiveType type) {
  if (xla::primitive_util::IsComplexType(type)) return xla::C128;
  return xla::primitive_util::IsFloatingPointType(type) ? xla::F64 : type;
}

Element Widened(absl::StatusOr<Literal> literal) {
  if (!literal.ok()) return nullptr;
  return Shared(literal->Convert(WideTypeOf(literal->shape().element_type())));
}

// How far apart numbers may be that are equal, but for the rounding of several
// constants of this type.
double ToleranceOf(xla::PrimitiveType type) {
  if (xla::primitive_util::IsComplexType(type)) {
    type = xla::primitive_util::ComplexComponentType(type);
  }
  constexpr double kRoundings = 16;
  return kRoundings *
         std::ldexp(1.0, -xla::primitive_util::SignificandWidth(type));
}

}  // namespace

Element ElementValues::Of(const HloInstruction& array, int64_t place) {
  const auto found = known_.find({&array, place});
  if (found != known_.end()) return found->second;
  if (++steps_ > kMaxValueSteps) return nullptr;
  Element value =
      given_.contains(&array) ? MadeUp(array, place) : Computed(array, place);
  known_[{&array, place}] = value;
  return value;
}

std::vector<int64_t> ElementValues::PlacesOf(
    const HloInstruction& given) const {
  std::vector<int64_t> places;
  for (const auto& [key, value] : known_) {
    if (key.first == &given) places.push_back(key.second);
  }
  return places;
}

Element ElementValues::MadeUp(const HloInstruction& array,
                              int64_t place) const {
  const xla::PrimitiveType type = array.shape().element_type();
  const uint64_t mixed =
      MixedOf(static_cast<uint64_t>(array.unique_id()),
              static_cast<uint64_t>(place), static_cast<uint64_t>(draw_));
  if (type == xla::PRED) {
    return Shared(xla::LiteralUtil::CreateR0<bool>((mixed & 2) != 0));
  }
  if (xla::primitive_util::IsIntegralType(type)) {
    const uint64_t number = draw_ % 2 == 0 ? mixed >> 60 : mixed;
    return Shared(xla::LiteralUtil::CreateR0<uint64_t>(number).Convert(type));
  }
  if (xla::primitive_util::IsComplexType(type)) {
    // So small that the logarithm undoes the exponential, as the simplifier has
    // it of any.
    const auto part = [&](uint64_t bits) {
      return FloatOf(bits, draw_) / 1024;
    };
    const std::complex<double> number(part(mixed), part(MixedOf(mixed, 0, 0)));
    return Widened(
        xla::LiteralUtil::CreateR0<std::complex<double>>(number).Convert(type));
  }
  return Widened(
      xla::LiteralUtil::CreateR0<double>(FloatOf(mixed, draw_)).Convert(type));
}

Element ElementValues::Computed(const HloInstruction& array, int64_t place) {
  const xla::Shape& shape = array.shape();
  std::vector<int64_t> index = IndexAt(shape, place);
  const auto at = [&](int64_t operand, const std::vector<int64_t>& where) {
    const HloInstruction& read = *array.operand(operand);
    return Of(read, PlaceAt(read.shape(), where));
  };
  switch (array.opcode()) {
    case HloOpcode::kConstant: {
      if (xla::ShapeUtil::ElementsIn(shape) != 1) return nullptr;
      const Element value = Widened(array.literal().Reshape({}));
      if (value == nullptr) return nullptr;
      const double size = std::abs(ComplexOf(*value));
      if (std::isfinite(size)) {
        largest_constant_ = std::max(largest_constant_, size);
      }
      return value;
    }
    case HloOpcode::kIota: {
      const auto* iota = xla::Cast<xla::HloIotaInstruction>(&array);
      return Widened(
          xla::LiteralUtil::CreateR0<int64_t>(index[iota->iota_dimension()])
              .Convert(shape.element_type()));
    }
    case HloOpcode::kBroadcast: {
      std::vector<int64_t> where;
      for (const int64_t d : array.dimensions()) where.push_back(index[d]);
      return at(0, where);
    }
    case HloOpcode::kReshape:
      return Of(*array.operand(0), place);
    case HloOpcode::kTranspose: {
      std::vector<int64_t> where(index.size());
      for (size_t d = 0; d < index.size(); ++d) {
        where[array.dimensions(d)] = index[d];
      }
      return at(0, where);
    }
    case HloOpcode::kReverse:
      for (const int64_t d : array.dimensions()) {
        index[d] = shape.dimensions(d) - 1 - index[d];
      }
      return at(0, index);
    case HloOpcode::kSlice:
      for (size_t d = 0; d < index.size(); ++d) {
        index[d] = array.slice_starts(d) + index[d] * array.slice_strides(d);
      }
      return at(0, index);
    case HloOpcode::kConcatenate: {
      const int64_t axis = array.concatenate_dimension();
      for (int64_t i = 0; i < array.operand_count(); ++i) {
        const int64_t size = array.operand(i)->shape().dimensions(axis);
        if (index[axis] < size) return at(i, index);
        index[axis] -= size;
      }
      return nullptr;
    }
    case HloOpcode::kPad:
      for (size_t d = 0; d < index.size(); ++d) {
        const auto& padding = array.padding_config().dimensions(d);
        const int64_t step = padding.interior_padding() + 1;
        const int64_t offset = index[d] - padding.edge_padding_low();
        index[d] = offset / step;
        if (offset < 0 || offset % step != 0 ||
            index[d] >= array.operand(0)->shape().dimensions(d)) {
          return at(1, {});
        }
      }
      return at(0, index);
    default:
      return OfElements(array, place);
  }
}

Element ElementValues::OfElements(const HloInstruction& operation,
                                  int64_t place) {
  // These are of the bits, or of numbers, of the operation's own types.
  const bool is_map = operation.opcode() == HloOpcode::kMap;
  const bool has_own_types =
      is_map || operation.opcode() == HloOpcode::kBitcastConvert;
  if (!(operation.IsElementwise() || is_map) ||
      (!is_map && !operation.called_computations().empty())) {
    return nullptr;
  }
  std::vector<Literal> operands;
  operands.reserve(operation.operand_count());
  std::vector<const Literal*> values;
  for (const HloInstruction* operand : operation.operands()) {
    const bool is_scalar = operand->shape().dimensions().empty();
    const Element value = Of(*operand, is_scalar ? 0 : place);
    if (value == nullptr) return nullptr;
    absl::StatusOr<Literal> given =
        has_own_types ? value->Convert(operand->shape().element_type())
                      : value->Clone();
    if (!given.ok()) return nullptr;
    operands.push_back(*std::move(given));
    values.push_back(&operands.back());
  }
  if (is_map) {
    return Widened(xla::HloEvaluator().Evaluate(*operation.to_apply(), values));
  }
  const xla::PrimitiveType type = operation.shape().element_type();
  const xla::Shape scalar =
      xla::ShapeUtil::MakeShape(has_own_types ? type : WideTypeOf(type), {});
  return Widened(EvaluatedOn(operation, scalar, values));
}

ElementValues::Likeness ElementValues::Compared(const HloInstruction& array,
                                                int64_t place,
                                                const HloInstruction& given,
                                                int64_t given_place) {
  const auto is = [](bool is_equal) {
    return is_equal ? Likeness::kEqual : Likeness::kDifferent;
  };
  const Element x = Of(array, place);
  const Element y = Of(given, given_place);
  if (x == nullptr || y == nullptr) return Likeness::kUnknown;
  const xla::PrimitiveType type = array.shape().element_type();
  const xla::PrimitiveType given_type = given.shape().element_type();
  if (type != given_type || WideTypeOf(type) == type) {
    // The bits: backends take one type for another.
    const absl::StatusOr<Literal> own = x->Convert(type);
    const absl::StatusOr<Literal> other = y->Convert(given_type);
    if (!own.ok() || !other.ok()) return Likeness::kUnknown;
    const bool is_same = own->size_bytes() == other->size_bytes() &&
                         std::memcmp(own->untyped_data(), other->untyped_data(),
                                     own->size_bytes()) == 0;
    if (is_same || WideTypeOf(type) != WideTypeOf(given_type) ||
        xla::primitive_util::IsIntegralType(type) || type == xla::PRED) {
      return is(is_same);
    }
  }
  const std::complex<double> found = ComplexOf(*x);
  const std::complex<double> wanted = ComplexOf(*y);
  const auto is_nan = [](const std::complex<double>& number) {
    return std::isnan(number.real()) || std::isnan(number.imag());
  };
  const auto is_finite = [](const std::complex<double>& number) {
    return std::isfinite(number.real()) && std::isfinite(number.imag());
  };
  if (is_nan(wanted)) return is(is_nan(found));
  if (is_nan(found)) return Likeness::kUnknown;
  if (!is_finite(wanted)) {
    // Functions of complex infinities are not what the simplifier has them for.
    return xla::primitive_util::IsComplexType(type) && found != wanted
               ? Likeness::kUnknown
               : is(found == wanted);
  }
  if (!is_finite(found)) return Likeness::kUnknown;
  return is(std::abs(found - wanted) <=
            ToleranceOf(type) * std::max(std::abs(wanted), largest_constant_));
}

}  // namespace hloenv
