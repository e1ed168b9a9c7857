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
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/prefix_order.h"
#include "passes/proposals/prefix_tree.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/row_loops.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxRows = int64_t{1} << 30;

// A loop that has all results of one scan.
class PrefixLoop {
 public:
  // `roots` are the last instructions of trees of the same joins, of which
  // `results` are the numbers of their elements in `tree`.
  PrefixLoop(PrefixTree tree, std::vector<const HloInstruction*> roots,
             std::vector<size_t> results)
      : tree_(std::move(tree)),
        roots_(std::move(roots)),
        results_(std::move(results)),
        is_wide_(IsWide(tree_)) {
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

  std::vector<HloInstruction*> Build(
      absl::Span<HloInstruction* const> given) const {
    std::vector<HloInstruction*> arrays;
    for (HloInstruction* array : given) {
      arrays.push_back(
          Converted({array, ""}, StoredType(array->shape())).value);
    }
    // The state, the results, zeros and the arrays.
    std::vector<HloInstruction*> state;
    std::vector<HloInstruction*> zeros;
    std::vector<HloInstruction*> first;
    for (const HloInstruction* root : roots_) {
      zeros.push_back(ZeroBeside(arrays[0], root->shape()));
    }
    for (const size_t i : state_) {
      first.push_back(RowAt(i, arrays[PlaceOf(i)], nullptr));
      state.push_back(Widened(first.back(), is_wide_));
    }
    for (size_t k = 0; k < roots_.size(); ++k) {
      xla::Shape shape = roots_[k]->shape();
      shape.set_element_type(StoredType(shape));
      HloInstruction* results = arrays[0]->AddInstruction(
          HloInstruction::CreateBroadcast(shape, zeros[k], {}));
      state.push_back(Updated(k, results, first[StateOf(results_[k])],
                              IntegerBeside(results, 0), zeros[k]));
    }
    absl::c_copy(zeros, std::back_inserter(state));
    absl::c_copy(arrays, std::back_inserter(state));
    const auto trips = static_cast<int32_t>(tree_.size - 1);
    const std::vector<HloInstruction*> last = CountedLoop(
        trips, state,
        [this](HloInstruction* index, absl::Span<HloInstruction* const> now) {
          return Iteration(index, now);
        });
    std::vector<HloInstruction*> results;
    for (size_t k = 0; k < roots_.size(); ++k) {
      results.push_back(Converted({last[state_.size() + k], ""},
                                  roots_[k]->shape().element_type())
                            .value);
    }
    return results;
  }

 private:
  // Adds which elements of second operands an instruction needs.
  void AddReads(const HloInstruction& instruction) {
    if (!inside_.insert(&instruction).second) return;
    const auto operand = tree_.operands.find(&instruction);
    const bool is_read = operand != tree_.operands.end();
    if (is_read && operand->second.is_second) {
      seconds_.push_back(operand->second.element);
    }
    if (!is_read && !tree_.constants[0].contains(&instruction)) {
      for (const HloInstruction* each : instruction.operands()) AddReads(*each);
    }
    order_.push_back(&instruction);
  }

  size_t PlaceOf(size_t element) const {
    return absl::c_find(read_, element) - read_.begin();
  }
  size_t StateOf(size_t element) const {
    return absl::c_find(state_, element) - state_.begin();
  }

  std::vector<HloInstruction*> Iteration(
      HloInstruction* index, absl::Span<HloInstruction* const> state) const {
    HloInstruction* at = WithInteger(HloOpcode::kAdd, index, 1);
    const absl::Span<HloInstruction* const> results =
        state.subspan(state_.size());
    const absl::Span<HloInstruction* const> zeros =
        results.subspan(roots_.size());
    const absl::Span<HloInstruction* const> arrays =
        zeros.subspan(roots_.size());
    absl::flat_hash_map<const HloInstruction*, HloInstruction*> images;
    for (const HloInstruction* each : order_) {
      const auto operand = tree_.operands.find(each);
      const auto constant = tree_.constants[0].find(each);
      if (operand != tree_.operands.end()) {
        const size_t i = operand->second.element;
        images[each] = operand->second.is_second
                           ? Widened(RowAt(i, arrays[PlaceOf(i)], at), is_wide_)
                           : state[StateOf(i)];
      } else if (constant != tree_.constants[0].end()) {
        HloInstruction* number = index->AddInstruction(
            HloInstruction::CreateConstant(constant->second->Clone()));
        images[each] = index->AddInstruction(HloInstruction::CreateBroadcast(
            RowShapeOf(*each), Widened(number, is_wide_), {}));
      } else {
        std::vector<HloInstruction*> operands;
        for (const HloInstruction* other : each->operands()) {
          operands.push_back(images.at(other));
        }
        images[each] = CloneBeside(*each, RowShapeOf(*each), operands);
      }
    }
    std::vector<HloInstruction*> next;
    for (const size_t i : state_) next.push_back(images.at(tree_.joins[i]));
    for (size_t k = 0; k < roots_.size(); ++k) {
      next.push_back(
          Updated(k, results[k], next[StateOf(results_[k])], at, zeros[k]));
    }
    absl::c_copy(state.subspan(next.size()), std::back_inserter(next));
    return next;
  }

  // Of one row of what joins are computed by.
  xla::Shape RowShapeOf(const HloInstruction& instruction) const {
    xla::Shape shape = instruction.shape();
    shape.set_dimensions(tree_.row_dimensions.at(&instruction), 1);
    shape.set_element_type(JoinedType(shape, is_wide_));
    return shape;
  }
  // One row of an array, the first if `at` is null.
  HloInstruction* RowAt(size_t element, HloInstruction* array,
                        HloInstruction* at) const {
    const int64_t dimension = tree_.dimensions[element];
    if (at == nullptr) return SliceAlong(array, dimension, 0, 1).value();
    return DynamicSliceAlong(array, dimension, at, 1);
  }
  HloInstruction* Updated(size_t result, HloInstruction* results,
                          HloInstruction* row, HloInstruction* at,
                          HloInstruction* zero) const {
    return WithRow(results, tree_.dimensions[results_[result]], at, row, zero);
  }

  const PrefixTree tree_;
  const std::vector<const HloInstruction*> roots_;
  const std::vector<size_t> results_;
  const bool is_wide_;
  std::vector<size_t> state_;    // elements of the state
  std::vector<size_t> read_;     // elements whose arrays are read
  std::vector<size_t> seconds_;  // elements of second operands
  absl::flat_hash_set<const HloInstruction*> inside_;
  // What computes the state, what it reads first.
  std::vector<const HloInstruction*> order_;
};

// Trees of the same joins, by their last instructions in post order.
struct Scan {
  PrefixTree tree;  // of all elements
  std::vector<const HloInstruction*> roots;
  std::vector<size_t> results;

  // Takes a tree of some of the elements, of whose results none is computed.
  bool Add(const HloInstruction& root, const PrefixTree& other,
           RuleContext& context) {
    std::vector<size_t> places;
    for (size_t i = 0; i < other.elements.size(); ++i) {
      const auto found = absl::c_find(tree.elements, other.elements[i]);
      const size_t place = found - tree.elements.begin();
      if (found == tree.elements.end() || tree.joins[place] != other.joins[i] ||
          tree.dimensions[place] != other.dimensions[i]) {
        return false;
      }
      places.push_back(place);
    }
    const auto is_computed = [&](const HloInstruction* element) {
      return context.Reaches(root, *element);
    };
    if (absl::c_any_of(tree.elements, is_computed)) return false;
    for (size_t i = 0; i < places.size(); ++i) {
      if (other.is_state[i]) tree.is_state[places[i]] = true;
    }
    roots.insert(roots.begin(), &root);
    results.insert(results.begin(), places[0]);
    return true;
  }
};

// The scans of a computation, without trees that others consist of.
std::vector<Scan> ScansOf(RuleContext& context) {
  const std::vector<const HloInstruction*>& order = context.post_order();
  std::vector<Scan> scans;
  absl::flat_hash_set<const HloInstruction*> inner;
  for (auto each = order.rbegin(); each != order.rend(); ++each) {
    if (inner.contains(*each) || !IsPlain(**each)) continue;
    const std::optional<PrefixTree> tree = PrefixTreeOf(**each);
    if (!tree.has_value()) continue;
    inner.insert(tree->roots.begin(), tree->roots.end());
    if (tree->size > kMaxRows || !HasFastRows(*tree) || !IsOrderFree(*tree)) {
      continue;
    }
    const bool is_added = std::any_of(
        scans.begin(), scans.end(),
        [&](Scan& scan) { return scan.Add(**each, *tree, context); });
    if (!is_added) scans.push_back({*tree, {*each}, {0}});
  }
  return scans;
}

void ProposePrefixes(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  auto& scans = context.Memo<std::optional<std::vector<Scan>>>();
  if (!scans.has_value()) scans = ScansOf(context);
  for (const Scan& scan : *scans) {
    if (scan.roots.back() != &root) continue;
    const PrefixLoop loop(scan.tree, scan.roots, scan.results);
    ProposeMany(
        PrefixesRule(), scan.roots, loop.reads(),
        [loop](absl::Span<HloInstruction* const> x)
            -> absl::StatusOr<std::vector<HloInstruction*>> {
          return AllInCall(x, [&loop](const auto& y) { return loop.Build(y); });
        },
        proposals);
    // Gradients read the results.
    proposals.back().reads_decided = true;
  }
}

}  // namespace

const Rule& PrefixesRule() {
  static constexpr Rule rule = {
      "prefixes",
      "Rewrites the results for all prefixes of rows that "
      "jax.lax.associative_scan computes by a tree, such as a linear "
      "recurrence, as a loop over the rows. Floats may round differently: "
      "products, and sums of 256 rows and more, are of a wider type.",
      &ProposePrefixes};
  return rule;
}

}  // namespace hloenv
