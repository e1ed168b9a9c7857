// SPDX-License-Identifier: Apache-2.0
// Finds trees of jax.lax.associative_scan(join, x), which are, for n rows,
//
//   scan(x) = x, if n < 2
//   odd = scan(join(x[0:n-1:2], x[1::2]))
//   even = concatenate(x[:1], join(odd[:(n - 1) / 2], x[2::2]))
//   scan(x) = pad(even, interior=1) + pad(odd, interior=1)
//
// where x are several arrays. Only the elements that a result needs are there.
#include "passes/proposals/prefix_tree.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/rules.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Rows below which a tree is short, arrays, and instructions of a join.
constexpr int64_t kMinRows = 16;
constexpr size_t kMaxElements = 16;
constexpr size_t kMaxInstructions = 64;

// Types that the backend reads and writes as they are, and the 16 bits of
// floats that a loop can have as float32: others are converted whole in each
// iteration.
bool IsJoinable(const xla::Shape& shape) {
  const xla::PrimitiveType type = shape.element_type();
  return type == xla::PRED || type == xla::F16 || type == xla::BF16 ||
         (xla::primitive_util::IsIntegralType(type) &&
          xla::primitive_util::BitWidth(type) >= 8) ||
         type == xla::F32 || type == xla::F64 ||
         xla::primitive_util::IsComplexType(type);
}

// Operations on numbers.
bool IsJoining(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kBroadcast:
    case HloOpcode::kComplex:
    case HloOpcode::kImag:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kReal:
    case HloOpcode::kReshape:
    case HloOpcode::kSubtract:
    case HloOpcode::kXor:
      return IsReplaceable(instruction);
    default:
      return false;
  }
}

// A number, as an array; null for other instructions.
const xla::Literal* NumberOf(const HloInstruction& broadcast) {
  const bool is_number =
      broadcast.opcode() == HloOpcode::kBroadcast &&
      broadcast.operand(0)->opcode() == HloOpcode::kConstant &&
      broadcast.dimensions().empty() && IsReplaceable(broadcast);
  return is_number ? &broadcast.operand(0)->literal() : nullptr;
}

// Rows start, start + stride, ... of an array.
struct Rows {
  const HloInstruction* array;
  int64_t dimension;
  int64_t start;
  int64_t stride;
  int64_t size;
};

// Nothing for other instructions, and for slices of several dimensions.
std::optional<Rows> RowsOf(const HloInstruction& slice) {
  if (slice.opcode() != HloOpcode::kSlice || !IsReplaceable(slice)) {
    return std::nullopt;
  }
  std::optional<Rows> rows;
  const HloInstruction* array = slice.operand(0);
  for (int64_t d = 0; d < RankOf(slice.shape()); ++d) {
    const int64_t size = slice.shape().dimensions(d);
    if (size == array->shape().dimensions(d)) continue;
    if (rows.has_value()) return std::nullopt;
    rows = {array, d, slice.slice_starts(d), slice.slice_strides(d), size};
  }
  return rows;
}

// Whether they are these rows of any array; the stride of one does not matter.
bool AreRows(const std::optional<Rows>& rows, int64_t dimension, int64_t start,
             int64_t stride, int64_t size) {
  return rows.has_value() && rows->dimension == dimension &&
         rows->start == start && rows->size == size &&
         (rows->stride == stride || size == 1);
}

// Two arrays whose rows are every second one of another.
struct Interleaved {
  int64_t dimension;
  const HloInstruction* even;
  const HloInstruction* odd;
};

// The operand of a padding by zeros that puts the rows of one dimension to
// every second place, from `low` on, of `size`.
bool IsEverySecond(const HloInstruction& pad, int64_t dimension, int64_t low,
                   int64_t size) {
  if (pad.opcode() != HloOpcode::kPad || !IsReplaceable(pad) ||
      pad.operand(1)->opcode() != HloOpcode::kConstant ||
      !pad.operand(1)->literal().IsZero({})) {
    return false;
  }
  for (int64_t d = 0; d < RankOf(pad.shape()); ++d) {
    const auto& padding = pad.padding_config().dimensions(d);
    const bool is_row = d == dimension;
    if (padding.edge_padding_low() != (is_row ? low : 0) ||
        padding.interior_padding() != (is_row ? 1 : 0) ||
        (!is_row && padding.edge_padding_high() != 0)) {
      return false;
    }
  }
  return pad.operand(0)->shape().dimensions(dimension) == (size - low + 1) / 2;
}

std::optional<Interleaved> InterleavedOf(const HloInstruction& root) {
  const bool is_joined = root.opcode() == HloOpcode::kAdd ||
                         (root.opcode() == HloOpcode::kOr &&
                          root.shape().element_type() == xla::PRED);
  if (!is_joined || !IsReplaceable(root)) return std::nullopt;
  const HloInstruction& even = *root.operand(0);
  const HloInstruction& odd = *root.operand(1);
  if (even.opcode() != HloOpcode::kPad) return std::nullopt;
  const auto& paddings = even.padding_config().dimensions();
  const auto found = absl::c_find_if(paddings, [](const auto& padding) {
    return padding.interior_padding() == 1;
  });
  if (found == paddings.end()) return std::nullopt;
  const int64_t dimension = found - paddings.begin();
  const int64_t size = root.shape().dimensions(dimension);
  if (!IsEverySecond(even, dimension, 0, size) ||
      !IsEverySecond(odd, dimension, 1, size)) {
    return std::nullopt;
  }
  return Interleaved{dimension, even.operand(0), odd.operand(0)};
}

// The dimension of the rows in what is computed of them.
std::optional<int64_t> RowDimension(const HloInstruction& instruction,
                                    absl::Span<const int64_t> of_operands) {
  const int64_t first = of_operands.front();
  if (instruction.opcode() == HloOpcode::kBroadcast) {
    return instruction.dimensions(first);
  }
  if (instruction.opcode() != HloOpcode::kReshape) {
    const bool is_same = absl::c_all_of(
        of_operands, [first](int64_t each) { return each == first; });
    return is_same ? std::make_optional(first) : std::nullopt;
  }
  // As many elements in front of it, and as many rows.
  const xla::Shape& from = instruction.operand(0)->shape();
  const xla::Shape& to = instruction.shape();
  int64_t before = 1;
  for (int64_t d = 0; d < first; ++d) before *= from.dimensions(d);
  int64_t count = 1;
  for (int64_t d = 0; d < RankOf(to); ++d) {
    if (count == before && to.dimensions(d) == from.dimensions(first)) return d;
    count *= to.dimensions(d);
  }
  return std::nullopt;
}

class Matcher {
 public:
  std::optional<PrefixTree> Match(const HloInstruction& root) {
    const std::optional<Interleaved> rows = InterleavedOf(root);
    if (!rows.has_value()) return std::nullopt;
    for (int64_t n = root.shape().dimensions(rows->dimension); n > 0; n /= 2) {
      sizes_.push_back(n);
    }
    tree_.size = sizes_.front();
    tree_.constants.resize(sizes_.size());
    const HloInstruction* array = FirstOf(*rows->even);
    if (tree_.size < kMinRows || array == nullptr ||
        !AddElement(*array, rows->dimension).has_value() ||
        !Add(Kind::kState, 0, 0, root) || !MatchAll()) {
      return std::nullopt;
    }
    if (absl::c_linear_search(tree_.joins, nullptr)) return std::nullopt;
    tree_.is_state.assign(tree_.elements.size(), false);
    for (const auto& [key, results] : states_) {
      tree_.is_state[key.second] = true;
      tree_.roots.push_back(results);
    }
    return std::move(tree_);
  }

 private:
  using Key = std::pair<size_t, size_t>;  // level, element
  enum class Kind { kElement, kState, kRest };
  struct Open {
    Kind kind;
    size_t level;
    size_t element;
    const HloInstruction* instruction;
  };

  // The array of which a part that is computed for even rows has the first one.
  static const HloInstruction* FirstOf(const HloInstruction& even) {
    const HloInstruction* first = &even;
    if (even.opcode() == HloOpcode::kConcatenate) first = even.operand(0);
    return first->opcode() == HloOpcode::kSlice ? first->operand(0) : nullptr;
  }

  // The number of an array whose rows are joined, new or known.
  std::optional<size_t> AddElement(const HloInstruction& array,
                                   int64_t dimension) {
    const auto found = absl::c_find(tree_.elements, &array);
    const size_t number = found - tree_.elements.begin();
    if (found != tree_.elements.end()) {
      if (tree_.dimensions[number] != dimension) return std::nullopt;
      return number;
    }
    if (tree_.elements.size() == kMaxElements ||
        array.shape().dimensions(dimension) != tree_.size ||
        !IsJoinable(array.shape())) {
      return std::nullopt;
    }
    tree_.elements.push_back(&array);
    tree_.dimensions.push_back(dimension);
    tree_.joins.push_back(nullptr);
    elements_[{0, number}] = &array;
    return number;
  }
  // What takes the place of an array in a level above the first, or the results
  // of a level.
  bool Add(Kind kind, size_t level, size_t element,
           const HloInstruction& array) {
    auto& known = kind == Kind::kState ? states_ : elements_;
    const auto [found, is_new] = known.try_emplace({level, element}, &array);
    if (!is_new) return found->second == &array;
    open_.push_back({kind, level, element, &array});
    return true;
  }

  bool MatchAll() {
    size_t waiting = 0;  // for a join that is not known yet
    while (!open_.empty()) {
      if (waiting > open_.size()) return false;
      const Open next = open_.front();
      open_.pop_front();
      const bool is_known = tree_.joins[next.element] != nullptr;
      if (next.kind == Kind::kState) {
        if (!MatchState(next)) return false;
      } else if (next.kind == Kind::kElement && next.level == 1 && !is_known) {
        if (!AddJoin(next.element, *next.instruction)) return false;
      } else if (!is_known) {
        open_.push_back(next);
        ++waiting;
        continue;
      } else if (!IsJoin(next, *tree_.joins[next.element], *next.instruction)) {
        return false;
      }
      waiting = 0;
    }
    return true;
  }

  bool MatchState(const Open& state) {
    const int64_t size = sizes_[state.level];
    const int64_t dimension = tree_.dimensions[state.element];
    if (size == 1) {  // the only row
      return Add(Kind::kElement, state.level, state.element,
                 *state.instruction);
    }
    const std::optional<Interleaved> rows = InterleavedOf(*state.instruction);
    if (!rows.has_value() || rows->dimension != dimension) return false;
    const HloInstruction* first = rows->even;
    if (size > 2) {
      if (first->opcode() != HloOpcode::kConcatenate ||
          first->operand_count() != 2 || first->dimensions(0) != dimension ||
          !IsReplaceable(*first)) {
        return false;
      }
      open_.push_back(
          {Kind::kRest, state.level, state.element, first->operand(1)});
      first = first->operand(0);
    }
    const std::optional<Rows> row = RowsOf(*first);
    return AreRows(row, dimension, 0, 1, 1) &&
           IsElement(state.level, state.element, *row->array) &&
           Add(Kind::kState, state.level + 1, state.element, *rows->odd);
  }
  bool IsElement(size_t level, size_t element, const HloInstruction& array) {
    return level == 0 ? tree_.elements[element] == &array
                      : Add(Kind::kElement, level, element, array);
  }

  // Takes what computes an array of the second level of neighbours for the
  // join.
  bool AddJoin(size_t element, const HloInstruction& root) {
    std::vector<const HloInstruction*> open = {&root};
    while (!open.empty()) {
      const HloInstruction* each = open.back();
      if (tree_.row_dimensions.contains(each)) {
        open.pop_back();
        continue;
      }
      const std::optional<Rows> rows = RowsOf(*each);
      if (rows.has_value()) {
        if (!AddOperand(*each, *rows)) return false;
        open.pop_back();
        continue;
      }
      if (!IsJoining(*each) || each->operand_count() == 0 ||
          tree_.row_dimensions.size() + open.size() > kMaxInstructions) {
        return false;
      }
      std::vector<int64_t> dimensions;
      size_t missing = 0;
      for (const HloInstruction* operand : each->operands()) {
        const auto found = tree_.row_dimensions.find(operand);
        if (found != tree_.row_dimensions.end()) {
          dimensions.push_back(found->second);
        } else if (each->opcode() != HloOpcode::kMultiply ||
                   NumberOf(*operand) == nullptr) {
          open.push_back(operand);
          ++missing;
        }
      }
      if (missing > 0) continue;
      if (dimensions.empty()) return false;
      const std::optional<int64_t> dimension = RowDimension(*each, dimensions);
      if (!dimension.has_value()) return false;
      for (const HloInstruction* operand : each->operands()) {
        if (!tree_.row_dimensions.try_emplace(operand, *dimension).second) {
          continue;
        }
        tree_.constants[0][operand] = NumberOf(*operand);
      }
      tree_.row_dimensions[each] = *dimension;
      open.pop_back();
    }
    tree_.joins[element] = &root;
    return tree_.row_dimensions.at(&root) == tree_.dimensions[element];
  }
  bool AddOperand(const HloInstruction& slice, const Rows& rows) {
    if (rows.start > 1 || rows.stride != 2 || rows.size != sizes_[1]) {
      return false;
    }
    const std::optional<size_t> element =
        AddElement(*rows.array, rows.dimension);
    if (!element.has_value()) return false;
    tree_.operands[&slice] = {*element, rows.start == 1};
    tree_.row_dimensions[&slice] = rows.dimension;
    return true;
  }

  // Whether `instruction` is computed as `join` is, of neighbours for an
  // element of a level, or of results and rows for the rest of even ones.
  bool IsJoin(const Open& open, const HloInstruction& join,
              const HloInstruction& instruction) {
    absl::flat_hash_set<std::pair<const HloInstruction*, const HloInstruction*>>
        seen;
    std::vector<std::pair<const HloInstruction*, const HloInstruction*>> pairs =
        {{&join, &instruction}};
    while (!pairs.empty()) {
      const auto [own, other] = pairs.back();
      pairs.pop_back();
      if (!seen.insert({own, other}).second) continue;
      const auto operand = tree_.operands.find(own);
      if (operand != tree_.operands.end()) {
        if (!IsOperand(open, operand->second, *other)) return false;
        continue;
      }
      if (!IsLike(open, *own, *other)) return false;
      if (tree_.constants[0].contains(own)) {
        if (!IsConstant(open, *own, *other)) return false;
        continue;
      }
      for (int64_t i = 0; i < own->operand_count(); ++i) {
        pairs.emplace_back(own->operand(i), other->operand(i));
      }
    }
    return true;
  }
  // Rows of what computes an element or the rest of even rows.
  int64_t RowsIn(const Open& open) const {
    const int64_t size = sizes_[open.level];
    return open.kind == Kind::kElement ? size : (size - 1) / 2;
  }
  bool IsOperand(const Open& open, const PrefixTree::Operand& operand,
                 const HloInstruction& instruction) {
    const int64_t dimension = tree_.dimensions[operand.element];
    const int64_t size = RowsIn(open);
    const std::optional<Rows> rows = RowsOf(instruction);
    if (open.kind == Kind::kElement) {
      return AreRows(rows, dimension, operand.is_second ? 1 : 0, 2, size) &&
             IsElement(open.level - 1, operand.element, *rows->array);
    }
    if (operand.is_second) {
      return AreRows(rows, dimension, 2, 2, size) &&
             IsElement(open.level, operand.element, *rows->array);
    }
    const bool are_all = size == sizes_[open.level + 1];
    if (!are_all && !AreRows(rows, dimension, 0, 1, size)) return false;
    return Add(Kind::kState, open.level + 1, operand.element,
               are_all ? instruction : *rows->array);
  }
  // Whether it is the number of a level that takes the place of one of the
  // first.
  bool IsConstant(const Open& open, const HloInstruction& own,
                  const HloInstruction& other) {
    const size_t level =
        open.kind == Kind::kElement ? open.level - 1 : open.level;
    const xla::Literal* number = NumberOf(other);
    if (number == nullptr) return false;
    const auto [found, is_new] =
        tree_.constants[level].try_emplace(&own, number);
    return is_new || *found->second == *number;
  }
  bool IsLike(const Open& open, const HloInstruction& own,
              const HloInstruction& other) const {
    if (own.opcode() != other.opcode() || !IsReplaceable(other) ||
        own.operand_count() != other.operand_count()) {
      return false;
    }
    xla::Shape shape = own.shape();
    shape.set_dimensions(tree_.row_dimensions.at(&own), RowsIn(open));
    return xla::ShapeUtil::Compatible(shape, other.shape()) &&
           (own.opcode() != HloOpcode::kBroadcast ||
            own.dimensions() == other.dimensions());
  }

  PrefixTree tree_;
  std::vector<int64_t> sizes_;  // rows of each level
  absl::flat_hash_map<Key, const HloInstruction*> elements_;
  absl::flat_hash_map<Key, const HloInstruction*> states_;
  std::deque<Open> open_;
};

}  // namespace

std::optional<PrefixTree> PrefixTreeOf(const HloInstruction& root) {
  return Matcher().Match(root);
}

}  // namespace hloenv
