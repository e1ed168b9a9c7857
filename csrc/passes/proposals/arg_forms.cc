// SPDX-License-Identifier: Apache-2.0
// Proposes one reduction of integers for the index of the largest or smallest
// element, which the backend computes one element at a time:
//
//   p = (f32[8], s32[8]) reduce(x: f32[8,100], iota, -inf, 0), dimensions={1}
//   i = s32[8] get-tuple-element(p), index=1
//
// becomes, with keys whose order as integers is that of the numbers x,
//
//   k = s64[8,100] key(x) << 32 | (99 - iota)
//   m = s64[8] reduce(k), dimensions={1}, maximum
//   i = s32[8] 99 - (m & 0xffffffff)
//
// Doubles, whose keys leave no room for an index, need two reductions: to the
// largest key, and to the first index that has it.
//
// Reductions to the extreme element of the same numbers become the elements at
// this index. They are in one kernel with the original, which XLA's CPU backend
// writes so that not-a-number is the result; alone, it loses that.
//
// Each element is read once, of doubles from keys that are in memory: where the
// maximum is computed first and then compared with the elements, a backend that
// computes the elements twice, and rounds them differently, finds none.
#include "absl/algorithm/container.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "support/status.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Literal;

struct ArgReduce {
  const HloInstruction* values;
  int64_t dimension;
  bool is_max;
};

// Whether a reduction prefers the element `left` at index `i` to `right` at
// index `j`: the first not-a-number, else the largest or smallest number, the
// first of equal ones.
bool IsLeftFirst(const Literal& left, int i, const Literal& right, int j,
                 bool is_max) {
  const double a = NumberOf(left);
  const double b = NumberOf(right);
  if (std::isnan(a)) return !std::isnan(b) || i < j;
  if (std::isnan(b)) return false;
  if (a == b) return i < j;
  return (a > b) == is_max;
}

// Whether a reducer of (value, index) pairs only compares and selects, numbers
// with numbers and indices with indices, so that samples show what it does with
// all numbers. Bitwise operations on integers would do more.
bool OnlySelects(const xla::HloComputation& reducer) {
  enum class Kind { kNumber, kIndex, kTruth };
  absl::flat_hash_map<const HloInstruction*, Kind> kinds;
  for (const HloInstruction* each : reducer.MakeInstructionPostOrder()) {
    const auto kind_of = [&](int64_t i) { return kinds.at(each->operand(i)); };
    switch (each->opcode()) {
      case HloOpcode::kParameter:
        kinds[each] =
            each->parameter_number() % 2 == 0 ? Kind::kNumber : Kind::kIndex;
        break;
      case HloOpcode::kAnd:
      case HloOpcode::kOr:
      case HloOpcode::kNot:
        if (each->shape().element_type() != xla::PRED) return false;
        kinds[each] = Kind::kTruth;
        break;
      case HloOpcode::kCompare:
        if (kind_of(0) != kind_of(1)) return false;
        kinds[each] = Kind::kTruth;
        break;
      case HloOpcode::kMaximum:
      case HloOpcode::kMinimum:
        if (kind_of(0) != kind_of(1)) return false;
        kinds[each] = kind_of(0);
        break;
      case HloOpcode::kSelect:
        if (kind_of(1) != kind_of(2)) return false;
        kinds[each] = kind_of(1);
        break;
      case HloOpcode::kTuple:
        break;
      default:
        return false;
    }
  }
  return true;
}

// Whether every element takes the place of the initial value, which has the
// index of the first.
bool SelectsFirst(const xla::HloComputation& reducer, xla::PrimitiveType type,
                  xla::PrimitiveType index_type, bool is_max) {
  const Literal initial = is_max ? xla::LiteralUtil::MinValue(type)
                                 : xla::LiteralUtil::MaxValue(type);
  const Literal zero = xla::LiteralUtil::Zero(index_type);
  xla::HloEvaluator evaluator;
  for (const Literal& sample : SampleNumbers(type)) {
    absl::StatusOr<Literal> result =
        evaluator.Evaluate(reducer, {&initial, &zero, &sample, &zero});
    evaluator.ResetVisitStates();
    if (!result.ok()) return false;
    const double value = NumberOf(result->DecomposeTuple()[0]);
    const double wanted = NumberOf(sample);
    if (value != wanted && !(std::isnan(value) && std::isnan(wanted))) {
      return false;
    }
  }
  return true;
}

bool Selects(const xla::HloComputation& reducer, xla::PrimitiveType type,
             xla::PrimitiveType index_type, bool is_max) {
  if (reducer.instruction_count() > kMaxSampled || !OnlySelects(reducer) ||
      !SelectsFirst(reducer, type, index_type, is_max)) {
    return false;
  }
  const std::vector<Literal> samples = SampleNumbers(type);
  xla::HloEvaluator evaluator;
  for (const Literal& left : samples) {
    for (const Literal& right : samples) {
      for (const auto& [i, j] : {std::pair(3, 7), std::pair(7, 3)}) {
        const bool are_both_nan =
            std::isnan(NumberOf(left)) && std::isnan(NumberOf(right));
        if (are_both_nan && i > j) continue;  // pairs are reduced in order
        const Literal first =
            xla::LiteralUtil::CreateR0(i).Convert(index_type).value();
        const Literal second =
            xla::LiteralUtil::CreateR0(j).Convert(index_type).value();
        absl::StatusOr<Literal> result =
            evaluator.Evaluate(reducer, {&left, &first, &right, &second});
        evaluator.ResetVisitStates();
        if (!result.ok()) return false;
        const bool is_left = IsLeftFirst(left, i, right, j, is_max);
        const std::vector<Literal> pair = result->DecomposeTuple();
        const double value = NumberOf(pair[0]);
        const double wanted = NumberOf(is_left ? left : right);
        if (pair[1] != (is_left ? first : second) ||
            (value != wanted && !(std::isnan(value) && std::isnan(wanted)))) {
          return false;
        }
      }
    }
  }
  return true;
}

// Whether a constant is what each element is preferred to or equal to.
bool IsWorst(const HloInstruction& constant, bool is_max) {
  if (constant.opcode() != HloOpcode::kConstant) return false;
  const xla::PrimitiveType type = constant.shape().element_type();
  return constant.literal() == (is_max ? xla::LiteralUtil::MinValue(type)
                                       : xla::LiteralUtil::MaxValue(type));
}

// `has_type` tells of which numbers.
std::optional<ArgReduce> ArgReduceOf(const HloInstruction& root,
                                     bool (*has_type)(xla::PrimitiveType)) {
  if (root.opcode() != HloOpcode::kGetTupleElement || root.tuple_index() != 1 ||
      !IsPlain(root)) {
    return std::nullopt;
  }
  const HloInstruction& reduce = *root.operand(0);
  if (reduce.opcode() != HloOpcode::kReduce || reduce.operand_count() != 4 ||
      reduce.dimensions().size() != 1 || reduce.HasControlDependencies() ||
      reduce.has_sharding()) {
    return std::nullopt;
  }
  // Where the extreme element is read too, the reduction would stay.
  for (const HloInstruction* user : reduce.users()) {
    if (user->opcode() != HloOpcode::kGetTupleElement ||
        (user->tuple_index() != 1 &&
         (user->user_count() > 0 || user->IsRoot()))) {
      return std::nullopt;
    }
  }
  const HloInstruction& values = *reduce.operand(0);
  const xla::Shape& shape = values.shape();
  const xla::PrimitiveType type = shape.element_type();
  const xla::PrimitiveType index_type = root.shape().element_type();
  const int64_t dimension = reduce.dimensions(0);
  if (!shape.is_static() || xla::ShapeUtil::IsZeroElementArray(shape) ||
      shape.dimensions(dimension) > std::numeric_limits<int32_t>::max() ||
      !has_type(type) || (index_type != xla::S32 && index_type != xla::S64) ||
      !IsIota(*reduce.operand(1), dimension) ||
      reduce.operand(3)->opcode() != HloOpcode::kConstant ||
      !reduce.operand(3)->literal().IsAll(0)) {
    return std::nullopt;
  }
  for (const bool is_max : {true, false}) {
    if (IsWorst(*reduce.operand(2), is_max) &&
        Selects(*reduce.to_apply(), type, index_type, is_max)) {
      return ArgReduce{&values, dimension, is_max};
    }
  }
  return std::nullopt;
}

// Whether a reduction is to the extreme element of the same numbers.
bool IsExtremeOf(const HloInstruction& instruction, const ArgReduce& reduce,
                 RuleContext& context) {
  return instruction.opcode() == HloOpcode::kReduce &&
         instruction.operand_count() == 2 &&
         instruction.operand(0) == reduce.values &&
         instruction.dimensions().size() == 1 &&
         instruction.dimensions(0) == reduce.dimension &&
         ReductionOf(instruction, context) ==
             (reduce.is_max ? HloOpcode::kMaximum : HloOpcode::kMinimum) &&
         IsWorst(*instruction.operand(1), reduce.is_max);
}

// Whether an array is an index reduction like this one.
bool IsIndexOf(const HloInstruction& instruction, const ArgReduce& reduce) {
  return instruction.opcode() == HloOpcode::kReduce &&
         instruction.operand_count() == 4 &&
         instruction.operand(0) == reduce.values &&
         instruction.dimensions() == std::vector<int64_t>{reduce.dimension} &&
         IsWorst(*instruction.operand(2), reduce.is_max);
}

// The reductions that the first index reduction of some numbers takes along.
std::vector<const HloInstruction*> ExtremesWith(const HloInstruction& root,
                                                const ArgReduce& reduce,
                                                RuleContext& context) {
  std::vector<const HloInstruction*> extremes;
  const HloInstruction* first = nullptr;
  const std::vector<const HloInstruction*> users =
      context.UsersInOrder(*reduce.values);
  for (const HloInstruction* user : users) {
    if (first == nullptr && IsIndexOf(*user, reduce)) first = user;
    if (IsExtremeOf(*user, reduce, context)) extremes.push_back(user);
  }
  if (first != root.operand(0)) extremes.clear();
  return extremes;
}

// The index as the root has it, and the elements there.
std::vector<HloInstruction*> ResultsAt(const ArgReduce& reduce,
                                       const HloInstruction& root,
                                       size_t num_extremes, HloInstruction* x,
                                       HloInstruction* index) {
  Elementwise build(x->parent(), x->shape());
  Elementwise reduced(x->parent(), index->shape());
  std::vector<HloInstruction*> results = {
      reduced.Convert(index, root.shape().element_type())};
  if (num_extremes > 0) {
    xla::Shape shape = build.ShapeOf(xla::S32);
    shape.set_dimensions(reduce.dimension, 1);
    HloInstruction* element =
        TakenAlong(x,
                   reduced.Add(HloInstruction::CreateReshape(
                       shape, reduced.Convert(index, xla::S32))),
                   reduce.dimension);
    results.resize(1 + num_extremes,
                   reduced.Add(HloInstruction::CreateReshape(
                       reduced.ShapeOf(x->shape().element_type()), element)));
  }
  return results;
}

absl::StatusOr<std::vector<HloInstruction*>> BuildKeyed(
    const ArgReduce& reduce, const HloInstruction& root, size_t num_extremes,
    HloInstruction* x) {
  const auto key_of = [&](absl::Span<HloInstruction* const> numbers)
      -> absl::StatusOr<HloInstruction*> {
    Elementwise build(numbers[0]->parent(), numbers[0]->shape());
    return KeyOf(numbers[0], reduce.is_max, build);
  };
  HLOENV_ASSIGN_OR_RETURN(HloInstruction* const key,
                          x->opcode() == HloOpcode::kParameter
                              ? key_of({x})
                              : InOwnKernel({x}, key_of));
  Elementwise build(x->parent(), x->shape());
  const auto scalar = [&](const Literal& number) {
    return build.Add(HloInstruction::CreateConstant(number.Clone()));
  };
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * best,
      xla::MakeReduceHlo(key, scalar(xla::LiteralUtil::MinValue(xla::S64)),
                         {reduce.dimension}, HloOpcode::kMaximum));
  std::vector<int64_t> others;
  for (int64_t d = 0; d < RankOf(x->shape()); ++d) {
    if (d != reduce.dimension) others.push_back(d);
  }
  HloInstruction* best_of_all = build.Add(
      HloInstruction::CreateBroadcast(build.ShapeOf(xla::S64), best, others));
  const auto size =
      static_cast<int32_t>(x->shape().dimensions(reduce.dimension));
  HloInstruction* index = build.Select(
      xla::ComparisonDirection::kEq, key, best_of_all,
      build.Iota(xla::S32, reduce.dimension), build.Constant<int32_t>(size));
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * first,
      xla::MakeReduceHlo(index, scalar(xla::LiteralUtil::MaxValue(xla::S32)),
                         {reduce.dimension}, HloOpcode::kMinimum));
  return ResultsAt(reduce, root, num_extremes, x, first);
}

absl::StatusOr<std::vector<HloInstruction*>> BuildPacked(
    const ArgReduce& reduce, const HloInstruction& root, size_t num_extremes,
    HloInstruction* x) {
  Elementwise build(x->parent(), x->shape());
  const int64_t last = x->shape().dimensions(reduce.dimension) - 1;
  HloInstruction* iota = build.Add(
      HloInstruction::CreateIota(build.ShapeOf(xla::S64), reduce.dimension));
  HloInstruction* from_end =
      build.Binary(HloOpcode::kSubtract, build.Constant<int64_t>(last), iota);
  HloInstruction* packed = build.Binary(
      HloOpcode::kOr,
      build.Binary(HloOpcode::kShiftLeft,
                   build.Convert(KeyOf(x, reduce.is_max, build), xla::S64),
                   build.Constant<int64_t>(32)),
      from_end);
  HloInstruction* worst = build.Add(
      HloInstruction::CreateConstant(xla::LiteralUtil::MinValue(xla::S64)));
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * best,
                          xla::MakeReduceHlo(packed, worst, {reduce.dimension},
                                             HloOpcode::kMaximum));
  Elementwise reduced(x->parent(), best->shape());
  HloInstruction* index =
      reduced.Binary(HloOpcode::kSubtract, reduced.Constant<int64_t>(last),
                     reduced.Binary(HloOpcode::kAnd, best,
                                    reduced.Constant<int64_t>(0xffffffff)));
  return ResultsAt(reduce, root, num_extremes, x, index);
}

bool IsDouble(xla::PrimitiveType type) { return type == xla::F64; }

using BuildIndex = absl::StatusOr<std::vector<HloInstruction*>> (*)(
    const ArgReduce&, const HloInstruction&, size_t, HloInstruction*);

void ProposeIndex(const Rule& rule, bool (*has_type)(xla::PrimitiveType),
                  BuildIndex build, const HloInstruction& root,
                  RuleContext& context, std::vector<Proposal>& proposals) {
  const std::optional<ArgReduce> reduce = ArgReduceOf(root, has_type);
  if (!reduce.has_value()) return;
  std::vector<const HloInstruction*> originals =
      ExtremesWith(root, *reduce, context);
  const size_t num_extremes = originals.size();
  // An element that a kernel computes once more may round differently.
  if (num_extremes > 0 &&
      (context.IsCompared(*reduce->values) || !IsPlain(*reduce->values) ||
       xla::ShapeUtil::ElementsIn(reduce->values->shape()) >
           std::numeric_limits<int32_t>::max())) {
    return;
  }
  originals.insert(originals.begin(), &root);
  ProposeMany(
      rule, originals, {reduce->values},
      [reduce = *reduce, &root, num_extremes,
       build](absl::Span<HloInstruction* const> x) {
        return build(reduce, root, num_extremes, x[0]);
      },
      proposals);
}

void ProposePacked(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  ProposeIndex(PackedIndexRule(), &HasKeys, &BuildPacked, root, context,
               proposals);
}

void ProposeKeyed(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  ProposeIndex(KeyedIndexRule(), &IsDouble, &BuildKeyed, root, context,
               proposals);
}

}  // namespace

const Rule& KeyedIndexRule() {
  static constexpr Rule rule = {
      "keyed_index",
      "Rewrites the index of the largest or smallest double of a dimension as "
      "two reductions of integers: to the largest one, and to the first index "
      "that has it. Exact.",
      &ProposeKeyed};
  return rule;
}

const Rule& PackedIndexRule() {
  static constexpr Rule rule = {
      "packed_index",
      "Rewrites the index of the largest or smallest element of a dimension, "
      "of numbers of up to 32 bits, as one reduction of integers of 64 bits "
      "that contain the number and the index. Exact, but for the sign of a "
      "zero.",
      &ProposePacked};
  return rule;
}

}  // namespace hloenv
