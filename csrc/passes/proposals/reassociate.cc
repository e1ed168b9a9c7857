// SPDX-License-Identifier: Apache-2.0
// Proposes other orders of associative and distributive operations.
#include "google/protobuf/util/message_differencer.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"

namespace hloenv {
namespace {

using google::protobuf::util::MessageDifferencer;
using xla::HloInstruction;
using xla::HloOpcode;
using Images = absl::Span<HloInstruction* const>;

bool IsAssociative(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kOr:
    case HloOpcode::kXor:
      return true;
    default:
      return false;
  }
}

// Excludes types of 8 bits and less: each operation rounds to the type, and
// sums in another order can lose all precision.
bool HasRoom(const HloInstruction& instruction) {
  return IsPlain(instruction) && xla::primitive_util::BitWidth(
                                     instruction.shape().element_type()) >= 16;
}

Extremes Of(RuleContext& context,
            std::initializer_list<const HloInstruction*> values) {
  Extremes extremes;
  for (const HloInstruction* value : values) {
    extremes = extremes | context.ExtremesOf(*value);
  }
  return extremes;
}

// Whether partial sums in any order are infinite or NaN only if the sum is.
// True if all large values have the same sign: then no partial sum is larger
// than the sum.
bool MayAdd(RuleContext& context,
            std::initializer_list<const HloInstruction*> values) {
  const Extremes extremes = Of(context, values);
  return !(extremes.positive && extremes.negative);
}

// Whether the product of any two values is finite, and zero only if a factor
// is.
bool MayMultiply(RuleContext& context,
                 std::initializer_list<const HloInstruction*> values) {
  return !Of(context, values).any();
}

// Whether a * (b + c) is finite if a * b + a * c is, and vice versa. Not true
// for infinities: inf * (2 - 1) is inf, inf * 2 - inf * 1 is NaN.
bool MayDistribute(RuleContext& context,
                   std::initializer_list<const HloInstruction*> values) {
  return !Of(context, values).large();
}

bool MayReorder(HloOpcode opcode, RuleContext& context,
                std::initializer_list<const HloInstruction*> values) {
  switch (opcode) {
    case HloOpcode::kAdd:
      return MayAdd(context, values);
    case HloOpcode::kMultiply:
      return MayMultiply(context, values);
    default:
      return true;
  }
}

absl::StatusOr<HloInstruction*> Binary(HloOpcode opcode, HloInstruction* a,
                                       HloInstruction* b) {
  return xla::MakeBinaryHlo(opcode, a, b);
}

const Rule& TreeRule();
void ProposeTree(const HloInstruction& root, RuleContext& context,
                 std::vector<Proposal>& proposals) {
  if (!IsAssociative(root.opcode()) || !HasRoom(root)) return;
  const HloOpcode opcode = root.opcode();
  for (int side : {0, 1}) {
    const HloInstruction* inner = root.operand(side);
    if (inner->opcode() != opcode || !HasRoom(*inner) ||
        inner->user_count() != 1) {
      continue;
    }
    const HloInstruction* other = root.operand(1 - side);
    if (!MayReorder(opcode, context,
                    {inner->operand(0), inner->operand(1), other})) {
      continue;
    }
    // (a . b) . c becomes a . (b . c) and b . (a . c).
    for (int outer : {0, 1}) {
      Propose(
          TreeRule(), root,
          {inner->operand(outer), inner->operand(1 - outer), other},
          [opcode](Images x) -> absl::StatusOr<HloInstruction*> {
            HLOENV_ASSIGN_OR_RETURN(HloInstruction * pair,
                                    Binary(opcode, x[1], x[2]));
            return Binary(opcode, x[0], pair);
          },
          proposals);
    }
  }
}
const Rule& TreeRule() {
  static constexpr Rule rule = {
      "trees",
      "Rewrites (a . b) . c as a . (b . c) and as b . (a . c), for add, "
      "multiply, maximum, minimum and the logical operations, where the inner "
      "result has no other users. Sums and products of floats round "
      "differently.",
      &ProposeTree};
  return rule;
}

bool IsSum(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kAdd ||
         instruction.opcode() == HloOpcode::kSubtract;
}

const Rule& DistributeRule();
void ProposeDistribute(const HloInstruction& root, RuleContext& context,
                       std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kMultiply || !HasRoom(root)) return;
  for (int side : {0, 1}) {
    const HloInstruction* sum = root.operand(side);
    if (!IsSum(*sum) || !HasRoom(*sum) ||
        !MayDistribute(context, {root.operand(1 - side), sum->operand(0),
                                 sum->operand(1)})) {
      continue;
    }
    Propose(
        DistributeRule(), root,
        {root.operand(1 - side), sum->operand(0), sum->operand(1)},
        [opcode = sum->opcode()](Images x) -> absl::StatusOr<HloInstruction*> {
          HLOENV_ASSIGN_OR_RETURN(HloInstruction * left,
                                  Binary(HloOpcode::kMultiply, x[0], x[1]));
          HLOENV_ASSIGN_OR_RETURN(HloInstruction * right,
                                  Binary(HloOpcode::kMultiply, x[0], x[2]));
          return Binary(opcode, left, right);
        },
        proposals);
  }
}
const Rule& DistributeRule() {
  static constexpr Rule rule = {
      "distribute",
      "Rewrites a * (b + c) as a * b + a * c, likewise for differences. Floats "
      "round differently.",
      &ProposeDistribute};
  return rule;
}

const Rule& FactorRule();
void ProposeFactor(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  if (!IsSum(root) || !HasRoom(root)) return;
  const HloInstruction* left = root.operand(0);
  const HloInstruction* right = root.operand(1);
  if (left->opcode() != HloOpcode::kMultiply || !HasRoom(*left) ||
      right->opcode() != HloOpcode::kMultiply || !HasRoom(*right)) {
    return;
  }
  for (int i : {0, 1}) {
    for (int j : {0, 1}) {
      if (left->operand(i) != right->operand(j) ||
          !MayDistribute(context, {left->operand(i), left->operand(1 - i),
                                   right->operand(1 - j)})) {
        continue;
      }
      Propose(
          FactorRule(), root,
          {left->operand(i), left->operand(1 - i), right->operand(1 - j)},
          [opcode =
               root.opcode()](Images x) -> absl::StatusOr<HloInstruction*> {
            HLOENV_ASSIGN_OR_RETURN(HloInstruction * sum,
                                    Binary(opcode, x[1], x[2]));
            return Binary(HloOpcode::kMultiply, x[0], sum);
          },
          proposals);
      return;
    }
  }
}
const Rule& FactorRule() {
  static constexpr Rule rule = {
      "factor",
      "Rewrites a * b + a * c as a * (b + c), likewise for differences. Floats "
      "round differently.",
      &ProposeFactor};
  return rule;
}

// Whether `instruction` is a dot of row-major [m, k] and [k, n].
bool IsMatrixProduct(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kDot || !HasRoom(instruction) ||
      instruction.operand_count() != 2) {
    return false;
  }
  const xla::DotDimensionNumbers& numbers = instruction.dot_dimension_numbers();
  return RankOf(instruction.operand(0)->shape()) == 2 &&
         RankOf(instruction.operand(1)->shape()) == 2 &&
         numbers.lhs_batch_dimensions().empty() &&
         numbers.lhs_contracting_dimensions_size() == 1 &&
         numbers.lhs_contracting_dimensions(0) == 1 &&
         numbers.rhs_contracting_dimensions(0) == 0 &&
         instruction.precision_config().algorithm() ==
             xla::PrecisionConfig::ALG_UNSET &&
         instruction.operand(0)->shape().element_type() ==
             instruction.shape().element_type() &&
         instruction.operand(1)->shape().element_type() ==
             instruction.shape().element_type();
}

const Rule& ProductsRule();
void ProposeProducts(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  if (!IsMatrixProduct(root)) return;
  for (int side : {0, 1}) {
    const HloInstruction* inner = root.operand(side);
    if (!IsMatrixProduct(*inner) ||
        !MessageDifferencer::Equals(inner->precision_config(),
                                    root.precision_config())) {
      continue;
    }
    const auto* first = inner->operand(0);
    const auto* second = inner->operand(1);
    const auto* other = root.operand(1 - side);
    if (!MayMultiply(context, {first, second, other})) continue;
    const HloInstruction& left = side == 0 ? *second : *other;
    const HloInstruction& right = side == 0 ? *other : *first;
    auto elements =
        static_cast<double>(xla::ShapeUtil::ElementsIn(root.shape()));
    for (const HloInstruction* each : {first, second, other}) {
      elements +=
          static_cast<double>(xla::ShapeUtil::ElementsIn(each->shape()));
    }
    if (!FitsBeside(static_cast<double>(left.shape().dimensions(0)) *
                        static_cast<double>(right.shape().dimensions(1)),
                    elements)) {
      continue;
    }
    const auto product = [numbers = root.dot_dimension_numbers(),
                          precision = root.precision_config(),
                          type = root.shape().element_type()](
                             HloInstruction* a, HloInstruction* b) {
      return xla::MakeDotHlo(a, b, numbers, precision, type);
    };
    Propose(
        ProductsRule(), root, {first, second, other},
        [side, product](Images x) -> absl::StatusOr<HloInstruction*> {
          if (side == 0) {  // (a b) c
            HLOENV_ASSIGN_OR_RETURN(HloInstruction * pair, product(x[1], x[2]));
            return product(x[0], pair);
          }  // c (a b)
          HLOENV_ASSIGN_OR_RETURN(HloInstruction * pair, product(x[2], x[0]));
          return product(pair, x[1]);
        },
        proposals);
  }
}
const Rule& ProductsRule() {
  static constexpr Rule rule = {
      "products",
      "Rewrites (A B) C as A (B C) and vice versa, for products of two "
      "matrices, even if the inner product has other users, unless the new "
      "one is much larger than all of them. Floats round differently.",
      &ProposeProducts};
  return rule;
}

// The associative operation of a reduction of one array; none for other
// instructions, and for products of floats, because products of many moderate
// floats overflow depending on the order.
std::optional<HloOpcode> ReductionOf(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kReduce || !HasRoom(instruction) ||
      instruction.operand_count() != 2) {
    return std::nullopt;
  }
  const HloInstruction* root = instruction.to_apply()->root_instruction();
  if (!IsAssociative(root->opcode()) ||
      root->operand(0)->opcode() != HloOpcode::kParameter ||
      root->operand(1)->opcode() != HloOpcode::kParameter ||
      root->operand(0) == root->operand(1)) {
    return std::nullopt;
  }
  if (root->opcode() == HloOpcode::kMultiply &&
      !xla::ShapeUtil::ElementIsIntegral(instruction.shape())) {
    return std::nullopt;
  }
  return root->opcode();
}

// Whether the backend sums in a short type, so that many terms together are
// nothing like several sums of few.
bool SumsShortFloats(const HloInstruction& reduction, HloOpcode opcode) {
  const xla::PrimitiveType type = reduction.shape().element_type();
  return opcode == HloOpcode::kAdd &&
         xla::primitive_util::IsFloatingPointType(type) &&
         xla::primitive_util::BitWidth(type) < 32;
}

// Whether an operation of a number and itself is that number.
bool IsIdempotent(HloOpcode opcode) {
  return opcode == HloOpcode::kMaximum || opcode == HloOpcode::kMinimum ||
         opcode == HloOpcode::kAnd || opcode == HloOpcode::kOr;
}

const Rule& MergeReductionsRule();
void ProposeMergeReductions(const HloInstruction& outer, RuleContext& context,
                            std::vector<Proposal>& proposals) {
  const std::optional<HloOpcode> opcode = ReductionOf(outer);
  if (!opcode.has_value()) return;
  const HloInstruction* inner = outer.operand(0);
  // XLA reduces large arrays in steps, each of which starts with the initial
  // value.
  if (ReductionOf(*inner) != opcode || SumsShortFloats(outer, *opcode) ||
      !inner->operand(0)->shape().is_static() ||
      !IsNeutral(*inner->operand(1), *opcode) ||
      !(IsIdempotent(*opcode) || IsNeutral(*outer.operand(1), *opcode)) ||
      !MayReorder(*opcode, context, {inner->operand(0), outer.operand(1)})) {
    return;
  }
  // Dimensions of the inner result are those of its operand without the reduced
  // ones.
  std::vector<int64_t> kept;
  for (int64_t d = 0; d < RankOf(inner->operand(0)->shape()); ++d) {
    if (!absl::c_linear_search(inner->dimensions(), d)) kept.push_back(d);
  }
  std::vector<int64_t> dimensions(inner->dimensions().begin(),
                                  inner->dimensions().end());
  for (int64_t d : outer.dimensions()) dimensions.push_back(kept[d]);
  std::sort(dimensions.begin(), dimensions.end());
  Propose(
      MergeReductionsRule(), outer, {inner->operand(0), outer.operand(1)},
      [dimensions, opcode = *opcode](Images x) {
        return xla::MakeReduceHlo(x[0], x[1], dimensions, opcode);
      },
      proposals);
}
const Rule& MergeReductionsRule() {
  static constexpr Rule rule = {
      "merge_reductions",
      "Merges a reduction of a reduction by the same operation, where the "
      "initial values are the operation's identity, or that of the outer one "
      "may count several times. Floats of 32 or more bits round differently; "
      "sums of shorter ones are left.",
      &ProposeMergeReductions};
  return rule;
}

const Rule& SplitReductionsRule();
void ProposeSplitReductions(const HloInstruction& root, RuleContext& context,
                            std::vector<Proposal>& proposals) {
  const std::optional<HloOpcode> opcode = ReductionOf(root);
  if (!opcode.has_value() || root.dimensions().size() < 2 ||
      SumsShortFloats(root, *opcode) || !IsNeutral(*root.operand(1), *opcode) ||
      !MayReorder(*opcode, context, {root.operand(0)})) {
    return;
  }
  for (int64_t first : root.dimensions()) {
    std::vector<int64_t> rest;
    for (int64_t d : root.dimensions()) {
      if (d != first) rest.push_back(d > first ? d - 1 : d);
    }
    Propose(
        SplitReductionsRule(), root, {root.operand(0), root.operand(1)},
        [first, rest,
         opcode = *opcode](Images x) -> absl::StatusOr<HloInstruction*> {
          HLOENV_ASSIGN_OR_RETURN(
              HloInstruction * inner,
              xla::MakeReduceHlo(x[0], x[1], {first}, opcode));
          return xla::MakeReduceHlo(inner, x[1], rest, opcode);
        },
        proposals);
  }
}
const Rule& SplitReductionsRule() {
  static constexpr Rule rule = {
      "split_reductions",
      "Rewrites a reduction over several dimensions as one over a single "
      "dimension and then one over the others, where the initial value is the "
      "operation's identity. Floats of 32 or more bits round differently; sums "
      "of shorter ones are left.",
      &ProposeSplitReductions};
  return rule;
}

absl::Span<const Rule> ReassociationRules() {
  static const auto* rules = new std::vector<Rule>{
      TreeRule(),     DistributeRule(),      FactorRule(),
      ProductsRule(), MergeReductionsRule(), SplitReductionsRule()};
  return *rules;
}

}  // namespace

PassInfo ReassociatePass() {
  return RulePass(
      "reassociate", "hloenv::Reassociate",
      "Proposes other orders of sums, products, chains of matrix products and "
      "nested reductions. Run it before layout assignment. Integer results "
      "are exact, floats round differently. Rewrites cause no new overflow or "
      "underflow, provided that the product of any two operands of the "
      "rewritten operations is finite, and zero only if a factor is (for dots: "
      "summed over the contracted dimension). Operations on values that are "
      "known to violate this, such as infinities and huge masks, are not "
      "rewritten.",
      ReassociationRules(), [](const Options& options) {
        return MakeRulePass("reassociate", ReassociationRules(), options);
      });
}

}  // namespace hloenv
