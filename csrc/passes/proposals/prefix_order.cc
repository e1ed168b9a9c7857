// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/prefix_order.h"

#include <cmath>
#include <complex>
#include <random>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "hlo/evaluation.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Numbers of a join's operands, by element.
using Numbers = absl::flat_hash_map<size_t, xla::Literal>;

// Joins of made-up numbers, floats of which are computed in 64 bits.
class Joined {
 public:
  explicit Joined(const PrefixTree& tree) : tree_(tree) {}

  Numbers MadeUp(int seed) const {
    std::minstd_rand random(static_cast<unsigned>(seed));
    std::uniform_real_distribution<double> unit(0, 1);
    // In each place, numbers have one sign, and bits are set, more or less
    // often: what all numbers together decide is reached, too.
    const auto is_likely = [&](size_t place) {
      return unit(random) < static_cast<double>(place % 31 + 1) / 32;
    };
    const auto number = [&](size_t place) {
      const double size = unit(random) * std::exp(6 * unit(random) - 3);
      return is_likely(place) ? size : -size;
    };
    const auto bits = [&](size_t place) {
      uint64_t result = 0;
      for (int i = 0; i < 64; ++i) result = 2 * result + is_likely(place);
      return static_cast<int64_t>(result);
    };
    Numbers numbers;
    for (size_t i = 0; i < tree_.elements.size(); ++i) {
      const xla::PrimitiveType type = WideOf(tree_.elements[i]->shape());
      if (type == xla::F64) {
        numbers[i] = Drawn<double>(number);
      } else if (type == xla::C128) {
        numbers[i] = Drawn<std::complex<double>>([&](size_t place) {
          const double real = number(place);
          return std::complex<double>(real, number(place));
        });
      } else if (type == xla::PRED) {
        numbers[i] = Drawn<bool>(is_likely);
      } else {
        numbers[i] = Drawn<int64_t>(bits).Convert(type).value();
      }
    }
    return numbers;
  }

  // The elements of a join of a level: all, or the state alone.
  absl::StatusOr<Numbers> Join(const Numbers& first, const Numbers& second,
                               size_t level, bool is_all) {
    absl::flat_hash_map<const HloInstruction*, xla::Literal> values;
    for (const auto& [broadcast, number] : tree_.constants[level]) {
      const xla::PrimitiveType type = WideOf(broadcast->shape());
      HLOENV_ASSIGN_OR_RETURN(const xla::Literal wide, number->Convert(type));
      HLOENV_ASSIGN_OR_RETURN(
          values[broadcast],
          wide.Broadcast(
              xla::ShapeUtil::MakeShape(type, {static_cast<int64_t>(kNumbers)}),
              {}));
    }
    Numbers joined;
    for (size_t i = 0; i < tree_.elements.size(); ++i) {
      if (!is_all && !tree_.is_state[i]) continue;
      HLOENV_RETURN_IF_ERROR(Evaluate(*tree_.joins[i], first, second, values));
      joined[i] = values.at(tree_.joins[i]).Clone();
    }
    return joined;
  }

 private:
  static constexpr size_t kNumbers = 512;

  template <typename T, typename Draw>
  static xla::Literal Drawn(const Draw& draw) {
    xla::Literal literal =
        xla::LiteralUtil::CreateR1<T>(absl::InlinedVector<T, 1>(kNumbers));
    for (size_t place = 0; place < kNumbers; ++place) {
      literal.Set<T>({static_cast<int64_t>(place)}, draw(place));
    }
    return literal;
  }
  static xla::PrimitiveType WideOf(const xla::Shape& shape) {
    const xla::PrimitiveType type = shape.element_type();
    if (xla::primitive_util::IsFloatingPointType(type)) return xla::F64;
    return xla::primitive_util::IsComplexType(type) ? xla::C128 : type;
  }

  absl::Status Evaluate(
      const HloInstruction& root, const Numbers& first, const Numbers& second,
      absl::flat_hash_map<const HloInstruction*, xla::Literal>& values) {
    std::vector<const HloInstruction*> open = {&root};
    while (!open.empty()) {
      const HloInstruction* each = open.back();
      if (values.contains(each)) {
        open.pop_back();
        continue;
      }
      const auto operand = tree_.operands.find(each);
      if (operand != tree_.operands.end()) {
        const Numbers& from = operand->second.is_second ? second : first;
        values[each] = from.at(operand->second.element).Clone();
        continue;
      }
      const size_t waiting = open.size();
      for (const HloInstruction* other : each->operands()) {
        if (!values.contains(other)) open.push_back(other);
      }
      if (open.size() > waiting) continue;
      HLOENV_ASSIGN_OR_RETURN(values[each], ValueOf(*each, values));
    }
    return absl::OkStatus();
  }
  static absl::StatusOr<xla::Literal> ValueOf(
      const HloInstruction& instruction,
      const absl::flat_hash_map<const HloInstruction*, xla::Literal>& values) {
    if (instruction.opcode() == HloOpcode::kBroadcast ||
        instruction.opcode() == HloOpcode::kReshape) {
      return values.at(instruction.operand(0)).Clone();
    }
    std::vector<const xla::Literal*> operands;
    for (const HloInstruction* operand : instruction.operands()) {
      operands.push_back(&values.at(operand));
    }
    const xla::Shape shape = xla::ShapeUtil::MakeShape(
        WideOf(instruction.shape()), {static_cast<int64_t>(kNumbers)});
    return EvaluatedOn(instruction, shape, operands);
  }

  const PrefixTree& tree_;
};

// Whether numbers are the same but for rounding: exactly so, if no floats.
bool AreSame(const xla::Literal& left, const xla::Literal& right,
             double rounding) {
  if (!xla::primitive_util::IsFloatingPointType(left.shape().element_type()) &&
      !xla::primitive_util::IsComplexType(left.shape().element_type())) {
    return left == right;
  }
  const xla::Literal a = left.Convert(xla::C128).value();
  const xla::Literal b = right.Convert(xla::C128).value();
  const auto are_near = [&](std::complex<double> x, std::complex<double> y) {
    return std::abs(x - y) <= rounding * (1 + std::abs(x));
  };
  return absl::c_equal(a.data<std::complex<double>>(),
                       b.data<std::complex<double>>(), are_near);
}

// Whether joining pairs, of the next level, is joining one after the other, of
// this one: (x y) z = x (y z).
absl::StatusOr<bool> IsAssociative(const PrefixTree& tree, size_t level) {
  // Constants of levels are rounded to float32; those of 16 bits are too far
  // off.
  const double rounding = tree.constants[level].empty() ? 1e-9 : 1e-5;
  const size_t next = tree.constants[level].empty() ? level : level + 1;
  Joined joined(tree);
  const Numbers x = joined.MadeUp(1);
  const Numbers y = joined.MadeUp(2);
  const Numbers z = joined.MadeUp(3);
  HLOENV_ASSIGN_OR_RETURN(const Numbers xy, joined.Join(x, y, level, false));
  HLOENV_ASSIGN_OR_RETURN(const Numbers yz, joined.Join(y, z, level, true));
  HLOENV_ASSIGN_OR_RETURN(const Numbers first,
                          joined.Join(xy, z, level, false));
  HLOENV_ASSIGN_OR_RETURN(const Numbers last, joined.Join(x, yz, next, false));
  return absl::c_all_of(first, [&](const auto& each) {
    return AreSame(each.second, last.at(each.first), rounding);
  });
}

// Which dimensions of arrays go through the same elements.
class Axes {
 public:
  explicit Axes(const PrefixTree& tree) : tree_(tree) {}

  void Unite(const HloInstruction& a, int64_t i, const HloInstruction& b,
             int64_t j) {
    if (a.shape().dimensions(i) != 1) leaders_[AxisOf(a, i)] = AxisOf(b, j);
  }
  // Whether two dimensions of an array do.
  bool HasDiagonal(const HloInstruction& array) {
    absl::flat_hash_set<Axis> axes;
    for (int64_t d = 0; d < RankOf(array.shape()); ++d) {
      if (array.shape().dimensions(d) != 1 &&
          !axes.insert(AxisOf(array, d)).second) {
        return true;
      }
    }
    return false;
  }

 private:
  using Axis = std::pair<const HloInstruction*, int64_t>;

  Axis AxisOf(const HloInstruction& array, int64_t dimension) {
    const auto operand = tree_.operands.find(&array);
    Axis axis = {operand == tree_.operands.end()
                     ? &array
                     : tree_.elements[operand->second.element],
                 dimension};
    for (auto leader = leaders_.find(axis); leader != leaders_.end();
         leader = leaders_.find(axis)) {
      if (leader->second == axis) break;
      axis = leader->second;
    }
    return axis;
  }

  const PrefixTree& tree_;
  absl::flat_hash_map<Axis, Axis> leaders_;
};

std::vector<int64_t> WideDimensions(const xla::Shape& shape) {
  std::vector<int64_t> wide;
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    if (shape.dimensions(d) != 1) wide.push_back(d);
  }
  return wide;
}

// Whether each number of a join is computed of those at its own place: nothing
// is transposed, as by broadcasts of a vector along rows and along columns.
bool IsPointwise(const PrefixTree& tree) {
  Axes axes(tree);
  for (const auto& [each, row_dimension] : tree.row_dimensions) {
    if (tree.operands.contains(each) || tree.constants[0].contains(each)) {
      continue;
    }
    if (each->opcode() == HloOpcode::kReshape) {
      const HloInstruction& operand = *each->operand(0);
      const std::vector<int64_t> from = WideDimensions(operand.shape());
      const std::vector<int64_t> to = WideDimensions(each->shape());
      if (from.size() != to.size()) return false;
      for (size_t i = 0; i < from.size(); ++i) {
        if (operand.shape().dimensions(from[i]) !=
            each->shape().dimensions(to[i])) {
          return false;
        }
        axes.Unite(operand, from[i], *each, to[i]);
      }
      continue;
    }
    for (const HloInstruction* operand : each->operands()) {
      if (tree.constants[0].contains(operand)) continue;
      for (int64_t d = 0; d < RankOf(operand->shape()); ++d) {
        const bool is_broadcast = each->opcode() == HloOpcode::kBroadcast;
        axes.Unite(*operand, d, *each, is_broadcast ? each->dimensions(d) : d);
      }
    }
  }
  for (size_t i = 0; i < tree.elements.size(); ++i) {
    const HloInstruction& element = *tree.elements[i];
    if (RankOf(element.shape()) != RankOf(tree.joins[i]->shape())) return false;
    for (int64_t d = 0; d < RankOf(element.shape()); ++d) {
      axes.Unite(*tree.joins[i], d, element, d);
    }
  }
  return absl::c_none_of(tree.elements,
                         [&](const HloInstruction* each) {
                           return axes.HasDiagonal(*each);
                         }) &&
         absl::c_none_of(tree.row_dimensions, [&](const auto& each) {
           return axes.HasDiagonal(*each.first);
         });
}

// Random numbers show nothing of a limit that they do not reach.
bool HasExtremes(const PrefixTree& tree) {
  return absl::c_any_of(tree.row_dimensions, [](const auto& each) {
    return each.first->opcode() == HloOpcode::kMaximum ||
           each.first->opcode() == HloOpcode::kMinimum;
  });
}

}  // namespace

bool IsOrderFree(const PrefixTree& tree) {
  const bool has_constants = !tree.constants[0].empty();
  if (!IsPointwise(tree)) return false;
  if (has_constants && HasExtremes(tree)) return false;
  // Of one row there are no joins.
  const size_t levels = has_constants ? tree.constants.size() - 2 : 1;
  for (size_t level = 0; level < levels; ++level) {
    if (tree.constants[level].size() != tree.constants[0].size() ||
        !IsAssociative(tree, level).value_or(false)) {
      return false;
    }
  }
  return true;
}

}  // namespace hloenv
