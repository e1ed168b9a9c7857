// SPDX-License-Identifier: Apache-2.0
// Proposes sorts of one array of integers. XLA's CPU backend sorts such an
// array by C++'s own comparison, and others by calls of a comparator, one for
// each comparison, on values that it copies one after the other:
//
//   s = (f32[1000], s64[1000]) sort(x: f32[1000], iota)
//
// becomes, with keys whose order as integers is that of the numbers,
//
//   k = s64[1000] sort(key(x) << 32 | iota), <
//   i = k & 0xffffffff
//
// with a gather at i for each array whose elements are used, other than iota.
// Keys of 64 bits are sorted by their lower half, then by their upper half.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/algorithm/container.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/sort_rules.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/layout_util.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Literal;

constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();
// Numbers of 64 bits in a row, from which two sorts of integers were faster.
constexpr int64_t kMinWideElements = 4;

// Whether it is the not-a-number that programs write, of either sign: those of
// other bits could be told apart by a comparison with it.
bool IsUsualNan(const Literal& scalar) {
  const xla::PrimitiveType type = scalar.shape().element_type();
  const auto is = [&](float number) {
    const Literal other =
        xla::LiteralUtil::CreateR0(number).Convert(type).value();
    return std::memcmp(scalar.untyped_data(), other.untyped_data(),
                       scalar.size_bytes()) == 0;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return std::isnan(NumberOf(scalar)) && (is(kNan) || is(-kNan));
}

// Whether a comparator only compares its first two parameters, or, for floats,
// a zero or not-a-number in their place, so that samples show what it does with
// all numbers.
bool OnlyCompares(const xla::HloComputation& comparator) {
  if (comparator.instruction_count() > kMaxSampled) return false;
  const xla::Shape& number = comparator.parameter_instruction(0)->shape();
  for (const HloInstruction* each : comparator.instructions()) {
    switch (each->opcode()) {
      case HloOpcode::kParameter:
        if (each->parameter_number() > 1 && each->user_count() > 0) {
          return false;
        }
        break;
      case HloOpcode::kConstant: {
        if (!IsFloat(number) ||
            !xla::ShapeUtil::Compatible(each->shape(), number)) {
          return false;
        }
        if (NumberOf(each->literal()) != 0 && !IsUsualNan(each->literal())) {
          return false;
        }
        break;
      }
      case HloOpcode::kAnd:
      case HloOpcode::kOr:
      case HloOpcode::kNot:
        if (each->shape().element_type() != xla::PRED) return false;
        break;
      case HloOpcode::kCompare:
      case HloOpcode::kSelect:
        break;
      default:
        return false;
    }
  }
  return true;
}

// Whether `left` precedes `right` in ascending order: equal zeros, and
// not-a-number after all others.
bool Precedes(const Literal& left, const Literal& right) {
  const double a = NumberOf(left);
  const double b = NumberOf(right);
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  return a < b;
}

bool Orders(const xla::HloComputation& comparator, bool is_descending) {
  const xla::PrimitiveType type =
      comparator.parameter_instruction(0)->shape().element_type();
  std::vector<Literal> others;  // of parameters that do not matter
  for (int64_t i = 2; i < comparator.num_parameters(); ++i) {
    others.push_back(xla::LiteralUtil::Zero(
        comparator.parameter_instruction(i)->shape().element_type()));
  }
  const std::vector<Literal> samples = SampleNumbers(type);
  xla::HloEvaluator evaluator;
  for (const Literal& left : samples) {
    for (const Literal& right : samples) {
      std::vector<const Literal*> given = {&left, &right};
      for (const Literal& other : others) given.push_back(&other);
      absl::StatusOr<Literal> result = evaluator.Evaluate(comparator, given);
      evaluator.ResetVisitStates();
      const bool expected =
          is_descending ? Precedes(right, left) : Precedes(left, right);
      const bool are_both_nan =
          std::isnan(NumberOf(left)) && std::isnan(NumberOf(right));
      if (!result.ok() ||
          result->Get<bool>({}) != (expected && !are_both_nan)) {
        return false;
      }
    }
  }
  return true;
}

// Whether a sort is descending; nothing if its order is another one.
std::optional<bool> IsDescending(const HloInstruction& sort) {
  const xla::HloComputation& comparator = *sort.to_apply();
  if (!comparator.root_instruction()->shape().IsArray() ||
      !OnlyCompares(comparator)) {
    return std::nullopt;
  }
  for (const bool is_descending : {false, true}) {
    if (Orders(comparator, is_descending)) return is_descending;
  }
  return std::nullopt;
}

}  // namespace

bool HasWideKeys(xla::PrimitiveType type) {
  return type == xla::F64 || type == xla::S64 || type == xla::U64;
}

namespace {

bool IsSortable(const HloInstruction& sort) {
  if (sort.opcode() != HloOpcode::kSort || sort.HasControlDependencies() ||
      sort.has_sharding()) {
    return false;
  }
  const xla::Shape& shape = sort.operand(0)->shape();
  const int64_t dimension =
      xla::Cast<xla::HloSortInstruction>(&sort)->sort_dimension();
  const int64_t least =
      HasWideKeys(shape.element_type()) ? kMinWideElements : 2;
  return absl::c_all_of(sort.operands(),
                        [](const HloInstruction* operand) {
                          return operand->shape().is_static();
                        }) &&
         shape.dimensions(dimension) >= least &&
         !xla::ShapeUtil::IsZeroElementArray(shape) &&
         xla::ShapeUtil::ElementsIn(shape) <= kMaxElements;
}

// Sorts integers in ascending order.
HloInstruction* Sorted(HloInstruction* x, int64_t dimension) {
  const xla::Shape scalar =
      xla::ShapeUtil::MakeShape(x->shape().element_type(), {});
  xla::HloComputation::Builder builder("ascending");
  HloInstruction* left = builder.AddInstruction(
      HloInstruction::CreateParameter(0, scalar, "left"));
  HloInstruction* right = builder.AddInstruction(
      HloInstruction::CreateParameter(1, scalar, "right"));
  builder.AddInstruction(HloInstruction::CreateCompare(
      xla::ShapeUtil::MakeShape(xla::PRED, {}), left, right,
      xla::ComparisonDirection::kLt));
  xla::HloComputation* comparator =
      x->GetModule()->AddEmbeddedComputation(builder.Build());
  // For integers, C++'s stable sort was the faster one.
  return x->parent()->AddInstruction(HloInstruction::CreateSort(
      x->shape(), dimension, {x}, comparator, /*is_stable=*/true));
}

}  // namespace

HloInstruction* SortKeyOf(HloInstruction* x, bool is_descending,
                          Elementwise& build, bool keeps_subnormal) {
  const xla::PrimitiveType type = x->shape().element_type();
  HloInstruction* key = x;
  if (type == xla::U64) {
    key = build.Bits(x, xla::S64);
  } else if (IsFloat(x->shape())) {
    key = KeyOf(x, /*is_max=*/true, build, keeps_subnormal);
  }
  key = build.Convert(key, xla::S64);
  if (type == xla::U32) {
    key = build.Binary(HloOpcode::kSubtract, key,
                       build.Constant<int64_t>(int64_t{1} << 31));
  } else if (type == xla::U64) {
    key = build.Binary(
        HloOpcode::kSubtract, key,
        build.Constant<int64_t>(std::numeric_limits<int64_t>::min()));
  }
  return is_descending ? build.Not(key) : key;
}

namespace {

// The indices, as integers of 32 bits, that sort keys in the range of those.
HloInstruction* SortedIndices(HloInstruction* keys, int64_t dimension) {
  Elementwise build(keys->parent(), keys->shape());
  HloInstruction* packed = build.Binary(
      HloOpcode::kOr,
      build.Binary(HloOpcode::kShiftLeft, keys, build.Constant<int64_t>(32)),
      build.Iota(xla::S64, dimension));
  return build.Convert(build.Binary(HloOpcode::kAnd, Sorted(packed, dimension),
                                    build.Constant<int64_t>(0xffffffff)),
                       xla::S32);
}

// The indices that sort keys of 64 bits: as both sorts are stable, the first is
// the order of the keys whose upper halves are equal.
HloInstruction* IndicesOfWide(HloInstruction* keys, int64_t dimension) {
  Elementwise build(keys->parent(), keys->shape());
  HloInstruction* half = build.Constant<int64_t>(32);
  HloInstruction* lower = build.Binary(
      HloOpcode::kSubtract,
      build.Binary(HloOpcode::kAnd, keys, build.Constant<int64_t>(0xffffffff)),
      build.Constant<int64_t>(int64_t{1} << 31));
  HloInstruction* upper =
      build.Binary(HloOpcode::kShiftRightArithmetic, keys, half);
  HloInstruction* by_lower = SortedIndices(lower, dimension);
  HloInstruction* by_upper =
      SortedIndices(TakenAlong(upper, by_lower, dimension), dimension);
  return TakenAlong(by_lower, by_upper, dimension);
}

absl::StatusOr<std::vector<HloInstruction*>> BuildPacked(
    const KeyedSort& sort, absl::Span<HloInstruction* const> x) {
  Elementwise build(x[0]->parent(), x[0]->shape());
  HloInstruction* keys = SortKeyOf(x[0], sort.is_descending, build);
  HloInstruction* indices = HasWideKeys(x[0]->shape().element_type())
                                ? IndicesOfWide(keys, sort.dimension)
                                : SortedIndices(keys, sort.dimension);
  std::vector<HloInstruction*> results;
  for (size_t i = 0; i < sort.reads.size(); ++i) {
    const int64_t read = sort.reads[i];
    results.push_back(read < 0 ? build.Convert(indices, sort.types[i])
                               : TakenAlong(x[read], indices, sort.dimension));
  }
  return results;
}

// Whether an element of a sort's result may be taken from the operand.
bool IsTakable(const HloInstruction& operand) {
  const xla::Shape& shape = operand.shape();
  return shape.has_layout() && shape.layout().tiles().empty() &&
         xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout()) &&
         !xla::primitive_util::IsSubByteNonPredType(shape.element_type());
}

}  // namespace

const HloInstruction* SortOf(const HloInstruction& last) {
  const HloInstruction* sort = &last;
  if (last.opcode() == HloOpcode::kGetTupleElement) sort = last.operand(0);
  return IsSortable(*sort) ? sort : nullptr;
}

namespace {

// Reads of `originals`, the results of a sort, and what they are in terms of
// these; false if they are not replaceable.
bool AddReads(const HloInstruction& sort,
              absl::Span<const HloInstruction* const> originals,
              KeyedSort& keyed, std::vector<const HloInstruction*>& reads) {
  for (const HloInstruction* each : originals) {
    const bool is_sort = each == &sort;
    if ((!is_sort && each->opcode() != HloOpcode::kGetTupleElement) ||
        !IsPlain(*each)) {
      return false;
    }
    const HloInstruction& operand =
        *sort.operand(is_sort ? 0 : each->tuple_index());
    const xla::PrimitiveType type = each->shape().element_type();
    keyed.types.push_back(type);
    if (IsIota(operand, keyed.dimension) &&
        xla::primitive_util::IsIntegralType(type) &&
        xla::primitive_util::BitWidth(type) >= 32) {
      keyed.reads.push_back(-1);
      continue;
    }
    if (!IsTakable(operand)) return false;
    keyed.reads.push_back(static_cast<int64_t>(reads.size()));
    reads.push_back(&operand);
  }
  return true;
}

// Whether the backend sorts it by C++'s own comparison already.
bool IsFast(const HloInstruction& sort) {
  const xla::Shape& keys = sort.operand(0)->shape();
  return sort.operand_count() == 1 && !IsFloat(keys) &&
         keys.element_type() != xla::PRED;
}

}  // namespace

std::optional<FoundSort> FindSort(const HloInstruction& last,
                                  RuleContext& context) {
  const HloInstruction* root = SortOf(last);
  if (root == nullptr) return std::nullopt;
  FoundSort found;
  found.originals = LiveElementsOf(*root, context);
  if (found.originals.empty() || found.originals.back() != &last) {
    return std::nullopt;
  }
  const auto& sort = *xla::Cast<xla::HloSortInstruction>(root);
  const HloInstruction& keys = *root->operand(0);
  const xla::PrimitiveType type = keys.shape().element_type();
  const bool has_keys = HasKeys(type) || type == xla::U32 ||
                        type == xla::PRED || HasWideKeys(type);
  if (!has_keys || !IsTakable(keys)) return std::nullopt;
  found.is_stable = sort.is_stable();
  found.sort.dimension = sort.sort_dimension();
  found.reads = {&keys};
  if (!AddReads(sort, found.originals, found.sort, found.reads)) {
    return std::nullopt;
  }
  const std::optional<bool> is_descending = IsDescending(sort);
  if (!is_descending.has_value()) return std::nullopt;
  found.sort.is_descending = *is_descending;
  return found;
}

namespace {

const Rule& PackedRule();
void ProposePacked(const HloInstruction& last, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  const HloInstruction* root = SortOf(last);
  if (root == nullptr || IsFast(*root)) return;
  std::optional<FoundSort> found = FindSort(last, context);
  if (!found.has_value() || !found->is_stable) return;
  ProposeMany(
      PackedRule(), std::move(found->originals), std::move(found->reads),
      [sort = std::move(found->sort)](absl::Span<HloInstruction* const> x) {
        return BuildPacked(sort, x);
      },
      proposals);
}
const Rule& PackedRule() {
  static constexpr Rule rule = {
      "packed",
      "Rewrites a stable sort of floats, or of keys with other arrays, as one "
      "of integers of 64 bits that contain the key and the index, and gathers; "
      "keys of 64 bits as two such sorts. Exact.",
      &ProposePacked};
  return rule;
}

absl::Span<const Rule> SortFormRules() {
  static const auto* rules =
      new std::vector<Rule>{PackedRule(),   NetworkRule(), MaximaRule(),
                            ArgmaxesRule(), WiderRule(),   SearchRule()};
  return *rules;
}

}  // namespace

PassInfo SortFormsPass() {
  return RulePass(
      "sort-forms", "hloenv::SortForms",
      "Proposes sorts of one array of integers, which XLA's CPU backend sorts "
      "without calls of a comparator, for stable sorts of floats, and of keys "
      "with indices or other arrays, reductions for the few largest numbers "
      "of rows, and one kernel for binary searches. Run it before layout "
      "assignment.",
      SortFormRules(), [](const Options& options) {
        return MakeRulePass("sort-forms", SortFormRules(), options);
      });
}

}  // namespace hloenv
