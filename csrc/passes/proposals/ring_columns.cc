// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/ring_columns.h"

#include <cstring>
#include <functional>
#include <queue>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/numeric/int128.h"
#include "passes/proposals/reduce_rules.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Limits of one search: instructions, and rows of all columns.
constexpr size_t kMaxFollowed = 4096;
constexpr int64_t kMaxColumnRows = int64_t{1} << 24;

bool IsRing(const xla::Shape& shape) {
  if (!shape.IsArray()) return false;
  const xla::PrimitiveType type = shape.element_type();
  return type == xla::F16 || type == xla::BF16 || type == xla::F32 ||
         type == xla::F64 || xla::primitive_util::IsComplexType(type);
}

uint32_t Bits(double number, int from) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return static_cast<uint32_t>(bits >> from);
}

// A constant, or an array of it. Of those other than 0 and 1, any element of
// the field: they are only known to be equal to themselves.
std::optional<FieldElement> UniformOf(const HloInstruction& instruction) {
  if (instruction.opcode() == HloOpcode::kBroadcast) {
    if (!IsReplaceable(instruction)) return std::nullopt;
    return UniformOf(*instruction.operand(0));
  }
  if (instruction.opcode() != HloOpcode::kConstant ||
      !xla::ShapeUtil::IsScalar(instruction.shape())) {
    return std::nullopt;
  }
  const std::optional<xla::complex128> number =
      instruction.literal().GetAsComplex128({});
  if (!number.has_value()) return std::nullopt;
  if (*number == 0.0) return FieldElement(0);
  if (*number == 1.0) return FieldElement(1);
  std::seed_seq seed = {Bits(number->real(), 0), Bits(number->real(), 32),
                        Bits(number->imag(), 0), Bits(number->imag(), 32)};
  return FieldElement(std::mt19937_64(seed)());
}

// The only dimension in which `differs`; -1 if there is none.
template <typename Differs>
std::optional<int64_t> OnlyDimension(const xla::Shape& shape,
                                     const Differs& differs) {
  int64_t found = -1;
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    if (!differs(d)) continue;
    if (found >= 0) return std::nullopt;
    found = d;
  }
  return found;
}

// Labels of two arrays of the same shape, of which one may not know some.
std::optional<std::vector<int64_t>> CommonLabels(const RingColumn& left,
                                                 const RingColumn& right) {
  std::vector<int64_t> labels = left.labels;
  for (size_t d = 0; d < labels.size(); ++d) {
    if (labels[d] == RingColumn::kEqual) labels[d] = right.labels[d];
    if (right.labels[d] != RingColumn::kEqual && right.labels[d] != labels[d]) {
      return std::nullopt;
    }
  }
  return labels;
}

std::optional<RingColumn> CombinedColumn(bool is_product,
                                         const RingColumn& left,
                                         const RingColumn& right) {
  std::optional<std::vector<int64_t>> labels = CommonLabels(left, right);
  if (!labels.has_value() || (left.has_rows && right.has_rows &&
                              left.rows.size() != right.rows.size())) {
    return std::nullopt;
  }
  const bool has_zero = left.IsZero() || right.IsZero();
  if (is_product) {
    // Zero times what is no number is none.
    if (has_zero || (left.is_sum && right.is_sum)) return std::nullopt;
  } else if (left.is_sum != right.is_sum && !has_zero) {  // a sum of zeros
    return std::nullopt;
  }
  const RingColumn& longer = left.has_rows ? left : right;
  RingColumn column{
      *std::move(labels), {}, longer.has_rows, left.is_sum || right.is_sum};
  column.rows.reserve(longer.rows.size());
  for (size_t i = 0; i < longer.rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    column.rows.push_back(is_product ? left.At(row) * right.At(row)
                                     : left.At(row) + right.At(row));
  }
  return column;
}

// Of each dimension of the result, the one that it repeats or moves.
std::optional<RingColumn> RelabelledColumn(const HloInstruction& instruction,
                                           const RingColumn& operand) {
  RingColumn column = operand;
  if (instruction.opcode() == HloOpcode::kTranspose) {
    for (size_t d = 0; d < column.labels.size(); ++d) {
      column.labels[d] = operand.labels[instruction.dimensions(d)];
    }
    return column;
  }
  if (operand.is_sum) return std::nullopt;
  if (operand.rows.size() == 1) column.has_rows = false;
  column.labels.assign(RankOf(instruction.shape()), RingColumn::kEqual);
  for (size_t d = 0; d < column.labels.size(); ++d) {
    if (instruction.shape().dimensions(d) == 1) {
      column.labels[d] = RingColumn::kUnit;
    }
  }
  for (size_t d = 0; d < operand.labels.size(); ++d) {
    column.labels[instruction.dimensions(d)] = operand.labels[d];
  }
  return column;
}

}  // namespace

FieldElement FieldElement::operator+(FieldElement other) const {
  return FieldElement(value_ + other.value_);
}

FieldElement FieldElement::operator*(FieldElement other) const {
  // 2^61 is 31.
  constexpr uint64_t kLow = (uint64_t{1} << 61) - 1;
  const absl::uint128 product = absl::uint128(value_) * other.value_;
  const absl::uint128 folded = (product >> 61) * 31 + (product & kLow);
  return FieldElement(absl::Uint128Low64(folded >> 61) * 31 +
                      (absl::Uint128Low64(folded) & kLow));
}

const RingColumn* RingColumns::Find(const HloInstruction& array) const {
  const auto found = columns_.find(&array);
  if (found != columns_.end()) return &found->second;
  return base_ == nullptr ? nullptr : base_->Find(array);
}

void RingColumns::Draw(const HloInstruction& array,
                       std::vector<int64_t> labels) {
  std::mt19937_64 random(context_->PlaceOf(array) + 1);
  const int64_t dimension = absl::c_find(labels, row_label_) - labels.begin();
  RingColumn column{std::move(labels), {}};
  for (int64_t i = 0; i < array.shape().dimensions(dimension); ++i) {
    column.rows.emplace_back(random());
  }
  num_rows_ += static_cast<int64_t>(column.rows.size());
  columns_[&array] = std::move(column);
}

const RingColumn* RingColumns::Operand(const HloInstruction& array) {
  const RingColumn* known = Find(array);
  if (known != nullptr) return known;
  const std::optional<FieldElement> number = UniformOf(array);
  if (!number.has_value()) return nullptr;
  RingColumn column{{}, {*number}, /*has_rows=*/false};
  for (const int64_t size : array.shape().dimensions()) {
    column.labels.push_back(size == 1 ? RingColumn::kUnit : RingColumn::kEqual);
  }
  return &(columns_[&array] = std::move(column));
}

bool RingColumns::MayBeRows(const RingColumn& column, int64_t dimension) const {
  const int64_t label = column.labels[dimension];
  if (label == row_label_) return true;
  return column.has_rows ? label == RingColumn::kUnit && column.rows.size() == 1
                         : label < 0;
}

std::optional<RingColumn> RingColumns::Moved(const HloInstruction& instruction,
                                             const RingColumn& operand) const {
  const xla::Shape& from = instruction.operand(0)->shape();
  const bool is_pad = instruction.opcode() == HloOpcode::kPad;
  const auto padding = [&](int64_t d) {
    return instruction.padding_config().dimensions(static_cast<int>(d));
  };
  const std::optional<int64_t> moved = OnlyDimension(from, [&](int64_t d) {
    if (instruction.opcode() == HloOpcode::kReverse) {
      return absl::c_linear_search(instruction.dimensions(), d);
    }
    if (!is_pad) return instruction.shape().dimensions(d) != from.dimensions(d);
    return padding(d).edge_padding_low() != 0 ||
           padding(d).edge_padding_high() != 0 ||
           (padding(d).interior_padding() != 0 && from.dimensions(d) > 1);
  });
  if (!moved.has_value()) return std::nullopt;
  if (*moved < 0) return operand;
  if (!MayBeRows(operand, *moved)) return std::nullopt;
  RingColumn column{operand.labels, {}, /*has_rows=*/true, operand.is_sum};
  column.labels[*moved] = row_label_;
  const int64_t size = instruction.shape().dimensions(*moved);
  const int64_t given = from.dimensions(*moved);
  column.rows.reserve(size);
  for (int64_t row = 0; row < size; ++row) {
    int64_t at = row;
    if (instruction.opcode() == HloOpcode::kReverse) {
      at = given - 1 - row;
    } else if (!is_pad) {
      at = instruction.slice_starts(*moved) +
           row * instruction.slice_strides(*moved);
    } else {
      at -= padding(*moved).edge_padding_low();
      const int64_t step = padding(*moved).interior_padding() + 1;
      at = at >= 0 && at % step == 0 ? at / step : -1;
      if (at >= given) at = -1;
    }
    column.rows.push_back(at < 0 ? FieldElement() : operand.At(at));
  }
  return column;
}

std::optional<RingColumn> RingColumns::Joined(
    const HloInstruction& instruction,
    absl::Span<const RingColumn* const> operands) const {
  const int64_t dimension = instruction.concatenate_dimension();
  RingColumn column = *operands[0];
  column.has_rows = true;
  column.rows.clear();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!MayBeRows(*operands[i], dimension) ||
        operands[i]->is_sum != column.is_sum) {
      return std::nullopt;
    }
    RingColumn operand = *operands[i];
    operand.labels[dimension] = column.labels[dimension] = row_label_;
    std::optional<std::vector<int64_t>> labels = CommonLabels(column, operand);
    if (!labels.has_value()) return std::nullopt;
    column.labels = *std::move(labels);
    const int64_t size = instruction.operand(static_cast<int64_t>(i))
                             ->shape()
                             .dimensions(dimension);
    for (int64_t row = 0; row < size; ++row) {
      column.rows.push_back(operand.At(row));
    }
  }
  return column;
}

std::optional<RingColumn> RingColumns::Reshaped(
    const HloInstruction& instruction, const RingColumn& operand) const {
  // Only dimensions of one element come and go; the order of the others stays.
  RingColumn column = operand;
  column.labels.assign(RankOf(instruction.shape()), RingColumn::kUnit);
  const xla::Shape& from = instruction.operand(0)->shape();
  int64_t to = 0;
  for (int64_t d = 0; d < RankOf(from); ++d) {
    const int64_t size = from.dimensions(d);
    if (size == 1) continue;
    while (to < RankOf(instruction.shape()) &&
           instruction.shape().dimensions(to) != size) {
      if (instruction.shape().dimensions(to) != 1) return std::nullopt;
      ++to;
    }
    if (to == RankOf(instruction.shape())) return std::nullopt;
    column.labels[to++] = operand.labels[d];
  }
  for (; to < RankOf(instruction.shape()); ++to) {
    if (instruction.shape().dimensions(to) != 1) return std::nullopt;
  }
  return column;
}

std::optional<RingColumn> RingColumns::Reduced(
    const HloInstruction& instruction, const RingColumn& operand) const {
  const auto operation = OperationOf(*instruction.to_apply());
  if (operation != HloOpcode::kAdd ||
      !IsNeutral(*instruction.operand(1), HloOpcode::kAdd)) {
    return std::nullopt;
  }
  RingColumn column{{}, operand.rows, operand.has_rows, operand.is_sum};
  std::vector<int64_t> reduced;
  for (int64_t d = 0; d < RankOf(instruction.operand(0)->shape()); ++d) {
    const int64_t label = operand.labels[d];
    if (!absl::c_linear_search(instruction.dimensions(), d)) {
      column.labels.push_back(label);
    } else if (label != RingColumn::kUnit) {
      reduced.push_back(label);
    }
  }
  absl::c_sort(reduced);
  if (reduced.empty()) return column;
  if (operand.is_sum || reduced != reduced_) return std::nullopt;
  column.is_sum = true;
  return column;
}

std::optional<RingColumn> RingColumns::Computed(
    const HloInstruction& instruction) {
  if (!IsRing(instruction.shape()) || !IsReplaceable(instruction)) {
    return std::nullopt;
  }
  for (const HloInstruction* operand : instruction.operands()) {
    if (Operand(*operand) == nullptr) return std::nullopt;
  }
  // The map moves its columns where it grows.
  std::vector<const RingColumn*> operands;
  for (const HloInstruction* operand : instruction.operands()) {
    operands.push_back(Find(*operand));
  }
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
    case HloOpcode::kMultiply:
      return CombinedColumn(instruction.opcode() == HloOpcode::kMultiply,
                            *operands[0], *operands[1]);
    case HloOpcode::kBroadcast:
    case HloOpcode::kTranspose:
      return RelabelledColumn(instruction, *operands[0]);
    case HloOpcode::kConcatenate:
      return Joined(instruction, operands);
    case HloOpcode::kCopy:
      return *operands[0];
    case HloOpcode::kPad:
      if (!operands[1]->IsZero()) return std::nullopt;
      return Moved(instruction, *operands[0]);
    case HloOpcode::kReduce:
      return Reduced(instruction, *operands[0]);
    case HloOpcode::kReshape:
      return Reshaped(instruction, *operands[0]);
    case HloOpcode::kReverse:
    case HloOpcode::kSlice:
      return Moved(instruction, *operands[0]);
    default:
      return std::nullopt;
  }
}

bool RingColumns::Follow(absl::Span<const HloInstruction* const> arrays) {
  using Next = std::pair<size_t, const HloInstruction*>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
  absl::flat_hash_set<const HloInstruction*> seen(arrays.begin(), arrays.end());
  const auto add_users = [&](const HloInstruction& instruction) {
    for (const HloInstruction* user : instruction.users()) {
      if (seen.insert(user).second) {
        open.emplace(context_->PlaceOf(*user), user);
      }
    }
  };
  for (const HloInstruction* array : arrays) add_users(*array);
  while (!open.empty()) {
    const HloInstruction& next = *open.top().second;
    open.pop();
    ++num_tried_;
    std::optional<RingColumn> column = Computed(next);
    if (!column.has_value()) continue;
    for (int64_t d = 0; d < RankOf(next.shape()); ++d) {
      if (next.shape().dimensions(d) == 1)
        column->labels[d] = RingColumn::kUnit;
    }
    num_rows_ += static_cast<int64_t>(column->rows.size());
    if (followed_.size() == kMaxFollowed || num_rows_ > kMaxColumnRows)
      return false;
    columns_[&next] = *std::move(column);
    followed_.push_back(&next);
    add_users(next);
  }
  return true;
}

}  // namespace hloenv
