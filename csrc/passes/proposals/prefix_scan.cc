// SPDX-License-Identifier: Apache-2.0
// Proposes loops for results of all prefixes that jax.lax.associative_scan
// computes by a tree: for n rows, some 4 log2(n) kernels, which together read
// and write each row several times. A recurrence such as
//
//   h[i] = a[i] * h[i - 1] + b[i]
//
// becomes
//
//   row = b[0]; h[0] = row
//   for i in 1..n: row = a[i] * row + b[i]; h[i] = row
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/counted_loop.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/prefix_tree.h"
#include "passes/proposals/reduce_rules.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxRows = int64_t{1} << 30;
// Parts of a row, each in a place of its own, above which it is read slowly,
// and bytes of each of them from which on it is not.
constexpr int64_t kFewParts = 8;
constexpr int64_t kLongPart = 16;
// Rows from which floats are added up, or multiplied, as float64.
constexpr int64_t kLongLoop = 256;

class PrefixLoop {
 public:
  PrefixLoop(PrefixTree tree, const HloInstruction& root)
      : tree_(std::move(tree)), root_(root) {
    const auto is_rounded = [](const auto& each) {
      return each.first->opcode() == HloOpcode::kAdd ||
             each.first->opcode() == HloOpcode::kSubtract ||
             each.first->opcode() == HloOpcode::kMultiply;
    };
    is_long_ = tree_.size >= kLongLoop &&
               absl::c_any_of(tree_.row_dimensions, is_rounded);
    for (size_t i = 0; i < tree_.elements.size(); ++i) {
      if (tree_.is_state[i]) AddReads(*tree_.joins[i]);
    }
    for (size_t i = 0; i < tree_.elements.size(); ++i) {
      if (tree_.is_state[i]) state_.push_back(i);
      if (tree_.is_state[i] || absl::c_linear_search(seconds_, i)) {
        read_.push_back(i);
      }
    }
  }

  std::vector<const HloInstruction*> reads() const {
    std::vector<const HloInstruction*> arrays;
    for (const size_t i : read_) arrays.push_back(tree_.elements[i]);
    return arrays;
  }

  HloInstruction* Build(absl::Span<HloInstruction* const> arrays) const {
    std::vector<HloInstruction*> initial;
    HloInstruction* results = nullptr;
    for (const size_t i : state_) {
      HloInstruction* first = RowAt(i, arrays[PlaceOf(i)], nullptr);
      initial.push_back(Widened(first));
      if (i == tree_.result) results = first;
    }
    HloInstruction* zero =
        results->AddInstruction(HloInstruction::CreateConstant(
            xla::LiteralUtil::Zero(root_.shape().element_type())));
    HloInstruction* zeros = results->AddInstruction(
        HloInstruction::CreateBroadcast(root_.shape(), zero, {}));
    initial.push_back(Updated(zeros, results, IntegerBeside(results, 0)));
    absl::c_copy(arrays, std::back_inserter(initial));
    const auto trips = static_cast<int32_t>(tree_.size - 1);
    return CountedLoop(
        trips, initial,
        [this](HloInstruction* index, absl::Span<HloInstruction* const> state) {
          return Iteration(index, state);
        })[state_.size()];
  }

 private:
  // Adds which elements of second operands an instruction needs.
  void AddReads(const HloInstruction& instruction) {
    if (!inside_.insert(&instruction).second) return;
    if (tree_.constants[0].contains(&instruction)) return;
    const auto operand = tree_.operands.find(&instruction);
    if (operand == tree_.operands.end()) {
      for (const HloInstruction* each : instruction.operands()) AddReads(*each);
      order_.push_back(&instruction);
    } else if (operand->second.is_second) {
      seconds_.push_back(operand->second.element);
    }
  }

  size_t PlaceOf(size_t element) const {
    return absl::c_find(read_, element) - read_.begin();
  }
  size_t StateOf(size_t element) const {
    return absl::c_find(state_, element) - state_.begin();
  }

  // The state is that after the row before, the results, and the arrays.
  std::vector<HloInstruction*> Iteration(
      HloInstruction* index, absl::Span<HloInstruction* const> state) const {
    HloInstruction* at = index->AddInstruction(HloInstruction::CreateBinary(
        index->shape(), HloOpcode::kAdd, index, IntegerBeside(index, 1)));
    const absl::Span<HloInstruction* const> arrays =
        state.subspan(state_.size() + 1);
    absl::flat_hash_map<const HloInstruction*, HloInstruction*> images;
    for (const auto& [slice, operand] : tree_.operands) {
      if (!inside_.contains(slice)) continue;
      const size_t i = operand.element;
      images[slice] = operand.is_second
                          ? Widened(RowAt(i, arrays[PlaceOf(i)], at))
                          : state[StateOf(i)];
    }
    for (const auto& [broadcast, number] : tree_.constants[0]) {
      HloInstruction* constant = index->AddInstruction(
          HloInstruction::CreateConstant(number->Clone()));
      images[broadcast] = index->AddInstruction(HloInstruction::CreateBroadcast(
          RowShapeOf(*broadcast), Widened(constant), {}));
    }
    for (const HloInstruction* each : order_) {
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : each->operands()) {
        operands.push_back(images.at(operand));
      }
      images[each] = CloneBeside(*each, RowShapeOf(*each), operands);
    }
    std::vector<HloInstruction*> next;
    for (const size_t i : state_) next.push_back(images.at(tree_.joins[i]));
    HloInstruction* row = Converted({next[StateOf(tree_.result)], ""},
                                    root_.shape().element_type())
                              .value;
    next.push_back(Updated(state[state_.size()], row, at));
    absl::c_copy(arrays, std::back_inserter(next));
    return next;
  }

  // Of one row of what joins are computed by.
  xla::Shape RowShapeOf(const HloInstruction& instruction) const {
    xla::Shape shape = instruction.shape();
    shape.set_dimensions(tree_.row_dimensions.at(&instruction), 1);
    shape.set_element_type(TypeOf(shape));
    return shape;
  }
  // The type in which numbers are joined.
  xla::PrimitiveType TypeOf(const xla::Shape& shape) const {
    const xla::PrimitiveType wide = AccumulationType(shape.element_type());
    if (is_long_ && wide == xla::F32) return xla::F64;
    return is_long_ && wide == xla::C64 ? xla::C128 : wide;
  }
  HloInstruction* Widened(HloInstruction* row) const {
    return Converted({row, ""}, TypeOf(row->shape())).value;
  }

  // One row of an array, the first if `at` is null.
  HloInstruction* RowAt(size_t element, HloInstruction* array,
                        HloInstruction* at) const {
    const int64_t dimension = tree_.dimensions[element];
    if (at == nullptr) return SliceAlong(array, dimension, 0, 1).value();
    xla::Shape shape = array->shape();
    shape.set_dimensions(dimension, 1);
    return array->AddInstruction(HloInstruction::CreateDynamicSlice(
        shape, array, StartsOf(*array, dimension, at), shape.dimensions()));
  }
  HloInstruction* Updated(HloInstruction* results, HloInstruction* row,
                          HloInstruction* at) const {
    return results->AddInstruction(HloInstruction::CreateDynamicUpdateSlice(
        results->shape(), results, row,
        StartsOf(*results, tree_.dimensions[tree_.result], at)));
  }
  static std::vector<HloInstruction*> StartsOf(const HloInstruction& array,
                                               int64_t dimension,
                                               HloInstruction* at) {
    std::vector<HloInstruction*> starts(RankOf(array.shape()),
                                        IntegerBeside(at, 0));
    starts[dimension] = at;
    return starts;
  }

  const PrefixTree tree_;
  const HloInstruction& root_;
  bool is_long_;
  std::vector<size_t> state_;    // elements of the state
  std::vector<size_t> read_;     // elements whose arrays are read
  std::vector<size_t> seconds_;  // elements of second operands
  absl::flat_hash_set<const HloInstruction*> inside_;
  std::vector<const HloInstruction*> order_;  // what computes the state
};

// Whether the rows of an array are fast to read and write, one at a time.
bool HasFastRows(const HloInstruction& array, int64_t dimension) {
  int64_t parts = 1;
  for (int64_t d = 0; d < dimension; ++d) parts *= array.shape().dimensions(d);
  return parts <= kFewParts ||
         xla::ShapeUtil::ByteSizeOf(array.shape()) >=
             parts * array.shape().dimensions(dimension) * kLongPart;
}

// The trees of a computation, by their last instructions, without those that
// others consist of.
using Trees = absl::flat_hash_map<const HloInstruction*, PrefixTree>;

Trees TreesOf(const std::vector<const HloInstruction*>& post_order) {
  Trees trees;
  absl::flat_hash_set<const HloInstruction*> inner;
  for (auto each = post_order.rbegin(); each != post_order.rend(); ++each) {
    if (inner.contains(*each)) continue;
    std::optional<PrefixTree> tree = PrefixTreeOf(**each);
    if (!tree.has_value()) continue;
    inner.insert(tree->roots.begin(), tree->roots.end());
    trees.emplace(*each, *std::move(tree));
  }
  return trees;
}

void ProposePrefixes(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  auto& trees = context.Memo<std::optional<Trees>>();
  if (!trees.has_value()) trees = TreesOf(context.post_order());
  const auto found = trees->find(&root);
  if (found == trees->end() || !IsPlain(root)) return;
  const PrefixTree& tree = found->second;
  if (tree.size > kMaxRows ||
      !HasFastRows(root, tree.dimensions[tree.result])) {
    return;
  }
  const PrefixLoop loop(tree, root);
  Propose(
      PrefixesRule(), root, loop.reads(),
      [loop](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> { return loop.Build(x); },
      proposals);
}

}  // namespace

const Rule& PrefixesRule() {
  static constexpr Rule rule = {
      "prefixes",
      "Rewrites the results for all prefixes of rows that "
      "jax.lax.associative_scan computes by a tree, such as a linear "
      "recurrence, as a loop over the rows. Floats may round differently; 256 "
      "rows and more are joined in a wider type.",
      &ProposePrefixes};
  return rule;
}

}  // namespace hloenv
