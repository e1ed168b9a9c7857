// SPDX-License-Identifier: Apache-2.0
// Proposes scatters into an array for its sum with a scatter into zeros: the
// gradient of `table[i]` is an array of the table's size that is mostly zero,
// and a step of gradient descent adds a multiple of it to the table.
//
// Before:  g = scatter-add(zeros, i, u)
//          t = table - 0.1 * g
// After:   t = scatter-add(table, i, -(u * 0.1))
#include <utility>
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
// scatters, and operations between one and the sum.
constexpr int64_t kMinScattered = int64_t{1} << 10;
constexpr int64_t kTimesAsMany = 2;
constexpr size_t kMostTerms = 8;
constexpr size_t kMostDeep = 16;

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

// A scatter, and what its updates are multiplied by, the last first; null for
// a negation.
struct Term {
  const HloScatterInstruction* scatter;
  std::vector<const HloInstruction*> factors;
};

struct ScatteredSum {
  const HloInstruction* array;
  std::vector<Term> terms;
};

// Takes a value apart that nothing else reads, into scatters that start from
// zeros; false if it is another one, or deeper than `depth`.
bool FindTerms(const HloInstruction& value,
               std::vector<const HloInstruction*> factors, size_t depth,
               std::vector<Term>& terms) {
  if (!HasOneReader(value) || terms.size() > kMostTerms || depth == 0) {
    return false;
  }
  --depth;
  switch (value.opcode()) {
    case HloOpcode::kAdd:
      return FindTerms(*value.operand(0), factors, depth, terms) &&
             FindTerms(*value.operand(1), factors, depth, terms);
    case HloOpcode::kNegate:
      factors.push_back(nullptr);
      return FindTerms(*value.operand(0), std::move(factors), depth, terms);
    case HloOpcode::kMultiply: {
      const bool is_right = FactorOf(*value.operand(1)) != nullptr;
      const HloInstruction* factor = FactorOf(*value.operand(is_right ? 1 : 0));
      if (factor == nullptr) return false;
      factors.push_back(factor);
      return FindTerms(*value.operand(is_right ? 0 : 1), std::move(factors),
                       depth, terms);
    }
    case HloOpcode::kScatter: {
      const auto& scatter = *xla::Cast<HloScatterInstruction>(&value);
      if (!IsPlain(value) || scatter.scatter_operand_count() != 1 ||
          OperationOf(*scatter.to_apply()) != HloOpcode::kAdd) {
        return false;
      }
      const HloInstruction& start = *scatter.scatter_operands()[0];
      terms.push_back({&scatter, factors});
      return IsZero(start) ||
             FindTerms(start, std::move(factors), depth, terms);
    }
    default:
      return false;
  }
}

int64_t UpdatesOf(const ScatteredSum& sum) {
  int64_t elements = 0;
  for (const Term& term : sum.terms) {
    elements +=
        xla::ShapeUtil::ElementsIn(term.scatter->scatter_updates()[0]->shape());
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
      xla::ShapeUtil::ElementsIn(root.shape()) < kMinScattered ||
      !IsReducible(root.shape()) || type == xla::PRED ||
      AccumulationType(type) != type || IsFusedOn(root) ||
      context.IsCompared(root)) {
    return std::nullopt;
  }
  for (int64_t side = 1; side >= (is_difference ? 1 : 0); --side) {
    ScatteredSum sum = {root.operand(1 - side), {}};
    std::vector<const HloInstruction*> factors;
    if (is_difference) factors.push_back(nullptr);
    if (IsPlain(*sum.array) &&
        FindTerms(*root.operand(side), std::move(factors), kMostDeep,
                  sum.terms) &&
        UpdatesOf(sum) * kTimesAsMany <=
            xla::ShapeUtil::ElementsIn(root.shape())) {
      return sum;
    }
  }
  return std::nullopt;
}

// The array, and of each term the indices, the updates and the factors.
std::vector<const HloInstruction*> ReadsOf(const ScatteredSum& sum) {
  std::vector<const HloInstruction*> reads = {sum.array};
  for (const Term& term : sum.terms) {
    reads.push_back(term.scatter->scatter_indices());
    reads.push_back(term.scatter->scatter_updates()[0]);
    for (const HloInstruction* factor : term.factors) {
      if (factor != nullptr) reads.push_back(factor);
    }
  }
  return reads;
}

HloInstruction* Negated(HloInstruction* x) {
  return x->AddInstruction(
      HloInstruction::CreateUnary(x->shape(), HloOpcode::kNegate, x));
}

HloInstruction* Scaled(HloInstruction* x, HloInstruction* number) {
  HloInstruction* factor = x->AddInstruction(
      HloInstruction::CreateBroadcast(x->shape(), number, {}));
  return x->AddInstruction(HloInstruction::CreateBinary(
      x->shape(), HloOpcode::kMultiply, x, factor));
}

// From the images of ReadsOf.
HloInstruction* BuildScatters(const ScatteredSum& sum,
                              absl::Span<HloInstruction* const> x) {
  HloInstruction* array = x[0];
  size_t next = 1;
  for (const Term& term : sum.terms) {
    HloInstruction* indices = x[next++];
    HloInstruction* updates = x[next++];
    next += term.factors.size() - absl::c_count(term.factors, nullptr);
    size_t factor = next;
    for (size_t i = term.factors.size(); i-- > 0;) {
      updates = term.factors[i] == nullptr ? Negated(updates)
                                           : Scaled(updates, x[--factor]);
    }
    array =
        CloneBeside(*term.scatter, array->shape(), {array, indices, updates});
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
