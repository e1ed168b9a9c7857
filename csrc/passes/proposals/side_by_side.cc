// SPDX-License-Identifier: Apache-2.0
// Proposes reductions of several rows side by side for one over dimensions
// before few columns, as the statistics of colours and of features are: the
// backend makes vectors of the last dimension alone, which is short there.
//
// Before:  s = f32[3] reduce(x: f32[65536,3], 0), dimensions={0}, add
// After:   c = f32[48] reduce(reshape(x): f32[4096,48], 0), dimensions={0}, add
//          s = f32[3] reduce(reshape(c): f32[16,3], 0), dimensions={0}, add
//
// What a sum is computed of, elementwise, is side by side, too, and numbers of
// the columns are repeated: `reshape(x - broadcast(m))` would be computed
// element by element.
#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/two_reductions.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/service/instruction_fusion.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Of columns that are few, and of the rows that are made of them.
constexpr int64_t kMostColumns = 16;
constexpr int64_t kWidest = 64;
// Of the operations that a sum is computed by.
constexpr size_t kMostOperations = 32;

// The dimensions of what is reduced: groups and columns, which are kept, around
// rows, of which some are together.
struct SideBySide {
  int64_t groups, rows, columns, together;
  // Of the operand, with those of size 1: where rows begin and where they end.
  int64_t first_row, first_column;

  Sizes merged() const { return {groups, rows / together, together * columns}; }
  TwoReductions two(HloOpcode operation) const {
    return {operation, merged(), {1}, {groups, together, columns}, 1};
  }
};

std::optional<SideBySide> SideBySideOf(const HloInstruction& reduce,
                                       const Reduced& reduced) {
  const size_t end = reduced.sizes.size();
  const size_t columns = reduced.FirstBefore(end, false);
  const size_t rows = reduced.FirstBefore(columns, true);
  if (columns == end || rows == columns || reduced.FirstBefore(rows, false)) {
    return std::nullopt;
  }
  const auto all = absl::MakeConstSpan(reduced.sizes);
  SideBySide found = {};
  found.groups = ProductOf(all.first(rows));
  found.rows = ProductOf(all.subspan(rows, columns - rows));
  found.columns = ProductOf(all.subspan(columns));
  if (found.groups == 0 || found.columns == 0 || found.columns > kMostColumns) {
    return std::nullopt;
  }
  int64_t together = std::min(kWidest / found.columns, found.rows / 2);
  while (together > 1 && found.rows % together != 0) --together;
  if (together <= 1) return std::nullopt;
  found.together = together;
  const auto is_reduced = [&](int64_t d) {
    return reduce.operand(0)->shape().dimensions(d) > 1 &&
           absl::c_linear_search(reduce.dimensions(), d);
  };
  while (!is_reduced(found.first_row)) ++found.first_row;
  found.first_column = RankOf(reduce.operand(0)->shape());
  while (!is_reduced(found.first_column - 1)) --found.first_column;
  return found;
}

// Whether a kernel of its own writes a value, so that a reshape of it is free.
bool IsInMemory(const HloInstruction& value) {
  switch (value.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kReshape:
      return IsInMemory(*value.operand(0));
    case HloOpcode::kCall:
    case HloOpcode::kConstant:
    case HloOpcode::kConvolution:
    case HloOpcode::kCustomCall:
    case HloOpcode::kDot:
    case HloOpcode::kFft:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kParameter:
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kScatter:
    case HloOpcode::kSort:
      return true;
    default:
      return value.IsElementwise();  // what several read, and is expensive
  }
}

// What is reduced, side by side, computed of arrays that are.
class Terms {
 public:
  Terms(const HloInstruction& value, const SideBySide& sizes)
      : value_(value), sizes_(sizes) {
    Collect(value);
  }

  // Whether all of them are in memory, or repeat numbers.
  bool are_in_memory() const { return are_in_memory_; }
  bool repeats_columns() const { return repeats_columns_; }

  // Takes `value` as it is.
  void TakeWhole() {
    inner_.clear();
    leaves_ = {&value_};
  }

  // The arrays, each once.
  const std::vector<const HloInstruction*>& leaves() const { return leaves_; }

  // From the images of the leaves.
  absl::StatusOr<HloInstruction*> Build(
      absl::Span<HloInstruction* const> x) const {
    Built built;
    return Of(value_, x, built);
  }

 private:
  bool IsInner(const HloInstruction& value) const {
    const bool is_again = value.user_count() > 1 || value.IsRoot();
    return value.IsElementwise() && value.opcode() != HloOpcode::kMap &&
           value.operand_count() > 0 && !value.HasSideEffect() &&
           !(is_again && xla::InstructionFusion::IsExpensive(value)) &&
           inner_.size() < kMostOperations;
  }

  // Whether it repeats numbers of groups and columns for each row.
  bool IsRepeated(const HloInstruction& value) const {
    return value.opcode() == HloOpcode::kBroadcast &&
           absl::c_all_of(value.dimensions(), [&](int64_t d) {
             return d < sizes_.first_row || d >= sizes_.first_column ||
                    value.shape().dimensions(d) == 1;
           });
  }

  void Collect(const HloInstruction& value) {
    if (inner_.contains(&value)) return;
    if (RankOf(value.shape()) > 0 && IsInner(value)) {
      inner_.insert(&value);
      for (const HloInstruction* operand : value.operands()) Collect(*operand);
      return;
    }
    const HloInstruction* leaf = &value;
    if (IsRepeated(value)) {
      leaf = value.operand(0);
      repeats_columns_ |= xla::ShapeUtil::ElementsIn(leaf->shape()) > 1;
    } else {
      are_in_memory_ &= IsInMemory(value);
    }
    if (!absl::c_linear_search(leaves_, leaf)) leaves_.push_back(leaf);
  }

  HloInstruction* ImageOf(const HloInstruction* leaf,
                          absl::Span<HloInstruction* const> x) const {
    return x[absl::c_find(leaves_, leaf) - leaves_.begin()];
  }

  using Built = absl::flat_hash_map<const HloInstruction*, HloInstruction*>;

  absl::StatusOr<HloInstruction*> Of(const HloInstruction& value,
                                     absl::Span<HloInstruction* const> x,
                                     Built& built) const {
    const auto known = built.find(&value);
    if (known != built.end()) return known->second;
    HLOENV_ASSIGN_OR_RETURN(HloInstruction * result, New(value, x, built));
    return built[&value] = result;
  }

  absl::StatusOr<HloInstruction*> New(const HloInstruction& value,
                                      absl::Span<HloInstruction* const> x,
                                      Built& built) const {
    if (inner_.contains(&value)) {
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : value.operands()) {
        HLOENV_ASSIGN_OR_RETURN(operands.emplace_back(),
                                Of(*operand, x, built));
      }
      return x[0]->parent()->AddInstruction(value.CloneWithNewOperands(
          xla::ShapeUtil::MakeShape(value.shape().element_type(),
                                    sizes_.merged()),
          operands));
    }
    if (absl::c_linear_search(leaves_, &value)) {
      HloInstruction* leaf = ImageOf(&value, x);
      // A limit of `clamp`, or what `select` selects by.
      if (RankOf(value.shape()) == 0) return leaf;
      return xla::MakeReshapeHlo(sizes_.merged(), leaf);
    }
    return Repeated(value, ImageOf(value.operand(0), x));
  }

  absl::StatusOr<HloInstruction*> Repeated(const HloInstruction& broadcast,
                                           HloInstruction* numbers) const {
    if (xla::ShapeUtil::ElementsIn(numbers->shape()) == 1) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * number,
                              xla::MakeReshapeHlo(Sizes{}, numbers));
      return xla::MakeBroadcastHlo(number, {}, sizes_.merged());
    }
    const absl::Span<const int64_t> all = broadcast.shape().dimensions();
    const bool is_by_group =
        absl::c_any_of(broadcast.dimensions(),
                       [&](int64_t d) { return d < sizes_.first_row; });
    // In memory, as what repeats in a row is not a vector.
    HLOENV_ASSIGN_OR_RETURN(
        HloInstruction * row,
        InOwnKernel(
            {numbers},
            [&](absl::Span<HloInstruction* const> parameters)
                -> absl::StatusOr<HloInstruction*> {
              // [groups of each dimension, rows together, columns likewise]
              Sizes sizes;
              Sizes places(all.size(), -1);
              for (int64_t d = 0; is_by_group && d < sizes_.first_row; ++d) {
                places[d] = static_cast<int64_t>(sizes.size());
                sizes.push_back(all[d]);
              }
              sizes.push_back(sizes_.together);
              Sizes of_parameter;
              for (size_t d = sizes_.first_column; d < all.size(); ++d) {
                places[d] = static_cast<int64_t>(sizes.size());
                sizes.push_back(all[d]);
              }
              Sizes kept;
              for (size_t i = 0; i < broadcast.dimensions().size(); ++i) {
                const int64_t place = places[broadcast.dimensions(i)];
                if (place < 0) continue;  // of size 1
                of_parameter.push_back(place);
                kept.push_back(parameters[0]->shape().dimensions(i));
              }
              HLOENV_ASSIGN_OR_RETURN(HloInstruction * needed,
                                      xla::MakeReshapeHlo(kept, parameters[0]));
              const int64_t width = sizes_.merged()[2];
              return xla::MakeReshapeHlo(
                  is_by_group ? Sizes{sizes_.groups, width} : Sizes{width},
                  xla::MakeBroadcastHlo(needed, of_parameter, sizes));
            }));
    return xla::MakeBroadcastHlo(row, is_by_group ? Sizes{0, 2} : Sizes{2},
                                 sizes_.merged());
  }

  const HloInstruction& value_;
  const SideBySide sizes_;
  absl::flat_hash_set<const HloInstruction*> inner_;
  std::vector<const HloInstruction*> leaves_;
  bool are_in_memory_ = true;
  bool repeats_columns_ = false;
};

void ProposeSideBySide(const HloInstruction& root, RuleContext& context,
                       std::vector<Proposal>& proposals) {
  const std::optional<Reduced> reduced = ReducedOf(root, context);
  if (!reduced.has_value()) return;
  const std::optional<SideBySide> sizes = SideBySideOf(root, *reduced);
  if (!sizes.has_value()) return;
  Terms terms(*root.operand(0), *sizes);
  if (!terms.are_in_memory()) return;
  // Others of a value may be compared with the largest of them.
  if (reduced->operation != HloOpcode::kAdd) {
    if (terms.repeats_columns()) return;
    terms.TakeWhole();
  }
  std::vector<const HloInstruction*> reads = terms.leaves();
  if (!absl::c_linear_search(reads, root.operand(1))) {
    reads.push_back(root.operand(1));
  }
  const size_t initial = absl::c_find(reads, root.operand(1)) - reads.begin();
  Propose(
      SideBySideRule(), root, reads,
      [terms, initial, two = sizes->two(reduced->operation),
       &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * merged, terms.Build(x));
        return BuildTwo(two, root, merged, x[initial]);
      },
      proposals);
}

}  // namespace

const Rule& SideBySideRule() {
  static constexpr Rule rule = {
      "side_by_side",
      "Rewrites a reduction, by one operation, over dimensions before few "
      "columns as two: first of several rows side by side, as vectors, then "
      "of their parts, in a call that XLA does not inline. Floats may round "
      "differently.",
      &ProposeSideBySide};
  return rule;
}

}  // namespace hloenv
