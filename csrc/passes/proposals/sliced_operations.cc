// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/sliced_operations.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// Limits of the operations that are gone through, and of those that all slices
// together may add.
constexpr size_t kMaxInner = 48;
constexpr int64_t kMaxAdded = 512;

bool IsOfSameShapes(const HloInstruction& value) {
  // A copy may have another layout than what it copies.
  return value.IsElementwise() && value.operand_count() > 0 &&
         value.opcode() != HloOpcode::kCopy &&
         value.called_computations().empty() &&
         absl::c_all_of(value.operands(), [&value](const auto* operand) {
           return operand->shape().dimensions() == value.shape().dimensions();
         });
}

// The dimensions that do not have size 1.
std::vector<int64_t> LongDimensions(const xla::Shape& shape) {
  std::vector<int64_t> dimensions;
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    if (shape.dimensions(d) != 1) dimensions.push_back(d);
  }
  return dimensions;
}

bool OnlyMovesUnits(const HloInstruction& reshape) {
  const auto long_sizes = [](const xla::Shape& shape) {
    std::vector<int64_t> sizes;
    for (const int64_t d : LongDimensions(shape)) {
      sizes.push_back(shape.dimensions(d));
    }
    return sizes;
  };
  return long_sizes(reshape.shape()) == long_sizes(reshape.operand(0)->shape());
}

bool CanGoThrough(const HloInstruction& value) {
  if (!IsPlain(value)) return false;
  switch (value.opcode()) {
    case HloOpcode::kBroadcast:
    case HloOpcode::kTranspose:
      return true;
    case HloOpcode::kReshape:
      return OnlyMovesUnits(value);
    default:
      return IsOfSameShapes(value);
  }
}

// Which indices of the operands the indices of `value` are.
FixedIndices IndicesBelow(const HloInstruction& value,
                          const FixedIndices& fixed) {
  if (IsOfSameShapes(value)) return fixed;
  const xla::Shape& operand = value.operand(0)->shape();
  FixedIndices result(RankOf(operand), kAll);
  switch (value.opcode()) {
    case HloOpcode::kBroadcast:
      for (int64_t d = 0; d < RankOf(operand); ++d) {
        result[d] = fixed[value.dimensions(d)];
      }
      break;
    case HloOpcode::kTranspose:
      for (int64_t d = 0; d < RankOf(operand); ++d) {
        result[value.dimensions(d)] = fixed[d];
      }
      break;
    default: {  // reshape
      const std::vector<int64_t> to = LongDimensions(value.shape());
      const std::vector<int64_t> from = LongDimensions(operand);
      for (size_t i = 0; i < to.size(); ++i) result[from[i]] = fixed[to[i]];
    }
  }
  return result;
}

// How many dimensions before each one are not fixed.
std::vector<int64_t> Positions(const FixedIndices& fixed) {
  std::vector<int64_t> positions;
  int64_t next = 0;
  for (const int64_t index : fixed) {
    positions.push_back(next);
    if (index == kAll) ++next;
  }
  return positions;
}

xla::Shape WithoutFixed(const xla::Shape& shape, const FixedIndices& fixed) {
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    if (fixed[d] == kAll) sizes.push_back(shape.dimensions(d));
  }
  return xla::ShapeUtil::MakeShape(shape.element_type(), sizes);
}

HloInstruction* Reshaped(HloInstruction* value, const xla::Shape& shape) {
  if (value->shape().dimensions() == shape.dimensions()) return value;
  return value->parent()->AddInstruction(
      HloInstruction::CreateReshape(shape, value));
}

HloInstruction* SliceOf(HloInstruction* value, const FixedIndices& fixed) {
  if (FixesNone(fixed)) return value;
  const xla::Shape& shape = value->shape();
  std::vector<int64_t> starts, limits, sizes;
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    const bool is_all = fixed[d] == kAll;
    starts.push_back(is_all ? 0 : fixed[d]);
    limits.push_back(is_all ? shape.dimensions(d) : fixed[d] + 1);
    sizes.push_back(limits[d] - starts[d]);
  }
  HloInstruction* slice =
      value->parent()->AddInstruction(HloInstruction::CreateSlice(
          xla::ShapeUtil::MakeShape(shape.element_type(), sizes), value, starts,
          limits, std::vector<int64_t>(starts.size(), 1)));
  return Reshaped(slice, WithoutFixed(shape, fixed));
}

bool IsWidened(const HloInstruction& broadcast) {
  return xla::ShapeUtil::ElementsIn(broadcast.operand(0)->shape()) * 2 <=
         xla::ShapeUtil::ElementsIn(broadcast.shape());
}

// Of what can be gone through, what is computed once more at no cost: few
// operations on arrays that are broadcast.
class Repeatable {
 public:
  explicit Repeatable(bool repeats_products)
      : repeats_products_(repeats_products) {}

  bool operator()(const HloInstruction& value) {
    const auto [at, is_new] = known_.try_emplace(&value, false);
    if (is_new) {
      const bool found = Find(value);
      known_[&value] = found;
      return found;
    }
    return at->second;
  }

 private:
  bool Find(const HloInstruction& value) {
    if (!CanGoThrough(value) || known_.size() > kMaxInner ||
        (value.opcode() == HloOpcode::kMultiply && !repeats_products_)) {
      return false;
    }
    switch (value.opcode()) {
      case HloOpcode::kBroadcast:
        return IsWidened(value);
      case HloOpcode::kTranspose:
      case HloOpcode::kReshape:
      case HloOpcode::kConvert:
      case HloOpcode::kNegate:
      case HloOpcode::kAbs:
      case HloOpcode::kAdd:
      case HloOpcode::kSubtract:
      case HloOpcode::kMultiply:
      case HloOpcode::kMaximum:
      case HloOpcode::kMinimum:
      case HloOpcode::kCompare:
      case HloOpcode::kSelect:
        return absl::c_all_of(value.operands(), [this](const auto* operand) {
          return (*this)(*operand);
        });
      default:
        return false;
    }
  }

  const bool repeats_products_;
  absl::flat_hash_map<const HloInstruction*, bool> known_;
};

// What can be gone through from `value` on, operands before their users.
void AddInOrder(const HloInstruction& value, bool ends_at_broadcasts,
                absl::flat_hash_set<const HloInstruction*>& seen,
                std::vector<const HloInstruction*>& order) {
  if (seen.size() > kMaxInner || !CanGoThrough(value) ||
      !seen.insert(&value).second) {
    return;
  }
  const bool ends = ends_at_broadcasts &&
                    value.opcode() == HloOpcode::kBroadcast && IsWidened(value);
  for (const HloInstruction* operand : value.operands()) {
    if (!ends) AddInOrder(*operand, ends_at_broadcasts, seen, order);
  }
  order.push_back(&value);
}

}  // namespace

bool FixesNone(const FixedIndices& fixed) {
  return absl::c_all_of(fixed, [](int64_t index) { return index == kAll; });
}

SlicedOperations::SlicedOperations(const HloInstruction& value,
                                   const HloInstruction& reader,
                                   const FixedIndices& fixed, int64_t count,
                                   RuleContext& context, Options options)
    : value_(value) {
  absl::flat_hash_set<const HloInstruction*> seen;
  std::vector<const HloInstruction*> order;
  AddInOrder(value, options.ends_at_broadcasts, seen, order);
  // Those that nothing else reads, and those that may be computed once more.
  absl::flat_hash_set<const HloInstruction*> ours;
  Repeatable is_repeatable(options.repeats_products);
  for (size_t i = order.size(); i-- > 0 && seen.size() <= kMaxInner;) {
    const HloInstruction& each = *order[i];
    // What is compared with a part of it must be computed in one way.
    if (context.IsCompared(each)) continue;
    const bool is_ours =
        !each.IsRoot() &&
        absl::c_all_of(each.users(), [&](const HloInstruction* user) {
          return user == &reader || ours.contains(user);
        });
    if (is_ours) ours.insert(&each);
    if (is_ours || is_repeatable(each)) inner_.insert(&each);
  }
  // One value may be read at many indices.
  const size_t most =
      static_cast<size_t>(kMaxAdded / std::max<int64_t>(count, 1));
  Seen collected;
  Collect(value, fixed, most, collected);
  if (collected.size() > most) {
    inner_.clear();
    leaves_ = {&value};
    leaf_numbers_ = {{&value, 0}};
    reads_ = {{0, fixed}};
  }
}

bool SlicedOperations::IsLeaf(const HloInstruction& value,
                              const FixedIndices& fixed) const {
  return FixesNone(fixed) || !inner_.contains(&value);
}

void SlicedOperations::Collect(const HloInstruction& value,
                               const FixedIndices& fixed, size_t most,
                               Seen& seen) {
  if (seen.size() > most || !seen.insert({&value, fixed}).second) return;
  if (IsLeaf(value, fixed)) {
    const auto [at, is_new] = leaf_numbers_.try_emplace(&value, leaves_.size());
    if (is_new) leaves_.push_back(&value);
    reads_.push_back({at->second, fixed});
    return;
  }
  const FixedIndices below = IndicesBelow(value, fixed);
  for (const HloInstruction* operand : value.operands()) {
    Collect(*operand, below, most, seen);
  }
}

HloInstruction* SlicedOperations::At(
    const FixedIndices& fixed, absl::Span<HloInstruction* const> leaves) const {
  return At(fixed, [leaves](const LeafRead& read) {
    return SliceOf(leaves[read.leaf], read.fixed);
  });
}

HloInstruction* SlicedOperations::At(const FixedIndices& fixed,
                                     ElementsOf elements) const {
  std::map<std::pair<const HloInstruction*, FixedIndices>, HloInstruction*>
      built;
  const auto build = [&](const auto& self, const HloInstruction& value,
                         const FixedIndices& at) -> HloInstruction* {
    HloInstruction*& result = built[{&value, at}];
    if (result != nullptr) return result;
    if (IsLeaf(value, at)) {
      return result = elements({leaf_numbers_.at(&value), at});
    }
    const FixedIndices below = IndicesBelow(value, at);
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : value.operands()) {
      operands.push_back(self(self, *operand, below));
    }
    const xla::Shape shape = WithoutFixed(value.shape(), at);
    if (IsOfSameShapes(value)) {
      return result = CloneBeside(value, shape, operands);
    }
    if (value.opcode() == HloOpcode::kReshape) {
      return result = Reshaped(operands[0], shape);
    }
    // The dimensions of the operand that are left, in those of the result.
    const bool is_broadcast = value.opcode() == HloOpcode::kBroadcast;
    const FixedIndices& numbered = is_broadcast ? at : below;
    const std::vector<int64_t> positions = Positions(numbered);
    std::vector<int64_t> dimensions;
    for (size_t d = 0; d < value.dimensions().size(); ++d) {
      const int64_t dimension = value.dimensions(d);
      if (numbered[dimension] == kAll) {
        dimensions.push_back(positions[dimension]);
      }
    }
    return result = operands[0]->parent()->AddInstruction(
               is_broadcast ? HloInstruction::CreateBroadcast(
                                  shape, operands[0], dimensions)
                            : HloInstruction::CreateTranspose(
                                  shape, operands[0], dimensions));
  };
  return build(build, value_, fixed);
}

}  // namespace hloenv
