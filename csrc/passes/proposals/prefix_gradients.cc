// SPDX-License-Identifier: Apache-2.0
// Proposes loops for gradients of recurrences that jax.lax.associative_scan
// computes by a tree. Of
//
//   h[i] = a[i] * h[i - 1] + b[i]
//
// and of what depends on h by its gradient d, those of b and of a are
//
//   g[i] = d[i] + a[i + 1] * g[i + 1]
//   e[i] = g[i] * h[i - 1]
//
// JAX transposes the tree, which takes twice its kernels, and reads what the
// tree computes on the way. The arrays are found by their values in a finite
// field (ring_columns.h), in whatever way they are computed.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/counted_loop.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/prefix_tree.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/ring_columns.h"
#include "passes/proposals/row_loops.h"
#include "support/status.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxGradientRows = int64_t{1} << 18;
// Of all searches in one computation (RingColumns::work): about half a second.
constexpr int64_t kMaxColumnWork = int64_t{1} << 26;

// h[i] = a[i] * h[i - 1] + b[i]. Without `a`, its factors are 1; without `b`,
// it starts with a[0].
struct Recurrence {
  const HloInstruction* h = nullptr;
  const HloInstruction* a = nullptr;
  const HloInstruction* b = nullptr;
  std::vector<int64_t> labels;    // of h and b
  std::vector<int64_t> labels_a;  // which may lack some
  int64_t dimension = 0;          // of the rows, in h
  int64_t dimension_a = 0;
  int64_t size = 0;
  bool is_wide = false;
};

// Gradients of one recurrence.
struct Gradients {
  Recurrence recurrence;
  const HloInstruction* d = nullptr;
  const HloInstruction* of_a = nullptr;
  const HloInstruction* of_b = nullptr;

  std::vector<const HloInstruction*> originals() const {
    std::vector<const HloInstruction*> found;
    if (of_a != nullptr) found.push_back(of_a);
    if (of_b != nullptr) found.push_back(of_b);
    return found;
  }
  std::vector<const HloInstruction*> reads() const {
    std::vector<const HloInstruction*> found = {d};
    if (recurrence.a != nullptr) found.push_back(recurrence.a);
    if (of_a != nullptr) found.push_back(recurrence.h);
    return found;
  }
};

// Labels of `array`, whose last dimensions are those of `labelled`, or one.
std::optional<std::vector<int64_t>> LabelsIn(const xla::Shape& array,
                                             int64_t dimension,
                                             const xla::Shape& labelled,
                                             int64_t row_label) {
  const int64_t offset = RankOf(labelled) - RankOf(array);
  if (offset < 0 || dimension + offset != row_label) return std::nullopt;
  std::vector<int64_t> labels;
  for (int64_t d = 0; d < RankOf(array); ++d) {
    const int64_t size = array.dimensions(d);
    const bool is_same = size == labelled.dimensions(d + offset);
    if (!is_same && size != 1) return std::nullopt;
    const bool is_unit = size == 1 && d != dimension;
    labels.push_back(is_unit ? RingColumn::kUnit : d + offset);
  }
  return labels;
}

// The recurrence of a tree, if its elements have these shapes.
std::optional<Recurrence> ShapedRecurrence(const HloInstruction& root,
                                           const PrefixTree& tree) {
  if (tree.elements.size() > 2) return std::nullopt;
  Recurrence found;
  found.h = &root;
  found.dimension = tree.dimensions.front();
  found.dimension_a = tree.dimensions.back();
  found.size = tree.size;
  found.is_wide = IsWide(tree);
  const auto labels_of = [&](size_t i) {
    return LabelsIn(tree.elements[i]->shape(), tree.dimensions[i], root.shape(),
                    found.dimension);
  };
  const std::optional<std::vector<int64_t>> labels = labels_of(0);
  const std::optional<std::vector<int64_t>> labels_a =
      labels_of(tree.elements.size() - 1);
  const auto has_type = [&](const HloInstruction* element) {
    return element->shape().element_type() == root.shape().element_type();
  };
  if (!labels.has_value() || !labels_a.has_value() ||
      !xla::ShapeUtil::Compatible(tree.elements[0]->shape(), root.shape()) ||
      !absl::c_all_of(tree.elements, has_type)) {
    return std::nullopt;
  }
  found.labels = *labels;
  found.labels_a = *labels_a;
  return found;
}

// The dimensions that `a` lacks, by label.
std::vector<int64_t> ReducedOf(const Recurrence& recurrence) {
  std::vector<int64_t> reduced;
  for (const int64_t label : recurrence.labels) {
    if (label >= 0 && !absl::c_linear_search(recurrence.labels_a, label)) {
      reduced.push_back(label);
    }
  }
  return reduced;
}

// Whether the values of h in `columns` are those of the recurrence.
bool HasItsValues(const Recurrence& recurrence, const RingColumns& columns) {
  const RingColumn* h = columns.Find(*recurrence.h);
  if (h == nullptr || h->labels != recurrence.labels || h->is_sum) return false;
  FieldElement state(recurrence.b == nullptr ? 1 : 0);
  for (int64_t i = 0; i < recurrence.size; ++i) {
    if (recurrence.a != nullptr) {
      state = state * columns.Find(*recurrence.a)->At(i);
    }
    if (recurrence.b != nullptr) {
      state = state + columns.Find(*recurrence.b)->At(i);
    }
    if (state != h->At(i)) return false;
  }
  return true;
}

// The recurrence with the elements of its tree, what is computed of which is
// added to `columns`; nothing if its values are others.
std::optional<Recurrence> FoundByValues(Recurrence recurrence,
                                        const PrefixTree& tree,
                                        RingColumns& columns) {
  for (size_t i = 0; i < tree.elements.size(); ++i) {
    columns.Draw(*tree.elements[i],
                 i == 0 ? recurrence.labels : recurrence.labels_a);
  }
  if (!columns.Follow(tree.elements)) return std::nullopt;
  const HloInstruction* first = tree.elements[0];
  recurrence.a = tree.elements.size() == 2 ? tree.elements[1] : nullptr;
  recurrence.b = first;
  if (HasItsValues(recurrence, columns)) return recurrence;
  recurrence.a = first;
  recurrence.b = nullptr;
  if (tree.elements.size() == 1 && HasItsValues(recurrence, columns)) {
    return recurrence;
  }
  return std::nullopt;
}

// Whether some of the rows along `dimension` are read apart from others.
bool IsTakenApart(const HloInstruction& array, int64_t dimension) {
  return absl::c_any_of(array.users(), [&](const HloInstruction* user) {
    return (user->opcode() == HloOpcode::kSlice ||
            user->opcode() == HloOpcode::kPad) &&
           user->operand(0) == &array &&
           user->shape().dimensions(dimension) <
               array.shape().dimensions(dimension);
  });
}

// Arrays of which some rows are read apart from others, by their dimensions.
using TakenApart = std::map<std::pair<std::vector<int64_t>, int64_t>,
                            std::vector<const HloInstruction*>>;

TakenApart FindTakenApart(absl::Span<const HloInstruction* const> order) {
  TakenApart found;
  for (const HloInstruction* each : order) {
    if (!each->shape().IsArray()) continue;
    for (int64_t d = 0; d < RankOf(each->shape()); ++d) {
      if (!IsTakenApart(*each, d)) continue;
      const auto sizes = each->shape().dimensions();
      found[{{sizes.begin(), sizes.end()}, d}].push_back(each);
    }
  }
  return found;
}

// Arrays of which some rows are read apart from others and multiplied by what
// `base` has followed, with few steps between, in post order.
std::vector<const HloInstruction*> MultipliedBy(const Recurrence& recurrence,
                                                const RingColumns& base,
                                                RuleContext& context,
                                                int64_t& work) {
  constexpr size_t kMaxSteps = 32;
  absl::flat_hash_set<const HloInstruction*> seen;
  std::map<size_t, const HloInstruction*> found;
  const auto search = [&](const HloInstruction* from) {
    std::vector<const HloInstruction*> steps = {from};
    for (size_t i = 0; i < steps.size() && i < kMaxSteps; ++i) {
      const HloInstruction& step = *steps[i];
      if (!seen.insert(&step).second) continue;
      if (xla::ShapeUtil::Compatible(step.shape(), recurrence.h->shape()) &&
          IsTakenApart(step, recurrence.dimension)) {
        found[context.PlaceOf(step)] = &step;
      } else if (step.opcode() == HloOpcode::kSlice ||
                 step.opcode() == HloOpcode::kPad ||
                 step.opcode() == HloOpcode::kAdd) {
        steps.insert(steps.end(), step.operands().begin(),
                     step.operands().end());
      }
    }
  };
  for (const HloInstruction* each : base.followed()) {
    for (const HloInstruction* user : each->users()) {
      if (user->opcode() != HloOpcode::kMultiply) continue;
      for (const HloInstruction* operand : user->operands()) {
        if (operand != each) search(operand);
      }
    }
  }
  work += RingColumns::kRowsOfTry * static_cast<int64_t>(seen.size());
  std::vector<const HloInstruction*> arrays;
  for (const auto& [place, array] : found) arrays.push_back(array);
  return arrays;
}

// Whether nothing but the gradients reads what they are computed of, on the way
// from `d`, in `columns`: else the tree stays.
bool AreAllThatIsRead(const Gradients& gradients, const RingColumns& columns) {
  const std::vector<const HloInstruction*>& followed = columns.followed();
  const std::vector<const HloInstruction*> originals = gradients.originals();
  absl::flat_hash_set<const HloInstruction*> inside(followed.begin(),
                                                    followed.end());
  for (const HloInstruction* each : originals) inside.erase(each);
  // What the gradients are computed of.
  absl::flat_hash_set<const HloInstruction*> needed;
  std::vector<const HloInstruction*> open = originals;
  while (!open.empty()) {
    const HloInstruction* each = open.back();
    open.pop_back();
    for (const HloInstruction* operand : each->operands()) {
      if (inside.contains(operand) && needed.insert(operand).second) {
        open.push_back(operand);
      }
    }
  }
  return absl::c_none_of(needed, [&](const HloInstruction* each) {
    return each->IsRoot() ||
           absl::c_any_of(each->users(), [&](const HloInstruction* user) {
             return !needed.contains(user) &&
                    !absl::c_linear_search(originals, user);
           });
  });
}

// The gradients of a recurrence whose own gradient is `d`.
std::optional<Gradients> GradientsFrom(const Recurrence& recurrence,
                                       const HloInstruction& d,
                                       const RingColumns& base,
                                       RuleContext& context, int64_t& work) {
  if (!xla::ShapeUtil::Compatible(d.shape(), recurrence.h->shape())) {
    return std::nullopt;
  }
  RingColumns columns(&base);
  columns.Draw(d, recurrence.labels);
  const bool is_followed = columns.Follow({&d});
  work += columns.work();
  if (!is_followed) return std::nullopt;
  const RingColumn& given = *columns.Find(d);
  const RingColumn* a =
      recurrence.a == nullptr ? nullptr : base.Find(*recurrence.a);
  const RingColumn& h = *base.Find(*recurrence.h);
  const bool is_product = recurrence.b == nullptr;
  const int64_t size = recurrence.size;
  std::vector<FieldElement> g(size);
  std::vector<FieldElement> e(size);
  FieldElement state;
  for (int64_t i = size - 1; i >= 0; --i) {
    if (a != nullptr && i + 1 < size) state = state * a->At(i + 1);
    state = state + given.At(i);
    g[i] = state;
    e[i] = state * (i > 0 ? h.At(i - 1) : FieldElement(is_product ? 1 : 0));
  }
  Gradients found{recurrence, &d, nullptr, nullptr};
  const bool is_reduced = !ReducedOf(recurrence).empty();
  const auto is_like = [&](const HloInstruction& array,
                           const HloInstruction* other,
                           const std::vector<int64_t>& labels, bool is_sum,
                           const std::vector<FieldElement>& rows) {
    const RingColumn& column = *columns.Find(array);
    return other != nullptr && IsPlain(array) && column.has_rows &&
           xla::ShapeUtil::Compatible(array.shape(), other->shape()) &&
           column.labels == labels && column.is_sum == is_sum &&
           column.rows == rows;
  };
  for (const HloInstruction* each : columns.followed()) {
    if (found.of_b == nullptr &&
        is_like(*each, recurrence.b, recurrence.labels, false, g)) {
      found.of_b = each;
    }
    if (found.of_a == nullptr &&
        is_like(*each, recurrence.a, recurrence.labels_a, is_reduced, e)) {
      found.of_a = each;
    }
  }
  const std::vector<const HloInstruction*> originals = found.originals();
  for (const HloInstruction* each : originals) {
    for (const HloInstruction* read : found.reads()) {
      if (context.Reaches(*each, *read)) return std::nullopt;
    }
  }
  if (originals.empty() || !AreAllThatIsRead(found, columns)) {
    return std::nullopt;
  }
  return found;
}

// Builds the gradients.
class GradientBuilder {
 public:
  explicit GradientBuilder(const Gradients* gradients)
      : gradients_(*gradients), recurrence_(gradients->recurrence) {}

  // In the order of the originals.
  absl::StatusOr<std::vector<HloInstruction*>> Build(
      absl::Span<HloInstruction* const> given) const {
    std::vector<HloInstruction*> x;
    for (HloInstruction* array : given) {
      x.push_back(Converted({array, ""}, StoredType(array->shape())).value);
    }
    HloInstruction* a = recurrence_.a == nullptr ? nullptr : x[1];
    HloInstruction* zero = ZeroBeside(x[0], x[0]->shape());
    HloInstruction* g = Loop(x[0], a, zero);
    std::vector<HloInstruction*> results;
    if (gradients_.of_a != nullptr) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * found,
                              GradientOfA(g, x[2], zero));
      results.push_back(found);
    }
    if (gradients_.of_b != nullptr) results.push_back(g);
    for (HloInstruction*& result : results) {
      result = Converted({result, ""}, given[0]->shape().element_type()).value;
    }
    return results;
  }

 private:
  static HloInstruction* Of(HloOpcode opcode, HloInstruction* left,
                            HloInstruction* right) {
    return left->AddInstruction(
        HloInstruction::CreateBinary(left->shape(), opcode, left, right));
  }

  // From the last row to the first.
  HloInstruction* Loop(HloInstruction* d, HloInstruction* a,
                       HloInstruction* zero) const {
    const int64_t last = recurrence_.size - 1;
    HloInstruction* results = d->AddInstruction(
        HloInstruction::CreateBroadcast(d->shape(), zero, {}));
    HloInstruction* at = IntegerBeside(d, last);
    HloInstruction* row = RowAt(d, recurrence_.dimension, at);
    std::vector<HloInstruction*> state = {
        row, WithRow(results, recurrence_.dimension, at, row, zero), zero, d};
    if (a != nullptr) state.push_back(a);
    return CountedLoop(
        static_cast<int32_t>(last), state,
        [&](HloInstruction* index, absl::Span<HloInstruction* const> now) {
          HloInstruction* to = WithInteger(
              HloOpcode::kAdd, WithInteger(HloOpcode::kMultiply, index, -1),
              last - 1);
          std::vector<HloInstruction*> next(now.begin(), now.end());
          if (now.size() > 4) {
            next[0] = Of(HloOpcode::kMultiply, FactorsAt(now[4], *now[0], to),
                         now[0]);
          }
          next[0] = Of(HloOpcode::kAdd,
                       RowAt(now[3], recurrence_.dimension, to), next[0]);
          next[1] = WithRow(now[1], recurrence_.dimension, to, next[0], now[2]);
          return next;
        })[1];
  }
  HloInstruction* RowAt(HloInstruction* array, int64_t dimension,
                        HloInstruction* at) const {
    return Widened(DynamicSliceAlong(array, dimension, at, 1),
                   recurrence_.is_wide);
  }
  // The factors of the row after `at`, in the shape of `row`.
  HloInstruction* FactorsAt(HloInstruction* a, const HloInstruction& row,
                            HloInstruction* at) const {
    HloInstruction* found =
        RowAt(a, recurrence_.dimension_a, WithInteger(HloOpcode::kAdd, at, 1));
    if (found->shape() == row.shape()) return found;
    std::vector<int64_t> sizes;
    std::vector<int64_t> dimensions;
    for (const int64_t label : recurrence_.labels_a) {
      if (label < 0) continue;
      sizes.push_back(row.shape().dimensions(label));
      dimensions.push_back(label);
    }
    found = found->AddInstruction(HloInstruction::CreateReshape(
        xla::ShapeUtil::MakeShape(found->shape().element_type(), sizes),
        found));
    return found->AddInstruction(
        HloInstruction::CreateBroadcast(row.shape(), found, dimensions));
  }

  // g[i] * h[i - 1], summed over the dimensions that `a` lacks.
  absl::StatusOr<HloInstruction*> GradientOfA(HloInstruction* g,
                                              HloInstruction* h,
                                              HloInstruction* zero) const {
    const std::string labels = LabelsOf(RankOf(g->shape()));
    const char row = labels[recurrence_.dimension];
    const int64_t rest = recurrence_.size - 1;
    const std::vector<int64_t> reduced = ReducedOf(recurrence_);
    std::string kept;
    for (int64_t d = 0; d < RankOf(g->shape()); ++d) {
      if (!absl::c_linear_search(reduced, d)) kept += labels[d];
    }
    HLOENV_ASSIGN_OR_RETURN(
        Labelled products,
        MultiplyOf(Sliced({g, labels}, {{row, 1, rest}}),
                   Sliced({h, labels}, {{row, 0, rest}}), kept,
                   {g->shape().element_type(), xla::PrecisionConfig()}));
    if (recurrence_.b == nullptr) {
      products =
          Concatenated({Sliced({g, labels}, {{row, 0, 1}}), products}, row);
    } else {
      products = Padded(products, {{row, 1, 0}});
    }
    HloInstruction* found = products.value;
    HloInstruction* zeros = found->AddInstruction(
        HloInstruction::CreateBroadcast(found->shape(), zero, {}));
    found = Of(HloOpcode::kAdd, found, zeros);
    return found->AddInstruction(HloInstruction::CreateReshape(
        xla::ShapeUtil::ChangeElementType(gradients_.of_a->shape(),
                                          found->shape().element_type()),
        found));
  }

  const Gradients& gradients_;
  const Recurrence& recurrence_;
};

// The gradients of a computation, by their last originals.
using GradientsByLast = absl::flat_hash_map<const HloInstruction*, Gradients>;

GradientsByLast FindGradients(RuleContext& context) {
  const std::vector<const HloInstruction*>& order = context.post_order();
  GradientsByLast found;
  absl::flat_hash_set<const HloInstruction*> inner;
  absl::flat_hash_set<const HloInstruction*> used;
  std::optional<TakenApart> taken_apart;
  int64_t work = 0;
  for (auto root = order.rbegin(); root != order.rend(); ++root) {
    if (inner.contains(*root) || !IsPlain(**root)) continue;
    const std::optional<PrefixTree> tree = PrefixTreeOf(**root);
    if (!tree.has_value()) continue;
    inner.insert(tree->roots.begin(), tree->roots.end());
    if (tree->size > kMaxGradientRows || !HasFastRows(*tree)) continue;
    std::optional<Recurrence> recurrence = ShapedRecurrence(**root, *tree);
    if (!recurrence.has_value()) continue;
    RingColumns base(&context, recurrence->dimension, ReducedOf(*recurrence));
    recurrence = FoundByValues(*recurrence, *tree, base);
    work += base.work();
    if (work > kMaxColumnWork) break;
    if (!recurrence.has_value()) continue;
    std::vector<const HloInstruction*> candidates;
    if (recurrence->a != nullptr) {
      candidates = MultipliedBy(*recurrence, base, context, work);
    } else {
      if (!taken_apart.has_value()) taken_apart = FindTakenApart(order);
      const auto sizes = (*root)->shape().dimensions();
      candidates =
          (*taken_apart)[{{sizes.begin(), sizes.end()}, recurrence->dimension}];
    }
    for (const HloInstruction* d : candidates) {
      if (work > kMaxColumnWork) return found;
      if (used.contains(d) || absl::c_linear_search(tree->elements, d) ||
          absl::c_linear_search(tree->roots, d)) {
        continue;
      }
      const std::optional<Gradients> gradients =
          GradientsFrom(*recurrence, *d, base, context, work);
      if (gradients.has_value()) {
        const auto originals = gradients->originals();
        const HloInstruction* last = *absl::c_max_element(
            originals, [&context](const auto* left, const auto* right) {
              return context.PlaceOf(*left) < context.PlaceOf(*right);
            });
        found.try_emplace(last, *gradients);
        used.insert(d);
        break;
      }
    }
  }
  return found;
}

void ProposePrefixGradients(const HloInstruction& root, RuleContext& context,
                            std::vector<Proposal>& proposals) {
  auto& found = context.Memo<std::optional<GradientsByLast>>();
  if (!found.has_value()) found = FindGradients(context);
  const auto at = found->find(&root);
  if (at == found->end()) return;
  ProposeMany(
      PrefixGradientsRule(), at->second.originals(), at->second.reads(),
      [gradients = at->second](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<std::vector<HloInstruction*>> {
        return AllInCall(x, [&gradients](const auto& y) {
          return GradientBuilder(&gradients).Build(y);
        });
      },
      proposals);
  proposals.back().reads_decided = true;
}

}  // namespace

const Rule& PrefixGradientsRule() {
  static constexpr Rule rule = {
      "prefix_gradients",
      "Rewrites the gradients of a linear recurrence, of sums or of products "
      "that jax.lax.associative_scan computes for all prefixes as a loop over "
      "the rows, from the last to the first. Floats may round differently: "
      "products are of a wider type.",
      &ProposePrefixGradients};
  return rule;
}

}  // namespace hloenv
