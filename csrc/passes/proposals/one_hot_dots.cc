// SPDX-License-Identifier: Apache-2.0
// Proposes look-ups for products with rows of which one element is one and the
// others are zero, as JAX's one_hot makes them of indices i:
//
//   h = f32[2000,1000] convert(i[:, None] == iota(1000))
//   d = f32[2000,64] dot(h, table), contracting 1 with 0
//   e = f32[1000,32] dot(h, x), contracting 0 with 0
//
// becomes
//
//   d = table[i], and zeros where i is no row of the table
//   e = zeros(1000, 32), to row i[n] of which x[n] is added
//
// and rows that are multiplied by one number each alike.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "passes/proposals/dot_rules.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMinClasses = 8;

// An array that a comparison repeats along some dimensions.
struct Repeated {
  const HloInstruction* array;
  // The label of each of its dimensions; '\0' for one of size 1.
  std::string labels;
};

// The labels of the operand of a reshape that adds or removes dimensions of
// size 1; nothing for another one.
std::optional<std::string> BeforeReshape(const HloInstruction& reshape,
                                         const std::string& labels) {
  const xla::Shape& from = reshape.operand(0)->shape();
  const xla::Shape& to = reshape.shape();
  std::string before;
  int64_t at = 0;
  for (int64_t d = 0; d < RankOf(from); ++d) {
    if (from.dimensions(d) == 1) {
      before.push_back('\0');
      continue;
    }
    while (at < RankOf(to) && to.dimensions(at) == 1) ++at;
    if (at == RankOf(to) || to.dimensions(at) != from.dimensions(d)) {
      return std::nullopt;
    }
    before.push_back(labels[at++]);
  }
  return before;
}

std::optional<Repeated> RepeatedOf(const HloInstruction& side,
                                   std::string labels) {
  const HloInstruction* array = &side;
  while (true) {
    if (array->opcode() == HloOpcode::kBroadcast) {
      std::string before;
      for (const int64_t d : array->dimensions()) before.push_back(labels[d]);
      labels = std::move(before);
    } else if (array->opcode() == HloOpcode::kReshape) {
      std::optional<std::string> before = BeforeReshape(*array, labels);
      if (!before.has_value()) break;
      labels = *std::move(before);
    } else {
      break;
    }
    array = array->operand(0);
  }
  for (int64_t d = 0; d < RankOf(array->shape()); ++d) {
    if (array->shape().dimensions(d) == 1) labels[d] = '\0';
  }
  return Repeated{array, labels};
}

// A product with such rows.
struct OneHotDot {
  LabelledDot dot;
  int64_t operand;  // the number of the one that has them
  char classes;
  int64_t num_classes;
  Repeated indices;
  // What the rows are multiplied by; no array for nothing.
  Repeated factor = {nullptr, ""};
};

std::string Without(const std::string& labels, char removed) {
  std::string others = labels;
  others.erase(std::remove(others.begin(), others.end(), removed),
               others.end());
  return others;
}

// Fills in the indices and the classes; whether the operand has such rows.
bool FindIndices(const HloInstruction& operand, std::string labels,
                 OneHotDot& found) {
  const HloInstruction* hot = &operand;
  found.factor = {nullptr, ""};
  // Integers would cut the factor off.
  bool may_have_factor = true;
  while (true) {
    if (hot->opcode() == HloOpcode::kTranspose) {
      std::string before = labels;
      for (size_t i = 0; i < labels.size(); ++i) {
        before[hot->dimensions(i)] = labels[i];
      }
      labels = std::move(before);
    } else if (hot->opcode() == HloOpcode::kMultiply && may_have_factor) {
      // The number of the operand that has the rows.
      const int64_t side = hot->operand(0)->opcode() == HloOpcode::kBroadcast;
      std::optional<Repeated> factor =
          RepeatedOf(*hot->operand(1 - side), labels);
      if (!factor.has_value() || !IsPlain(*factor->array)) return false;
      found.factor = *std::move(factor);
      may_have_factor = false;
      hot = hot->operand(side);
      continue;
    } else if (hot->opcode() == HloOpcode::kConvert) {
      may_have_factor &=
          xla::ShapeUtil::ElementIsFloating(hot->shape()) &&
          xla::ShapeUtil::ElementIsFloating(hot->operand(0)->shape());
    } else {
      break;
    }
    hot = hot->operand(0);
  }
  if (hot == &operand || hot->opcode() != HloOpcode::kCompare ||
      hot->comparison_direction() != xla::ComparisonDirection::kEq) {
    return false;
  }
  const xla::PrimitiveType type = hot->operand(0)->shape().element_type();
  if (!xla::primitive_util::IsIntegralType(type)) return false;
  for (const int64_t side : {0, 1}) {
    const std::optional<Repeated> classes =
        RepeatedOf(*hot->operand(side), labels);
    const std::optional<Repeated> indices =
        RepeatedOf(*hot->operand(1 - side), labels);
    if (!classes.has_value() || !indices.has_value() ||
        classes->array->opcode() != HloOpcode::kIota) {
      continue;
    }
    const auto& iota = *xla::Cast<xla::HloIotaInstruction>(classes->array);
    found.classes = classes->labels[iota.iota_dimension()];
    found.num_classes = iota.shape().dimensions(iota.iota_dimension());
    found.indices = *indices;
    const int bits = xla::primitive_util::BitWidth(type);
    // An iota of few bits starts again.
    const bool is_exact =
        bits >= 32 || found.num_classes <= (int64_t{1} << (bits - 1));
    // Each other dimension of the rows is one of the indices.
    std::string others = Without(Without(labels, found.classes), '\0');
    for (size_t d = 0; d < labels.size(); ++d) {
      if (hot->shape().dimensions(d) == 1) others = Without(others, labels[d]);
    }
    std::string own = Without(indices->labels, '\0');
    absl::c_sort(others);
    absl::c_sort(own);
    if (found.classes != '\0' && is_exact && own == others && !own.empty() &&
        found.factor.labels.find(found.classes) == std::string::npos &&
        found.num_classes >= kMinClasses && IsPlain(*indices->array)) {
      return true;
    }
  }
  return false;
}

// Whether all labels of the indices are summed, or none is, and the classes the
// other way round, and there are no other sums.
bool IsLookUpOrSum(const OneHotDot& found, bool& is_look_up) {
  const std::string own = Without(found.indices.labels, '\0');
  std::string summed = found.dot.summed;
  is_look_up = summed == std::string(1, found.classes);
  absl::c_sort(summed);
  std::string sorted = own;
  absl::c_sort(sorted);
  return is_look_up || summed == sorted;
}

std::optional<OneHotDot> OneHotDotOf(const HloInstruction& root,
                                     bool& is_look_up) {
  if (!IsPlainDot(root)) return std::nullopt;
  const xla::Shape& shape = root.shape();
  if (xla::ShapeUtil::ElementIsComplex(shape) ||
      (!xla::ShapeUtil::ElementIsFloating(shape) && !IsReducible(shape))) {
    return std::nullopt;
  }
  OneHotDot found;
  found.dot = LabelledDotOf(root);
  if (found.dot.batch != 1 ||
      root.dot_dimension_numbers().lhs_batch_dimensions_size() > 0) {
    return std::nullopt;
  }
  for (found.operand = 0; found.operand < 2; ++found.operand) {
    const std::string& labels =
        found.operand == 0 ? found.dot.left : found.dot.right;
    if (FindIndices(*root.operand(found.operand), labels, found) &&
        IsLookUpOrSum(found, is_look_up)) {
      return found;
    }
  }
  return std::nullopt;
}

// The indices in one column.
absl::StatusOr<HloInstruction*> ColumnOf(HloInstruction* indices) {
  return xla::MakeReshapeHlo(
      std::vector<int64_t>{xla::ShapeUtil::ElementsIn(indices->shape()), 1},
      indices);
}

std::vector<int64_t> SizesOf(const Labelled& array, const std::string& labels) {
  std::vector<int64_t> sizes;
  for (const char label : labels) sizes.push_back(array.SizeOf(label));
  return sizes;
}

// The sizes of the dimensions of the indices that have labels.
std::vector<int64_t> IndexSizes(const OneHotDot& found) {
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < found.indices.labels.size(); ++d) {
    if (found.indices.labels[d] != '\0') {
      sizes.push_back(found.indices.array->shape().dimensions(d));
    }
  }
  return sizes;
}

// In the order of the result, with its labels of size 1 that are missing.
Labelled WithResultLabels(Labelled array, const std::string& result) {
  for (const char label : result) {
    if (!array.Has(label)) array = WithUnit(array, 0, label);
  }
  return Ordered(array, result);
}

// The rows of an array, of labels `own` and others, times the number of each.
absl::StatusOr<Labelled> TimesFactor(const OneHotDot& found,
                                     const Labelled& rows,
                                     HloInstruction* factor) {
  if (factor == nullptr) return rows;
  const std::string labels = Without(found.factor.labels, '\0');
  HLOENV_ASSIGN_OR_RETURN(factor,
                          xla::MakeReshapeHlo(SizesOf(rows, labels), factor));
  return MultiplyOf(rows, {factor, labels}, rows.labels,
                    {rows.value->shape().element_type(), {}});
}

// A sum of zeros and one number, which is no negative zero. The zero is behind
// a barrier, as XLA takes `x + 0` for `x`.
Labelled PlusZero(const Labelled& array) {
  const xla::Shape& shape = array.value->shape();
  if (!xla::ShapeUtil::ElementIsFloating(shape)) return array;
  HloComputation* computation = array.value->parent();
  HloInstruction* zero =
      BarrierOf(computation->AddInstruction(HloInstruction::CreateConstant(
          xla::LiteralUtil::Zero(shape.element_type()))));
  HloInstruction* zeros = computation->AddInstruction(
      HloInstruction::CreateBroadcast(shape, zero, {}));
  return {computation->AddInstruction(HloInstruction::CreateBinary(
              shape, HloOpcode::kAdd, array.value, zeros)),
          array.labels};
}

absl::StatusOr<HloInstruction*> BuildLookUp(const OneHotDot& found,
                                            const HloInstruction& root,
                                            HloInstruction* indices,
                                            HloInstruction* factor,
                                            const Labelled& table) {
  const std::string others = Without(table.labels, found.classes);
  const Labelled rows = Ordered(table, std::string(1, found.classes) + others);
  const std::vector<int64_t> sizes = SizesOf(rows, others);
  const int64_t width =
      xla::ShapeUtil::ElementsIn(rows.value->shape()) / found.num_classes;
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * flat,
      xla::MakeReshapeHlo(std::vector<int64_t>{found.num_classes, width},
                          rows.value));
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * column, ColumnOf(indices));
  const int64_t count = column->shape().dimensions(0);
  const xla::Shape shape =
      xla::ShapeUtil::MakeShape(flat->shape().element_type(), {count, width});
  HloComputation* computation = indices->parent();
  HloInstruction* gathered =
      computation->AddInstruction(HloInstruction::CreateGather(
          shape, flat, column,
          xla::HloGatherInstruction::MakeGatherDimNumbers(
              /*offset_dims=*/{1}, /*collapsed_slice_dims=*/{0},
              /*start_index_map=*/{0}, /*index_vector_dim=*/1),
          {1, width}, /*indices_are_sorted=*/false));
  // Where the index is no row, and the sum is of zeros.
  const auto all = [&](int64_t number) {
    HloInstruction* scalar =
        computation->AddInstruction(HloInstruction::CreateConstant(
            xla::LiteralUtil::CreateR0(number)
                .Convert(column->shape().element_type())
                .value()));
    return computation->AddInstruction(
        HloInstruction::CreateBroadcast(column->shape(), scalar, {}));
  };
  const xla::Shape is_row_shape =
      xla::ShapeUtil::ChangeElementType(column->shape(), xla::PRED);
  const auto compared = [&](HloInstruction* number,
                            xla::ComparisonDirection direction) {
    return computation->AddInstruction(
        HloInstruction::CreateCompare(is_row_shape, column, number, direction));
  };
  HloInstruction* is_row =
      computation->AddInstruction(HloInstruction::CreateBinary(
          is_row_shape, HloOpcode::kAnd,
          compared(all(0), xla::ComparisonDirection::kGe),
          compared(all(found.num_classes - 1), xla::ComparisonDirection::kLe)));
  HLOENV_ASSIGN_OR_RETURN(
      is_row, xla::MakeReshapeHlo(std::vector<int64_t>{count}, is_row));
  HloInstruction* mask =
      computation->AddInstruction(HloInstruction::CreateBroadcast(
          xla::ShapeUtil::ChangeElementType(shape, xla::PRED), is_row, {0}));
  HloInstruction* zeros =
      Zeros(computation, shape.element_type(), "ab", shape.dimensions()).value;
  HloInstruction* result =
      computation->AddInstruction(HloInstruction::CreateTernary(
          shape, HloOpcode::kSelect, mask, gathered, zeros));
  std::vector<int64_t> result_sizes = IndexSizes(found);
  result_sizes.insert(result_sizes.end(), sizes.begin(), sizes.end());
  HLOENV_ASSIGN_OR_RETURN(result, xla::MakeReshapeHlo(result_sizes, result));
  const std::string labels = Without(found.indices.labels, '\0') + others;
  HLOENV_ASSIGN_OR_RETURN(
      const Labelled product,
      TimesFactor(found,
                  Converted({result, labels}, root.shape().element_type()),
                  factor));
  return WithResultLabels(PlusZero(product), found.dot.result).value;
}

absl::StatusOr<HloInstruction*> BuildSum(const OneHotDot& found,
                                         const HloInstruction& root,
                                         HloInstruction* indices,
                                         HloInstruction* factor,
                                         const Labelled& added) {
  const std::string own = Without(found.indices.labels, '\0');
  std::string others;
  for (const char label : added.labels) {
    if (own.find(label) == std::string::npos &&
        found.dot.result.find(label) != std::string::npos) {
      others.push_back(label);
    }
  }
  std::string units;
  for (const char label : added.labels) {
    if ((own + others).find(label) == std::string::npos) units.push_back(label);
  }
  // One after the other, sums of short floats would lose what is added.
  const bool is_float = xla::ShapeUtil::ElementIsFloating(root.shape());
  const xla::PrimitiveType type =
      is_float ? xla::F64 : AccumulationType(root.shape().element_type());
  HLOENV_ASSIGN_OR_RETURN(
      const Labelled rows,
      TimesFactor(
          found,
          Converted(Ordered(WithoutUnits(added, units), own + others), type),
          factor));
  const std::vector<int64_t> sizes = SizesOf(rows, others);
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * column, ColumnOf(indices));
  const int64_t count = column->shape().dimensions(0);
  const int64_t width = xla::ShapeUtil::ElementsIn(rows.value->shape()) / count;
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * updates,
      xla::MakeReshapeHlo(std::vector<int64_t>{count, width}, rows.value));
  HloComputation* computation = indices->parent();
  const xla::Shape scalar = xla::ShapeUtil::MakeShape(type, {});
  HloComputation::Builder builder("sum_by_index");
  HloInstruction* left = builder.AddInstruction(
      HloInstruction::CreateParameter(0, scalar, "left"));
  HloInstruction* right = builder.AddInstruction(
      HloInstruction::CreateParameter(1, scalar, "right"));
  builder.AddInstruction(
      HloInstruction::CreateBinary(scalar, HloOpcode::kAdd, left, right));
  HloComputation* add =
      computation->parent()->AddEmbeddedComputation(builder.Build());
  xla::ScatterDimensionNumbers numbers;
  numbers.add_update_window_dims(1);
  numbers.add_inserted_window_dims(0);
  numbers.add_scatter_dims_to_operand_dims(0);
  numbers.set_index_vector_dim(1);
  HloInstruction* zeros = Zeros(computation, type, "ab",
                                std::vector<int64_t>{found.num_classes, width})
                              .value;
  HloInstruction* sums =
      computation->AddInstruction(HloInstruction::CreateScatter(
          zeros->shape(), zeros, column, updates, add, numbers,
          /*indices_are_sorted=*/false, /*unique_indices=*/false));
  std::vector<int64_t> result_sizes = {found.num_classes};
  result_sizes.insert(result_sizes.end(), sizes.begin(), sizes.end());
  HLOENV_ASSIGN_OR_RETURN(sums, xla::MakeReshapeHlo(result_sizes, sums));
  const Labelled labelled = {sums, std::string(1, found.classes) + others};
  return Converted(WithResultLabels(labelled, found.dot.result),
                   root.shape().element_type())
      .value;
}

void ProposeOneHot(const HloInstruction& root, RuleContext& /*context*/,
                   std::vector<Proposal>& proposals) {
  bool is_look_up = false;
  const std::optional<OneHotDot> found = OneHotDotOf(root, is_look_up);
  if (!found.has_value()) return;
  const std::string labels =
      found->operand == 0 ? found->dot.right : found->dot.left;
  std::vector<const HloInstruction*> reads = {found->indices.array,
                                              root.operand(1 - found->operand)};
  if (found->factor.array != nullptr) reads.push_back(found->factor.array);
  Propose(
      OneHotRule(), root, reads,
      [found = *found, labels, is_look_up,
       &root](absl::Span<HloInstruction* const> x) {
        HloInstruction* factor = x.size() > 2 ? x[2] : nullptr;
        return is_look_up
                   ? BuildLookUp(found, root, x[0], factor, {x[1], labels})
                   : BuildSum(found, root, x[0], factor, {x[1], labels});
      },
      proposals);
}

}  // namespace

const Rule& OneHotRule() {
  static constexpr Rule rule = {
      "one_hot",
      "Rewrites a dot with rows of which one element is one and the others "
      "are zero, as comparisons of indices with an iota make them, or such "
      "rows times a number each, as a gather, or where the rows are summed as "
      "a scatter that adds. Floats of sums round differently, and infinities "
      "and not-a-numbers do not reach sums in which their weight is zero.",
      &ProposeOneHot};
  return rule;
}

}  // namespace hloenv
