// SPDX-License-Identifier: Apache-2.0
// Proposes other forms of dots whose first operand is read across its rows, as
// in the gradient of a layer with respect to its weights: XLA's CPU backend
// transposes it in each run, slowly.
//
//   d = f32[1024,8] dot(x, y), contracting 0 with 0
//     x: f32[512,1024]  y: f32[512,8]
//
// becomes
//
//   p = f32[8,1024] dot(y, x), contracting 0 with 0
//   d = f32[1024,8] transpose(opt-barrier(p)), dimensions={1,0}
//
// or
//
//   t = f32[1024,512] opt-barrier(transpose(x)), dimensions={1,0}
//   d = f32[1024,8] dot(t, y), contracting 1 with 0
//
// The barriers keep the algebraic simplifier from undoing that. It does not
// move a transposition into a dot with a vector; the backend then writes one
// loop that reads a column for each element:
//
//   d = f32[1024] dot(transpose(x), v), contracting 1 with 0
//
// becomes dot(v, x), contracting 0 with 0.
#include <optional>
#include <string>
#include <utility>

#include "passes/proposals/dot_rules.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// A dot, or the transposition of one that nothing else reads. XLA reverses the
// operands of a dot of two matrices for its transposition; so do we.
struct CrossedDot {
  const HloInstruction* product = nullptr;
  LabelledDot dot = {};
  std::string result;  // labels of the root
  bool is_reversed = false;
  StoredOperand left = {},
                right = {};  // in the order in which they are multiplied
  std::string batch, left_free, right_free;
  bool is_right_crossed = false;
};

bool IsTransposed(const HloInstruction& product) {
  return product.user_count() == 1 && !product.IsRoot() &&
         product.users()[0]->opcode() == xla::HloOpcode::kTranspose &&
         IsReplaceable(*product.users()[0]);
}

std::string FreeLabels(const CrossedDot& crossed, const std::string& operand) {
  std::string labels;
  for (char label : crossed.result) {
    if (operand.find(label) != std::string::npos &&
        crossed.batch.find(label) == std::string::npos) {
      labels.push_back(label);
    }
  }
  return labels;
}

// The label of the last dimension of several elements; '\0' without any.
char LastLabel(const StoredOperand& operand) {
  for (size_t d = operand.labels.size(); d-- > 0;) {
    if (operand.value->shape().dimensions(static_cast<int>(d)) > 1) {
      return operand.labels[d];
    }
  }
  return '\0';
}

// Whether free dimensions are on both sides of summed ones, so that XLA
// transposes the operand itself.
bool IsSplit(const StoredOperand& operand, absl::string_view free,
             absl::string_view summed) {
  bool has_free = false;
  for (size_t d = 0; d < operand.labels.size(); ++d) {
    if (operand.value->shape().dimensions(static_cast<int>(d)) == 1) continue;
    const char label = operand.labels[d];
    has_free |= free.find(label) != absl::string_view::npos;
    if (has_free && summed.find(label) != absl::string_view::npos) return true;
  }
  return false;
}

std::optional<CrossedDot> CrossedDotOf(const HloInstruction& root) {
  const bool is_transposition =
      root.opcode() == xla::HloOpcode::kTranspose && IsReplaceable(root);
  const HloInstruction& product = is_transposition ? *root.operand(0) : root;
  if (!IsPlainDot(product) || IsTransposed(product) != is_transposition) {
    return std::nullopt;
  }
  CrossedDot crossed;
  crossed.product = &product;
  crossed.dot = LabelledDotOf(product);
  const LabelledDot& dot = crossed.dot;
  crossed.result = dot.result;
  if (is_transposition) {
    for (size_t i = 0; i < crossed.result.size(); ++i) {
      crossed.result[i] = dot.result[root.dimensions(static_cast<int>(i))];
    }
    if (crossed.result == dot.result) return std::nullopt;
  }
  crossed.batch = dot.result.substr(
      0, product.dot_dimension_numbers().lhs_batch_dimensions_size());
  crossed.left_free = FreeLabels(crossed, dot.left);
  crossed.right_free = FreeLabels(crossed, dot.right);
  const std::optional<StoredOperand> left =
      StoredOperandOf(*product.operand(0), dot.left);
  const std::optional<StoredOperand> right =
      StoredOperandOf(*product.operand(1), dot.right);
  if (!left.has_value() || !right.has_value() || dot.summed.empty()) {
    return std::nullopt;
  }
  crossed.left = *left;
  crossed.right = *right;
  if (is_transposition && crossed.batch.empty() && dot.result.size() == 2) {
    crossed.is_reversed = true;
    std::swap(crossed.left, crossed.right);
    std::swap(crossed.left_free, crossed.right_free);
  }
  if (crossed.left_free.find(LastLabel(crossed.left)) == std::string::npos ||
      IsSplit(crossed.left, crossed.left_free, dot.summed)) {
    return std::nullopt;
  }
  crossed.is_right_crossed =
      dot.summed.find(LastLabel(crossed.right)) != std::string::npos;
  return crossed;
}

Labelled ProductOf(const CrossedDot& crossed, const Labelled& first,
                   const Labelled& second, bool is_swapped) {
  Accumulation accumulation = {crossed.product->shape().element_type(),
                               crossed.product->precision_config()};
  if (is_swapped != crossed.is_reversed) {
    accumulation = WithOperandsSwapped(accumulation);
  }
  return DotOf(first, second, crossed.result, accumulation);
}

HloInstruction* BuildSwapped(const CrossedDot& crossed,
                             absl::Span<HloInstruction* const> x) {
  Labelled product = ProductOf(crossed, {x[1], crossed.right.labels},
                               {x[0], crossed.left.labels}, true);
  product.value = BarrierOf(product.value);
  return Ordered(product, crossed.result).value;
}

HloInstruction* BuildFirstTransposed(const CrossedDot& crossed,
                                     absl::Span<HloInstruction* const> x) {
  Labelled left =
      Ordered({x[0], crossed.left.labels},
              crossed.batch + crossed.left_free + crossed.dot.summed);
  left.value = BarrierOf(left.value);
  const Labelled product =
      ProductOf(crossed, left, {x[1], crossed.right.labels}, false);
  return Ordered(product, crossed.result).value;
}

using Build = HloInstruction* (*)(const CrossedDot&,
                                  absl::Span<HloInstruction* const>);

void ProposeBuilt(const Rule& rule, const CrossedDot& crossed,
                  const HloInstruction& root, Build build,
                  std::vector<Proposal>& proposals) {
  Propose(
      rule, root, {crossed.left.value, crossed.right.value},
      [crossed, build, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        HloInstruction* result = build(crossed, x);
        // JAX gives a transposition that moves no bytes, a layout of its own.
        *result->mutable_shape()->mutable_layout() = root.shape().layout();
        return result;
      },
      proposals);
}

// Whether both matrices have several rows and columns.
bool IsOfMatrices(const CrossedDot& crossed) {
  const int64_t left = xla::ShapeUtil::ElementsIn(crossed.left.value->shape());
  const int64_t right =
      xla::ShapeUtil::ElementsIn(crossed.right.value->shape());
  const int64_t summed = crossed.dot.batch * crossed.dot.terms;
  return left > summed && right > summed && crossed.dot.terms > 1;
}

void ProposeSwapped(const HloInstruction& root, RuleContext& /*context*/,
                    std::vector<Proposal>& proposals) {
  const std::optional<CrossedDot> crossed = CrossedDotOf(root);
  if (!crossed.has_value() || !crossed->is_right_crossed) return;
  ProposeBuilt(SwappedRule(), *crossed, root, &BuildSwapped, proposals);
}

void ProposeSecondFirst(const HloInstruction& root, RuleContext& /*context*/,
                        std::vector<Proposal>& proposals) {
  const std::optional<CrossedDot> crossed = CrossedDotOf(root);
  if (!crossed.has_value() || crossed->is_right_crossed ||
      !IsOfMatrices(*crossed)) {
    return;
  }
  ProposeBuilt(SecondFirstRule(), *crossed, root, &BuildSwapped, proposals);
}

void ProposeFirstTransposed(const HloInstruction& root,
                            RuleContext& /*context*/,
                            std::vector<Proposal>& proposals) {
  const std::optional<CrossedDot> crossed = CrossedDotOf(root);
  if (!crossed.has_value() || !IsOfMatrices(*crossed)) return;
  ProposeBuilt(FirstTransposedRule(), *crossed, root, &BuildFirstTransposed,
               proposals);
}

// A dot of a vector and a matrix that is transposed first.
void ProposeAsStored(const HloInstruction& root, RuleContext& /*context*/,
                     std::vector<Proposal>& proposals) {
  if (!IsPlainDot(root)) return;
  const LabelledDot dot = LabelledDotOf(root);
  if (root.dot_dimension_numbers().lhs_batch_dimensions_size() != 0) return;
  for (int at : {0, 1}) {
    const HloInstruction& matrix = *root.operand(at);
    const HloInstruction& vector = *root.operand(1 - at);
    if (matrix.opcode() != xla::HloOpcode::kTranspose || dot.terms == 1 ||
        xla::ShapeUtil::ElementsIn(vector.shape()) != dot.terms) {
      continue;
    }
    // A dot that others read as transposed may be multiplied so: see above.
    const bool is_shared =
        matrix.user_count() > 1 && IsTransposed(*matrix.operand(0));
    const std::string& own = at == 0 ? dot.left : dot.right;
    const std::string& other = at == 0 ? dot.right : dot.left;
    const std::optional<StoredOperand> stored = StoredOperandOf(matrix, own);
    if (is_shared || !stored.has_value() || stored->value == &matrix ||
        dot.summed.find(LastLabel(*stored)) != std::string::npos) {
      continue;
    }
    Propose(
        AsStoredRule(), root, {&vector, stored->value},
        [dot, other, labels = stored->labels, at,
         &root](absl::Span<HloInstruction* const> x)
            -> absl::StatusOr<HloInstruction*> {
          Accumulation accumulation = {root.shape().element_type(),
                                       root.precision_config()};
          if (at == 0) accumulation = WithOperandsSwapped(accumulation);
          const Labelled product =
              DotOf({x[0], other}, {x[1], labels}, dot.result, accumulation);
          return Ordered(product, dot.result).value;
        },
        proposals);
    return;
  }
}

}  // namespace

const Rule& SwappedRule() {
  static constexpr Rule rule = {
      "swapped",
      "Swaps the operands of a dot, or of one that is transposed, and "
      "transposes "
      "the result, where the summed dimension is contiguous in the second "
      "operand and not in the first. Floats may round differently.",
      &ProposeSwapped};
  return rule;
}

const Rule& SecondFirstRule() {
  static constexpr Rule rule = {
      "second_first",
      "Swaps the operands of a dot of matrices, or of one that is transposed, "
      "and transposes the result, where the summed dimension is contiguous in "
      "neither: the backend transposes the one that comes first. Floats may "
      "round differently.",
      &ProposeSecondFirst};
  return rule;
}

const Rule& FirstTransposedRule() {
  static constexpr Rule rule = {
      "first_transposed",
      "Transposes the first operand of a dot of matrices, or of one that is "
      "transposed, in memory, where the summed dimension is not contiguous in "
      "it. Floats may round differently.",
      &ProposeFirstTransposed};
  return rule;
}

const Rule& AsStoredRule() {
  static constexpr Rule rule = {
      "as_stored",
      "Multiplies a vector with a matrix as it is in memory, in place of its "
      "transposition, which XLA would compute for each element of the result. "
      "Floats may round differently.",
      &ProposeAsStored};
  return rule;
}

}  // namespace hloenv
