// SPDX-License-Identifier: Apache-2.0
// Proposes scatters into an array for its sum with a scatter into zeros: the
// gradient of `table[i]` is an array of the table's size that is mostly zero,
// and a step of gradient descent adds a multiple of it to the table.
//
// Before:  g = scatter-add(zeros, i, u)
//          t = table - 0.1 * g
// After:   t = scatter-add(table, i, -(u * 0.1))
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::HloScatterInstruction;

// Elements of the array, and how many times as many as those of the updates;
// scatters, and operations between them and the sum.
constexpr int64_t kMinScattered = int64_t{1} << 15;
constexpr int64_t kTimesAsMany = 2;
constexpr size_t kMostScatters = 8;

bool HasOneReader(const HloInstruction& value) {
  return value.user_count() == 1 && !value.IsRoot();
}

bool IsZero(const HloInstruction& value) {
  const HloInstruction& number =
      value.opcode() == HloOpcode::kBroadcast ? *value.operand(0) : value;
  return number.opcode() == HloOpcode::kConstant && number.literal().IsAll(0);
}

// The number that all elements of a product with it are multiplied by.
const HloInstruction* FactorOf(const HloInstruction& value) {
  if (value.opcode() != HloOpcode::kBroadcast) return nullptr;
  const HloInstruction* number = value.operand(0);
  return RankOf(number->shape()) == 0 ? number : nullptr;
}

struct ScatteredSum {
  const HloInstruction* array;
  bool is_subtracted;
  // Of the updates, the last first; null for a negation.
  std::vector<const HloInstruction*> factors;
  std::vector<const HloScatterInstruction*> scatters;  // the last first
};

// Takes factors and scatters from what is added; false if it is another value.
bool FindScatters(const HloInstruction* value, ScatteredSum& sum) {
  for (; sum.factors.size() < kMostScatters && HasOneReader(*value);) {
    if (value->opcode() == HloOpcode::kNegate) {
      sum.factors.push_back(nullptr);
      value = value->operand(0);
      continue;
    }
    if (value->opcode() != HloOpcode::kMultiply) break;
    const HloInstruction* right = FactorOf(*value->operand(1));
    const HloInstruction* factor =
        right != nullptr ? right : FactorOf(*value->operand(0));
    if (factor == nullptr) return false;
    sum.factors.push_back(factor);
    value = value->operand(right != nullptr ? 0 : 1);
  }
  int64_t updates = 0;
  while (value->opcode() == HloOpcode::kScatter && HasOneReader(*value) &&
         IsPlain(*value) && sum.scatters.size() < kMostScatters) {
    const auto& scatter = *xla::Cast<HloScatterInstruction>(value);
    if (scatter.scatter_operand_count() != 1 ||
        OperationOf(*scatter.to_apply()) != HloOpcode::kAdd) {
      return false;
    }
    sum.scatters.push_back(&scatter);
    updates +=
        xla::ShapeUtil::ElementsIn(scatter.scatter_updates()[0]->shape());
    value = scatter.scatter_operands()[0];
  }
  return !sum.scatters.empty() && IsZero(*value) &&
         updates * kTimesAsMany <= xla::ShapeUtil::ElementsIn(value->shape());
}

std::optional<ScatteredSum> ScatteredSumOf(const HloInstruction& root,
                                           RuleContext& context) {
  const bool is_difference = root.opcode() == HloOpcode::kSubtract;
  const xla::PrimitiveType type = root.shape().element_type();
  if ((!is_difference && root.opcode() != HloOpcode::kAdd) || !IsPlain(root) ||
      xla::ShapeUtil::ElementsIn(root.shape()) < kMinScattered ||
      !IsReducible(root.shape()) || type == xla::PRED ||
      AccumulationType(type) != type || context.IsCompared(root)) {
    return std::nullopt;
  }
  for (int64_t side = 1; side >= (is_difference ? 1 : 0); --side) {
    ScatteredSum sum = {root.operand(1 - side), is_difference, {}, {}};
    if (sum.array != root.operand(side) && IsPlain(*sum.array) &&
        FindScatters(root.operand(side), sum)) {
      return sum;
    }
  }
  return std::nullopt;
}

// Reads: the array, each factor that is none of a negation, and the indices and
// updates of each scatter.
std::vector<const HloInstruction*> ReadsOf(const ScatteredSum& sum) {
  std::vector<const HloInstruction*> reads = {sum.array};
  for (const HloInstruction* factor : sum.factors) {
    if (factor != nullptr) reads.push_back(factor);
  }
  for (const HloScatterInstruction* scatter : sum.scatters) {
    reads.push_back(scatter->scatter_indices());
    reads.push_back(scatter->scatter_updates()[0]);
  }
  return reads;
}

HloInstruction* Negated(HloInstruction* x) {
  return x->AddInstruction(
      HloInstruction::CreateUnary(x->shape(), HloOpcode::kNegate, x));
}

HloInstruction* BuildScatters(const ScatteredSum& sum,
                              absl::Span<HloInstruction* const> x) {
  HloInstruction* array = x[0];
  const size_t num_factors =
      sum.factors.size() - absl::c_count(sum.factors, nullptr);
  absl::Span<HloInstruction* const> scattered = x.subspan(1 + num_factors);
  for (size_t i = sum.scatters.size(); i-- > 0;) {
    HloInstruction* updates = scattered[2 * i + 1];
    size_t next = num_factors;
    for (size_t f = sum.factors.size(); f-- > 0;) {
      if (sum.factors[f] == nullptr) {
        updates = Negated(updates);
        continue;
      }
      HloInstruction* factor = updates->AddInstruction(
          HloInstruction::CreateBroadcast(updates->shape(), x[next--], {}));
      updates = updates->AddInstruction(HloInstruction::CreateBinary(
          updates->shape(), HloOpcode::kMultiply, updates, factor));
    }
    if (sum.is_subtracted) updates = Negated(updates);
    array = CloneBeside(*sum.scatters[i], array->shape(),
                        {array, scattered[2 * i], updates});
  }
  return array;
}

}  // namespace

const Rule& ScatterIntoRule() {
  static constexpr Rule rule = {
      "scatter_into",
      "Rewrites the sum or difference of a large array and a scatter that adds "
      "to zeros, also times numbers, as a scatter into the array, as of a step "
      "of gradient descent on a table. Floats round differently, and a factor "
      "that is infinite makes no NaN of elements without updates.",
      [](const HloInstruction& root, RuleContext& context,
         std::vector<Proposal>& proposals) {
        const std::optional<ScatteredSum> sum = ScatteredSumOf(root, context);
        if (!sum.has_value()) return;
        Propose(
            ScatterIntoRule(), root, ReadsOf(*sum),
            [sum = *sum](absl::Span<HloInstruction* const> x)
                -> absl::StatusOr<HloInstruction*> {
              return BuildScatters(sum, x);
            },
            proposals);
      }};
  return rule;
}

}  // namespace hloenv
