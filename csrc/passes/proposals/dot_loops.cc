// SPDX-License-Identifier: Apache-2.0
// Proposes a loop over a batch dimension for products of few rows with matrices
// that lie across each other in memory, as the keys and values of attention in
// a decode step, which the backend transposes in each call:
//
//   d = f32[8,1,512] dot(q, k), batch 1 with 1, contracting 2 with 2
//     q: f32[1,8,64]  k: f32[512,8,64]
//
// becomes
//
//   for h in 0..8: d[h] = dot(k[:,h,:], q[0,h,:]), contracting 1 with 0
#include <algorithm>

#include "passes/proposals/counted_loop.h"
#include "passes/proposals/dot_rules.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// Rows of each product, and batch indices, up to which the rule applies.
constexpr int64_t kMaxLoopRows = 16;
constexpr int64_t kMaxLoopTrips = 4096;

// A dot with one batch dimension inside the matrices of an operand, 0 or 1.
struct InnerBatchDot {
  LabelledDot dot;
  char batch;
  int64_t matrices;
};

// The batch dimension between the dimensions of the matrices of an operand, as
// the operand lies in memory; '\0' if there is none, or several.
char InnerBatchOf(const HloInstruction& operand, const std::string& labels,
                  const LabelledDot& dot, int64_t num_batch) {
  const std::optional<StoredOperand> stored = StoredOperandOf(operand, labels);
  if (!stored.has_value()) return '\0';
  const std::string batch = dot.result.substr(0, num_batch);
  char found = '\0';
  bool is_inside = false;
  for (size_t d = 0; d < stored->labels.size(); ++d) {
    const char label = stored->labels[d];
    if (stored->value->shape().dimensions(static_cast<int>(d)) == 1) continue;
    if (batch.find(label) == std::string::npos) {
      is_inside = true;
    } else if (is_inside && found != '\0') {
      return '\0';
    } else if (is_inside) {
      found = label;
    }
  }
  // Where it is the last, the elements of a matrix are apart.
  const bool is_last =
      !stored->labels.empty() && found == stored->labels.back();
  return is_last ? '\0' : found;
}

// The part of an operand at the index, without that dimension.
Labelled PartAt(HloInstruction* index, const Labelled& operand, char label) {
  HloInstruction* part =
      DynamicSliceAlong(operand.value, operand.At(label), index, 1);
  return WithoutUnits({part, operand.labels}, std::string(1, label));
}

std::optional<InnerBatchDot> InnerBatchDotOf(const HloInstruction& root) {
  if (!IsPlainDot(root)) return std::nullopt;
  for (const HloInstruction* operand : root.operands()) {
    // The backend makes one kernel of a small loop, in which it has no code for
    // products of a type whose sums have another.
    if (!IsPlain(*operand) ||
        operand->shape().element_type() != root.shape().element_type()) {
      return std::nullopt;
    }
  }
  const LabelledDot dot = LabelledDotOf(root);
  const int64_t num_batch =
      root.dot_dimension_numbers().lhs_batch_dimensions_size();
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t other =
        xla::ShapeUtil::ElementsIn(root.operand(1 - i)->shape());
    const char batch = InnerBatchOf(
        *root.operand(i), i == 0 ? dot.left : dot.right, dot, num_batch);
    if (batch == '\0' || other > kMaxLoopRows * dot.batch * dot.terms) continue;
    const size_t at = dot.result.find(batch);
    if (root.shape().dimensions(static_cast<int>(at)) > kMaxLoopTrips) continue;
    return InnerBatchDot{dot, batch, i};
  }
  return std::nullopt;
}

// The product of one index of the loop, as part of the result. The matrices
// come first: they would be transposed as second operands.
HloInstruction* ProductAt(HloInstruction* index, const InnerBatchDot& inner,
                          const HloInstruction& root,
                          absl::Span<HloInstruction* const> operands) {
  const LabelledDot& dot = inner.dot;
  std::string rest = dot.result;
  rest.erase(rest.find(inner.batch), 1);
  const Labelled left = PartAt(index, {operands[0], dot.left}, inner.batch);
  const Labelled right = PartAt(index, {operands[1], dot.right}, inner.batch);
  const Accumulation accumulation = {root.shape().element_type(),
                                     root.precision_config()};
  std::string units = rest;
  for (char label : left.labels) {
    if (right.Has(label))
      units.erase(std::remove(units.begin(), units.end(), label), units.end());
  }
  const Labelled product =
      inner.matrices == 0
          ? DotOf(left, WithoutUnits(right, units), rest, accumulation)
          : SwappedDotOf(root, right, WithoutUnits(left, units), rest);
  std::string order;
  for (char label : rest) {
    if (product.Has(label)) order.push_back(label);
  }
  xla::Shape shape = root.shape();
  shape.set_dimensions(static_cast<int>(dot.result.find(inner.batch)), 1);
  return index->AddInstruction(
      HloInstruction::CreateReshape(shape, Ordered(product, order).value));
}

HloInstruction* BuildBatchLoop(const InnerBatchDot& inner,
                               const HloInstruction& root,
                               absl::Span<HloInstruction* const> x) {
  const std::string& result = inner.dot.result;
  HloInstruction* initial = Zeros(x[0]->parent(), root.shape().element_type(),
                                  result, root.shape().dimensions())
                                .value;
  const auto batch = static_cast<int>(result.find(inner.batch));
  const int64_t trips = root.shape().dimensions(batch);
  return CountedLoop(
      static_cast<int32_t>(trips), {initial, x[0], x[1]},
      [&](HloInstruction* index, absl::Span<HloInstruction* const> state) {
        HloInstruction* next =
            DynamicUpdateAlong(state[0], batch, index,
                               ProductAt(index, inner, root, state.subspan(1)));
        return std::vector<HloInstruction*>{next, state[1], state[2]};
      })[0];
}

void ProposeBatchLoop(const HloInstruction& root, RuleContext& /*context*/,
                      std::vector<Proposal>& proposals) {
  const std::optional<InnerBatchDot> inner = InnerBatchDotOf(root);
  if (!inner.has_value()) return;
  Propose(
      BatchLoopRule(), root, {root.operand(0), root.operand(1)},
      [inner = *inner, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return BuildBatchLoop(inner, root, x);
      },
      proposals);
}

}  // namespace

const Rule& BatchLoopRule() {
  static constexpr Rule rule = {
      "batch_loop",
      "Rewrites a dot of at most 16 rows in each product as a loop over a "
      "batch dimension that is inside the matrices in memory. Floats may round "
      "differently.",
      &ProposeBatchLoop};
  return rule;
}

}  // namespace hloenv
