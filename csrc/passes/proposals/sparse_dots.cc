// SPDX-License-Identifier: Apache-2.0
// Proposes gathers for products with a matrix that the module determines and
// that is mostly zero, as that of a bilinear resize, which JAX computes from
// iota:
//
//   d = f32[8,128,16] dot(x, w), contracting 1 with 0    x: f32[8,64,16]
//                                                        w: f32[64,128]
//
// becomes, with n entries of w in each column that are not zero,
//
//   d = sum over k < n of x[:, rows[k], :] * weights[k]
#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/algorithm/container.h"
#include "passes/proposals/dot_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/layout_util.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Elements of the matrix up to which it is looked at.
constexpr int64_t kMaxMatrix = int64_t{1} << 18;
// Entries of each column that are not zero, and so many times as many rows from
// which the rule applies: the time of a gathered element in products, where
// whole rows are gathered and where single elements are.
constexpr int64_t kMaxEntries = 16;
constexpr int64_t kMinSparsity = 4;
constexpr int64_t kMinSparsityOfElements = 12;
// Magnitudes of entries between which their products are exact enough.
constexpr double kSmallest = 1e-20;
// Entries up to which sums are computed again for each of their readers.
constexpr int64_t kMaxFusedEntries = 4;

// The entries of a matrix that are not zero, by position and column; weights of
// zero in columns without any.
struct Entries {
  int64_t count;
  std::vector<std::vector<int32_t>> rows;
  std::vector<std::vector<double>> weights;
};

// A dot of an array, as it is in memory, and a sparse matrix.
struct SparseDot {
  LabelledDot dot;
  StoredOperand array;
  char column;
  Entries entries;
};

// Gives columns with fewer entries as many, with an equal sum: the last one in
// several parts. A weight of zero would make a not-a-number of an infinity.
void FillColumns(const std::vector<int64_t>& counts, Entries& entries) {
  for (size_t column = 0; column < counts.size(); ++column) {
    if (counts[column] == 0) continue;
    const int64_t last = counts[column] - 1;
    double weight = entries.weights[last][column];
    for (int64_t i = last + 1; i < entries.count; ++i) {
      weight /= 2;
      entries.weights[i - 1][column] = weight;
      entries.weights[i][column] = weight;
      entries.rows[i][column] = entries.rows[last][column];
    }
  }
}

// Nothing if the matrix is not sparse enough. `summed` is the dimension of its
// rows.
std::optional<Entries> EntriesOf(const HloInstruction& matrix, int64_t summed,
                                 int64_t min_sparsity, RuleContext& context) {
  const std::optional<xla::Literal> value = context.Known(matrix).Whole(matrix);
  if (!value.has_value()) return std::nullopt;
  const absl::StatusOr<xla::Literal> converted = value->Convert(xla::F64);
  if (!converted.ok()) return std::nullopt;
  const xla::Literal by_rows =
      converted->Relayout(xla::LayoutUtil::MakeDescendingLayout(2));
  const absl::Span<const double> numbers = by_rows.data<double>();
  const int64_t rows = matrix.shape().dimensions(static_cast<int>(summed));
  const int64_t columns =
      matrix.shape().dimensions(static_cast<int>(1 - summed));
  const int64_t width = matrix.shape().dimensions(1);
  const int64_t most = std::min(kMaxEntries, rows / min_sparsity);
  Entries entries = {};
  std::vector<int64_t> counts(columns, 0);
  int64_t index[2];
  for (int64_t& column = index[1 - summed] = 0; column < columns; ++column) {
    for (int64_t& row = index[summed] = 0; row < rows; ++row) {
      const double weight = numbers[index[0] * width + index[1]];
      if (weight == 0) continue;
      if (!(std::abs(weight) > kSmallest && std::abs(weight) < 1 / kSmallest)) {
        return std::nullopt;
      }
      const int64_t count = counts[column]++;
      if (count == most) return std::nullopt;
      if (count == entries.count) {
        entries.rows.emplace_back(columns, 0);
        entries.weights.emplace_back(columns, 0.0);
        ++entries.count;
      }
      entries.rows[count][column] = static_cast<int32_t>(row);
      entries.weights[count][column] = weight;
    }
  }
  if (entries.count == 0) return std::nullopt;
  FillColumns(counts, entries);
  return entries;
}

std::optional<SparseDot> SparseDotOf(const HloInstruction& root,
                                     RuleContext& context) {
  if (!IsPlainDot(root) ||
      !xla::primitive_util::IsFloatingPointType(root.shape().element_type()) ||
      !HasExactTypes(root.operand(0)->shape(), root.operand(1)->shape(),
                     root.shape())) {
    return std::nullopt;
  }
  SparseDot result = {LabelledDotOf(root), {}, '\0', {}};
  LabelledDot& dot = result.dot;
  if (root.dot_dimension_numbers().lhs_batch_dimensions_size() != 0 ||
      dot.summed.size() != 1) {
    return std::nullopt;
  }
  for (int64_t i = 0; i < 2; ++i) {
    const HloInstruction& matrix = *root.operand(i);
    const std::string& labels = i == 0 ? dot.left : dot.right;
    if (RankOf(matrix.shape()) != 2 || dot.terms < kMinSparsity ||
        xla::ShapeUtil::ElementsIn(matrix.shape()) > kMaxMatrix) {
      continue;
    }
    const HloInstruction& operand = *root.operand(1 - i);
    const std::string& others = i == 0 ? dot.right : dot.left;
    // Without a transposition, if that can be.
    const StoredOperand array = StoredOperandOf(operand, others)
                                    .value_or(StoredOperand{&operand, others});
    if (context.IsCompared(root) || context.ExtremesOf(*array.value).large() ||
        context.ExtremesOf(matrix).large()) {
      continue;
    }
    const auto summed = static_cast<int64_t>(labels.find(dot.summed.front()));
    const bool picks_elements = array.labels.back() == dot.summed.front();
    std::optional<Entries> entries = EntriesOf(
        matrix, summed, picks_elements ? kMinSparsityOfElements : kMinSparsity,
        context);
    if (!entries.has_value()) continue;
    result.array = array;
    result.column = labels[1 - summed];
    result.entries = *std::move(entries);
    return result;
  }
  return std::nullopt;
}

// The elements of `array` at these indices of one dimension, which gets another
// label.
Labelled Picked(const Labelled& array, const std::vector<int32_t>& indices,
                char label, char new_label) {
  const int64_t at = array.At(label);
  const xla::Shape& whole = array.value->shape();
  std::vector<int64_t> sizes(whole.dimensions().begin(),
                             whole.dimensions().end());
  sizes[at] = static_cast<int64_t>(indices.size());
  const xla::Shape shape =
      xla::ShapeUtil::MakeShape(whole.element_type(), sizes);
  sizes[at] = 1;
  std::vector<int64_t> others;
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    if (d != at) others.push_back(d);
  }
  HloInstruction* starts =
      array.value->AddInstruction(HloInstruction::CreateConstant(
          xla::LiteralUtil::CreateR1<int32_t>(indices)));
  HloInstruction* gathered =
      array.value->AddInstruction(HloInstruction::CreateGather(
          shape, array.value, starts,
          xla::HloGatherInstruction::MakeGatherDimNumbers(
              others, /*collapsed_slice_dims=*/{at}, /*start_index_map=*/{at},
              /*index_vector_dim=*/1),
          sizes, /*indices_are_sorted=*/false));
  std::string labels = array.labels;
  labels[at] = new_label;
  return {gathered, labels};
}

absl::StatusOr<HloInstruction*> BuildSparse(const SparseDot& sparse,
                                            const HloInstruction& root,
                                            HloInstruction* operand) {
  const Labelled array = {operand, sparse.array.labels};
  const xla::PrimitiveType type = root.shape().element_type();
  const Accumulation accumulation = {AccumulationType(type), {}};
  std::string labels = array.labels;
  labels[array.At(sparse.dot.summed.front())] = sparse.column;
  std::vector<Labelled> products;
  for (int64_t i = 0; i < sparse.entries.count; ++i) {
    HLOENV_ASSIGN_OR_RETURN(
        xla::Literal weights,
        xla::LiteralUtil::CreateR1<double>(sparse.entries.weights[i])
            .Convert(accumulation.type));
    const Labelled factor = {
        operand->AddInstruction(
            HloInstruction::CreateConstant(std::move(weights))),
        std::string(1, sparse.column)};
    const Labelled part = Picked(array, sparse.entries.rows[i],
                                 sparse.dot.summed.front(), sparse.column);
    HLOENV_ASSIGN_OR_RETURN(
        Labelled product, MultiplyOf(Converted(part, accumulation.type), factor,
                                     labels, accumulation));
    products.push_back(std::move(product));
  }
  Labelled sum = SumFromZero(products);
  if (sparse.entries.count > kMaxFusedEntries) {
    sum.value = BarrierOf(sum.value);
  }
  return Ordered(Converted(sum, type), sparse.dot.result).value;
}

void ProposeSparse(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  std::optional<SparseDot> sparse = SparseDotOf(root, context);
  if (!sparse.has_value()) return;
  const HloInstruction* array = sparse->array.value;
  Propose(
      SparseRule(), root, {array},
      [sparse = std::make_shared<const SparseDot>(*std::move(sparse)),
       &root](absl::Span<HloInstruction* const> x) {
        return BuildSparse(*sparse, root, x[0]);
      },
      proposals);
}

}  // namespace

const Rule& SparseRule() {
  static constexpr Rule rule = {
      "sparse",
      "Rewrites a dot with a matrix that depends on no parameter, has up to "
      "2^18 elements and in each column at most 16 and a quarter that are not "
      "zero (a twelfth where the other array is summed over its last "
      "dimension), as a sum of gathers with weights. The matrix is evaluated "
      "as by constant folding. Floats round differently, and infinities and "
      "not-a-numbers do not reach all sums in which their weight is zero.",
      &ProposeSparse};
  return rule;
}

}  // namespace hloenv
