// SPDX-License-Identifier: Apache-2.0
// Proposes other forms of products of few rows with a transposed matrix, for
// which XLA's CPU backend writes the transposed matrix to memory in each run:
//
//   t = f32[256,1024] transpose(w), dimensions={1,0}
//   d = f32[1,1024] dot(x, t), contracting 1 with 0     x: f32[1,256]
//
// becomes
//
//   v = f32[256] reshape(x)
//   p = f32[1024] dot(w, v), contracting 1 with 0       w: f32[1024,256]
//   s = f32[1024] opt-barrier(p)
//   d = f32[1,1024] reshape(s)
//
// The barrier keeps the backend from fusing the dot with an addition, which
// fixes the layout of the matrix.
#include "absl/algorithm/container.h"
#include "passes/proposals/dot_rules.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// Rows up to which a rule applies.
constexpr int64_t kMaxRows = 16;

// rows x matrix, where the summed dimension of `matrix`, with these labels, is
// contiguous in memory.
struct FewRowDot {
  LabelledDot dot;
  const HloInstruction* matrix;
  std::string labels;
  int64_t rows;
};

std::optional<FewRowDot> FewRowDotOf(const HloInstruction& root) {
  if (!IsPlainDot(root)) return std::nullopt;
  FewRowDot result = {LabelledDotOf(root), nullptr, "", 1};
  if (root.dot_dimension_numbers().lhs_batch_dimensions_size() != 0 ||
      result.dot.summed.size() != 1) {
    return std::nullopt;
  }
  const std::optional<StoredOperand> stored =
      StoredOperandOf(*root.operand(1), result.dot.right);
  if (!stored.has_value()) return std::nullopt;
  result.matrix = stored->value;
  result.labels = stored->labels;
  const int64_t columns =
      xla::ShapeUtil::ElementsIn(result.matrix->shape()) / result.dot.terms;
  result.rows = result.dot.free / columns;
  if (result.labels.back() != result.dot.summed.front() ||
      result.rows > kMaxRows || columns <= result.rows) {
    return std::nullopt;
  }
  return result;
}

HloInstruction* BuildMatrixFirst(const FewRowDot& few,
                                 const HloInstruction& root,
                                 absl::Span<HloInstruction* const> x) {
  const Labelled rows = WithoutUnits({x[0], few.dot.left}, few.dot.result);
  Labelled product =
      SwappedDotOf(root, {x[1], few.labels}, rows, few.dot.result);
  product.value = BarrierOf(product.value);
  std::string order;
  for (char label : few.dot.result) {
    if (product.Has(label)) order.push_back(label);
  }
  HloInstruction* result = Ordered(product, order).value;
  if (xla::ShapeUtil::Compatible(result->shape(), root.shape())) return result;
  return result->AddInstruction(
      HloInstruction::CreateReshape(root.shape(), result));
}

void ProposeMatrixFirst(const HloInstruction& root, RuleContext& /*context*/,
                        std::vector<Proposal>& proposals) {
  const std::optional<FewRowDot> few = FewRowDotOf(root);
  if (!few.has_value()) return;
  Propose(
      MatrixFirstRule(), root, {root.operand(0), few->matrix},
      [few = *few, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return BuildMatrixFirst(few, root, x);
      },
      proposals);
}

void ProposeSeparate(const HloInstruction& root, RuleContext& /*context*/,
                     std::vector<Proposal>& proposals) {
  const std::optional<FewRowDot> few = FewRowDotOf(root);
  const bool is_separate =
      root.user_count() > 0 &&
      absl::c_all_of(root.users(), [](const HloInstruction* user) {
        return user->opcode() == xla::HloOpcode::kOptimizationBarrier;
      });
  if (!few.has_value() || few->rows != 1 || is_separate) return;
  Propose(
      SeparateRule(), root, {root.operand(0), root.operand(1)},
      [&root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return BarrierOf(CloneBeside(root, root.shape(), x));
      },
      proposals);
}

}  // namespace

const Rule& MatrixFirstRule() {
  static constexpr Rule rule = {
      "matrix_first",
      "Rewrites a dot of at most 16 rows and a matrix whose summed dimension "
      "is contiguous in memory, transposed or not, as the dot of the matrix "
      "and the rows, which is not fused with its users. Floats round "
      "differently.",
      &ProposeMatrixFirst};
  return rule;
}

const Rule& SeparateRule() {
  static constexpr Rule rule = {
      "separate",
      "Keeps the dot of a row and a matrix whose summed dimension is "
      "contiguous in memory from being fused with its users. Floats round "
      "differently.",
      &ProposeSeparate};
  return rule;
}

}  // namespace hloenv
