// SPDX-License-Identifier: Apache-2.0
// Proposes scatters of rows into an array for its sum with a scatter into
// zeros: the gradient of `table[i]` is an array of the table's size that is
// mostly zero, and a step of gradient descent adds a multiple of it to the
// table.
//
// Before:  g = scatter-add(zeros, i, u)
//          t = table - 0.1 * g
// After:   own = f32[len(i), ...] the rows of g, each at the place of one of
//                the updates that it is the sum of
//          t = scatter-add(table, i, -(0.1 * own)) of these places
//
// Updates of one row are added up first, as in g: added to the table one by
// one, small ones would be lost.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::HloScatterInstruction;

// Elements of the array, of each row, and how many times as many as those of
// the updates; scatters, and operations between one and the sum.
constexpr int64_t kMinScattered = int64_t{1} << 14;
constexpr int64_t kMinWidth = 16;
constexpr int64_t kTimesAsMany = 16;
constexpr size_t kMaxTerms = 8;
constexpr size_t kMaxSteps = 8;

// An operation on all elements of what is scattered, with a number or, if it is
// a negation, null.
struct ScaledBy {
  HloOpcode opcode;
  const HloInstruction* number;
};

struct ScatteredSum {
  const HloInstruction* array;
  std::vector<ScaledBy> steps;  // the last first
  std::vector<const HloScatterInstruction*> terms;
};

bool HasOneReader(const HloInstruction& value) {
  return value.user_count() == 1 && !value.IsRoot();
}

// The finite number that all elements of an array are; null for others.
const HloInstruction* FiniteNumberOf(const HloInstruction& value) {
  if (value.opcode() != HloOpcode::kBroadcast) return nullptr;
  const HloInstruction& number = *value.operand(0);
  if (number.opcode() != HloOpcode::kConstant || RankOf(number.shape()) != 0) {
    return nullptr;
  }
  const absl::StatusOr<xla::Literal> literal =
      number.literal().Convert(xla::F64);
  return literal.ok() && std::isfinite(literal->data<double>()[0]) ? &number
                                                                   : nullptr;
}

bool IsZero(const HloInstruction& value) {
  const HloInstruction* number =
      value.opcode() == HloOpcode::kConstant ? &value : FiniteNumberOf(value);
  return number != nullptr && number->literal().IsAll(0);
}

// Whether a scatter adds whole rows, at places that one number each says.
bool AddsRows(const HloScatterInstruction& scatter) {
  const xla::ScatterDimensionNumbers& dims =
      scatter.scatter_dimension_numbers();
  if (scatter.scatter_operand_count() != 1 ||
      OperationOf(*scatter.to_apply()) != HloOpcode::kAdd ||
      dims.inserted_window_dims_size() != 1 ||
      dims.inserted_window_dims(0) != 0 ||
      dims.scatter_dims_to_operand_dims_size() != 1 ||
      dims.scatter_dims_to_operand_dims(0) != 0 ||
      dims.input_batching_dims_size() != 0) {
    return false;
  }
  const xla::Shape& indices = scatter.scatter_indices()->shape();
  const xla::Shape& updates = scatter.scatter_updates()[0]->shape();
  const xla::PrimitiveType type = indices.element_type();
  const int64_t last = RankOf(indices) - 1;
  if ((type != xla::S32 && type != xla::S64 && type != xla::U32) ||
      (dims.index_vector_dim() != last && dims.index_vector_dim() <= last) ||
      scatter.shape().dimensions(0) > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  // The windows are the last dimensions of the updates.
  const int64_t windows = dims.update_window_dims_size();
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t d = RankOf(updates) - windows + i;
    if (dims.update_window_dims(i) != d ||
        updates.dimensions(d) != scatter.shape().dimensions(1 + i)) {
      return false;
    }
  }
  return windows == RankOf(scatter.shape()) - 1;
}

// Takes a sum apart that nothing else reads, into scatters that start from
// zeros; false if it is another value.
bool FindTerms(const HloInstruction& value, size_t depth,
               std::vector<const HloScatterInstruction*>& terms) {
  if (!HasOneReader(value) || !IsPlain(value) || terms.size() >= kMaxTerms ||
      depth == 0) {
    return false;
  }
  if (value.opcode() == HloOpcode::kAdd) {
    return FindTerms(*value.operand(0), depth - 1, terms) &&
           FindTerms(*value.operand(1), depth - 1, terms);
  }
  if (value.opcode() != HloOpcode::kScatter) return false;
  const auto& scatter = *xla::Cast<HloScatterInstruction>(&value);
  if (!AddsRows(scatter)) return false;
  terms.push_back(&scatter);
  const HloInstruction& start = *scatter.scatter_operands()[0];
  return IsZero(start) || FindTerms(start, depth - 1, terms);
}

// The same with operations on it.
bool FindScatters(const HloInstruction* value, ScatteredSum& sum) {
  while (sum.steps.size() < kMaxSteps && HasOneReader(*value) &&
         IsPlain(*value)) {
    const HloOpcode opcode = value->opcode();
    if (opcode == HloOpcode::kNegate) {
      sum.steps.push_back({opcode, nullptr});
      value = value->operand(0);
    } else if (opcode == HloOpcode::kMultiply || opcode == HloOpcode::kDivide) {
      const HloInstruction* right = FiniteNumberOf(*value->operand(1));
      const HloInstruction* left = opcode == HloOpcode::kMultiply
                                       ? FiniteNumberOf(*value->operand(0))
                                       : nullptr;
      if (right == nullptr && left == nullptr) return false;
      if (opcode == HloOpcode::kDivide && right->literal().IsAll(0)) {
        return false;
      }
      sum.steps.push_back({opcode, right != nullptr ? right : left});
      value = value->operand(right != nullptr ? 0 : 1);
    } else {
      break;
    }
  }
  return FindTerms(*value, kMaxSteps, sum.terms) &&
         absl::c_all_of(sum.terms, [&](const HloScatterInstruction* each) {
           return each->scatter_indices()->shape().element_type() ==
                  sum.terms[0]->scatter_indices()->shape().element_type();
         });
}

int64_t UpdatesOf(const ScatteredSum& sum) {
  int64_t elements = 0;
  for (const HloScatterInstruction* each : sum.terms) {
    elements += xla::ShapeUtil::ElementsIn(each->scatter_updates()[0]->shape());
  }
  return elements;
}

// Whether a fused kernel computes something else of the sum at once.
bool IsFusedOn(const HloInstruction& root) {
  return absl::c_any_of(root.users(), [](const HloInstruction* user) {
    return user->IsElementwise();
  });
}

std::optional<ScatteredSum> ScatteredSumOf(const HloInstruction& root,
                                           RuleContext& context) {
  const bool is_difference = root.opcode() == HloOpcode::kSubtract;
  const xla::PrimitiveType type = root.shape().element_type();
  if ((!is_difference && root.opcode() != HloOpcode::kAdd) || !IsPlain(root) ||
      RankOf(root.shape()) == 0 ||
      xla::ShapeUtil::ElementsIn(root.shape()) <
          std::max(kMinScattered, kMinWidth * root.shape().dimensions(0)) ||
      !IsReducible(root.shape()) || type == xla::PRED ||
      xla::ShapeUtil::ElementIsComplex(root.shape()) ||
      AccumulationType(type) != type || IsFusedOn(root) ||
      context.IsCompared(root)) {
    return std::nullopt;
  }
  for (int64_t side = 1; side >= (is_difference ? 1 : 0); --side) {
    ScatteredSum sum = {root.operand(1 - side), {}, {}};
    if (is_difference) sum.steps.push_back({HloOpcode::kNegate, nullptr});
    if (!IsPlain(*sum.array) || !FindScatters(root.operand(side), sum)) {
      continue;
    }
    // XLA adds what nothing is done to to the array itself.
    const bool is_left = !sum.steps.empty() || sum.terms.size() > 1;
    // Of several, infinities or huge masks are added in another order.
    const bool is_safe =
        sum.terms.size() == 1 ||
        absl::c_none_of(sum.terms, [&](const HloScatterInstruction* each) {
          return context.ExtremesOf(*each->scatter_updates()[0]).large();
        });
    const bool is_small = UpdatesOf(sum) * kTimesAsMany <=
                          xla::ShapeUtil::ElementsIn(root.shape());
    if (is_left && is_safe && is_small) return sum;
  }
  return std::nullopt;
}

// The array, the indices and updates of each scatter, and the numbers.
std::vector<const HloInstruction*> ReadsOf(const ScatteredSum& sum) {
  std::vector<const HloInstruction*> reads = {sum.array};
  for (const HloScatterInstruction* each : sum.terms) {
    reads.push_back(each->scatter_indices());
    reads.push_back(each->scatter_updates()[0]);
  }
  for (const ScaledBy& step : sum.steps) {
    if (step.number != nullptr) reads.push_back(step.number);
  }
  return reads;
}

// Builds the replacement from the images of ReadsOf.
class Scatters {
 public:
  Scatters(const ScatteredSum& sum, absl::Span<HloInstruction* const> x)
      : sum_(sum), x_(x), rows_(sum.array->shape().dimensions(0)) {}

  absl::StatusOr<HloInstruction*> Build() {
    HLOENV_RETURN_IF_ERROR(FindRows());
    HloInstruction* places = Places();
    HLOENV_ASSIGN_OR_RETURN(HloInstruction * owners, Owners(places));
    // The sums, at the place of their owner.
    HloInstruction* zero = Number(updates_->shape().element_type(), 0);
    HloInstruction* zeros =
        Add(HloInstruction::CreateBroadcast(updates_->shape(), zero, {}));
    HLOENV_ASSIGN_OR_RETURN(HloInstruction * sums,
                            Scattered(zeros, owners, updates_));
    size_t number = x_.size();  // they are the last of these
    for (size_t i = sum_.steps.size(); i-- > 0;) {
      const ScaledBy& step = sum_.steps[i];
      sums = step.number == nullptr
                 ? Add(HloInstruction::CreateUnary(sums->shape(), step.opcode,
                                                   sums))
                 : Add(HloInstruction::CreateBinary(
                       sums->shape(), step.opcode, sums,
                       Add(HloInstruction::CreateBroadcast(sums->shape(),
                                                           x_[--number], {}))));
    }
    // Others are left out.
    HloInstruction* is_owner =
        Compared(xla::ComparisonDirection::kEq, owners, places);
    HloInstruction* rows =
        Selected(is_owner, Converted({indices_, ""}, xla::S32).value,
                 Filled(xla::S32, rows_));
    return Scattered(x_[0], rows, sums);
  }

 private:
  HloInstruction* Add(std::unique_ptr<HloInstruction> instruction) {
    return x_[0]->parent()->AddInstruction(std::move(instruction));
  }

  HloInstruction* Number(xla::PrimitiveType type, int64_t value) {
    return Add(HloInstruction::CreateConstant(
        xla::LiteralUtil::CreateR0(value).Convert(type).value()));
  }

  // The number of each update.
  HloInstruction* Places() {
    return Add(HloInstruction::CreateIota(
        xla::ShapeUtil::MakeShape(xla::S32, {updates_->shape().dimensions(0)}),
        0));
  }

  // The same number for each update.
  HloInstruction* Filled(xla::PrimitiveType type, int64_t value) {
    const int64_t count = updates_->shape().dimensions(0);
    return Add(HloInstruction::CreateBroadcast(
        xla::ShapeUtil::MakeShape(type, {count}), Number(type, value), {}));
  }

  HloInstruction* Compared(xla::ComparisonDirection direction,
                           HloInstruction* a, HloInstruction* b) {
    return Add(HloInstruction::CreateCompare(
        xla::ShapeUtil::ChangeElementType(a->shape(), xla::PRED), a, b,
        direction));
  }

  HloInstruction* Selected(HloInstruction* condition, HloInstruction* a,
                           HloInstruction* b) {
    return Add(HloInstruction::CreateTernary(a->shape(), HloOpcode::kSelect,
                                             condition, a, b));
  }

  // One index and one row for each update.
  absl::Status FindRows() {
    std::vector<Labelled> indices, updates;
    for (size_t i = 0; i < sum_.terms.size(); ++i) {
      HloInstruction* own = x_[1 + 2 * i];
      HloInstruction* rows = x_[2 + 2 * i];
      const int64_t count = xla::ShapeUtil::ElementsIn(own->shape());
      std::vector<int64_t> sizes(sum_.array->shape().dimensions().begin(),
                                 sum_.array->shape().dimensions().end());
      sizes[0] = count;
      HLOENV_ASSIGN_OR_RETURN(
          own, xla::MakeReshapeHlo(std::vector<int64_t>{count}, own));
      HLOENV_ASSIGN_OR_RETURN(rows, xla::MakeReshapeHlo(sizes, rows));
      indices.push_back({own, "r"});
      updates.push_back({rows, LabelsOf(RankOf(rows->shape()))});
    }
    indices_ = Concatenated(indices, 'r').value;
    updates_ = Concatenated(updates, updates[0].labels[0]).value;
    return absl::OkStatus();
  }

  // For each update the number of one of those of its row; as many as there are
  // updates for one that is outside.
  absl::StatusOr<HloInstruction*> Owners(HloInstruction* places) {
    const xla::PrimitiveType type = indices_->shape().element_type();
    HloInstruction* is_inside = Add(HloInstruction::CreateBinary(
        xla::ShapeUtil::ChangeElementType(indices_->shape(), xla::PRED),
        HloOpcode::kAnd,
        Compared(xla::ComparisonDirection::kGe, indices_, Filled(type, 0)),
        Compared(xla::ComparisonDirection::kLt, indices_,
                 Filled(type, rows_))));
    HloInstruction* inside =
        Converted({Selected(is_inside, indices_, Filled(type, 0)), ""},
                  xla::S32)
            .value;
    const int64_t count = updates_->shape().dimensions(0);
    HloInstruction* no_owner = Add(HloInstruction::CreateBroadcast(
        xla::ShapeUtil::MakeShape(xla::S32, {rows_}), Number(xla::S32, -1),
        {}));
    HLOENV_ASSIGN_OR_RETURN(
        HloInstruction * starts,
        xla::MakeReshapeHlo(
            std::vector<int64_t>{count, 1},
            Selected(is_inside, inside, Filled(xla::S32, rows_))));
    xla::HloComputation::Builder builder("larger");
    const xla::Shape number = xla::ShapeUtil::MakeShape(xla::S32, {});
    builder.AddInstruction(HloInstruction::CreateBinary(
        number, HloOpcode::kMaximum,
        builder.AddInstruction(HloInstruction::CreateParameter(0, number, "a")),
        builder.AddInstruction(
            HloInstruction::CreateParameter(1, number, "b"))));
    xla::ScatterDimensionNumbers dims;
    dims.add_inserted_window_dims(0);
    dims.add_scatter_dims_to_operand_dims(0);
    dims.set_index_vector_dim(1);
    HloInstruction* last = Add(HloInstruction::CreateScatter(
        no_owner->shape(), no_owner, starts, places,
        x_[0]->GetModule()->AddEmbeddedComputation(builder.Build()), dims,
        /*indices_are_sorted=*/false, /*unique_indices=*/false));
    HLOENV_ASSIGN_OR_RETURN(
        starts, xla::MakeReshapeHlo(std::vector<int64_t>{count, 1}, inside));
    xla::GatherDimensionNumbers gathered;
    gathered.add_collapsed_slice_dims(0);
    gathered.add_start_index_map(0);
    gathered.set_index_vector_dim(1);
    HloInstruction* owners = Add(HloInstruction::CreateGather(
        inside->shape(), last, starts, gathered, {1},
        /*indices_are_sorted=*/false));
    return Selected(is_inside, owners, Filled(xla::S32, count));
  }

  // `array` with these rows added to those at `indices`.
  absl::StatusOr<HloInstruction*> Scattered(HloInstruction* array,
                                            HloInstruction* indices,
                                            HloInstruction* rows) {
    const int64_t count = indices->shape().dimensions(0);
    HLOENV_ASSIGN_OR_RETURN(
        indices, xla::MakeReshapeHlo(std::vector<int64_t>{count, 1}, indices));
    xla::ScatterDimensionNumbers dims;
    for (int64_t d = 1; d < RankOf(array->shape()); ++d) {
      dims.add_update_window_dims(d);
    }
    dims.add_inserted_window_dims(0);
    dims.add_scatter_dims_to_operand_dims(0);
    dims.set_index_vector_dim(1);
    HLOENV_ASSIGN_OR_RETURN(xla::HloComputation * combiner,
                            CalledBeside(*sum_.terms[0], x_.subspan(0, 3)));
    return Add(HloInstruction::CreateScatter(
        array->shape(), array, indices, rows, combiner, dims,
        /*indices_are_sorted=*/false, /*unique_indices=*/false));
  }

  const ScatteredSum& sum_;
  absl::Span<HloInstruction* const> x_;
  const int64_t rows_;
  HloInstruction* indices_ = nullptr;
  HloInstruction* updates_ = nullptr;
};

}  // namespace

const Rule& ScatterIntoRule() {
  static constexpr Rule rule = {
      "scatter_into",
      "Rewrites the sum or difference of an array and a scatter that adds few "
      "rows to zeros, also times constants, as a scatter into the array, as "
      "of a step of gradient descent on a table. Exact, but for zeros, which "
      "keep their sign; sums of several scatters round differently.",
      [](const HloInstruction& root, RuleContext& context,
         std::vector<Proposal>& proposals) {
        const std::optional<ScatteredSum> sum = ScatteredSumOf(root, context);
        if (!sum.has_value()) return;
        Propose(
            ScatterIntoRule(), root, ReadsOf(*sum),
            [sum = *sum](absl::Span<HloInstruction* const> x) {
              return Scatters(sum, x).Build();
            },
            proposals);
      }};
  return rule;
}

}  // namespace hloenv
