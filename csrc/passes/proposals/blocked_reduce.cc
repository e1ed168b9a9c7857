// SPDX-License-Identifier: Apache-2.0
// Proposes loops over four elements at a time for reductions of what is
// computed of much smaller arrays that are broadcast: distances of many
// features, the best path over all states, sums over all pairs. The backend
// makes a loop for each result, often without vectors.
//
// Before:  s = f32[200,300] reduce(abs(a[:,:,None] - b[None,:,:]): f32[200,64,
//              300], 0), dimensions={1}, add
// After:   s = 0; for k = 0, 4, 8, ...:
//          s = s + ((abs(a[:,k] - b[k,:]) + abs(a[:,k+1] - b[k+1,:])) + ...)
//
// The first elements, if four does not divide their number, come before that.
// Sums of many are sums of parts, each with a loop inside the loop.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/counted_loop.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/sliced_operations.h"
#include "support/status.h"
#include "xla/literal_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Elements of each iteration; iterations whose sums are added up; the least
// elements of each reduction, and results.
constexpr int64_t kTogether = 4;
constexpr int64_t kTripsOfPart = 32;
constexpr int64_t kMinReduced = 9;
constexpr int64_t kMinResults = 1024;
// Results from which functions get another form.
constexpr int64_t kManyResults = 8192;
// Those of numbers that are no floats, for which XLA's loop is faster below.
constexpr int64_t kMinReducedIntegers = 33;
// Results of each row, which are vectors: of others, half are wasted, of sums
// and of extremes up to different sizes.
constexpr int64_t kMinRow = 8;
constexpr int64_t kAnyRow = 16;
constexpr int64_t kAnyRowOfExtremes = 64;
// Bytes of results that no cache holds, for which twice as many are better.
constexpr int64_t kLargeBytes = int64_t{32} << 20;
// How many times as many elements are reduced as those that they are computed
// of; where these are transposed; where those are many; and arrays of these.
constexpr int64_t kTimesSmaller = 4;
constexpr int64_t kTimesTransposed = 8;
constexpr int64_t kTimesManyTransposed = 16;
constexpr int64_t kMany = int64_t{1} << 20;
constexpr size_t kMaxArrays = 16;
// What reads the values of a sum.
constexpr size_t kMaxReaders = 6;

struct BlockedReduce {
  HloOpcode operation;
  int64_t dimension;  // that a loop goes over
  int64_t together;   // elements of an iteration
  SlicedOperations values;
};

FixedIndices ElementAt(const HloInstruction& reduce, int64_t dimension,
                       int64_t index) {
  FixedIndices fixed(RankOf(reduce.operand(0)->shape()), kAll);
  fixed[dimension] = index;
  return fixed;
}

bool ReadsAlike(const LeafRead& a, const LeafRead& b) {
  return a.leaf == b.leaf &&
         absl::c_equal(a.fixed, b.fixed, [](auto x, auto y) {
           return (x == kAll) == (y == kAll);
         });
}

bool IsComputed(const HloInstruction* value) {
  return value->opcode() != HloOpcode::kBroadcast &&
         value->opcode() != HloOpcode::kTranspose &&
         value->opcode() != HloOpcode::kReshape;
}

// The dimension of which one index is read.
int64_t FixedOf(const LeafRead& read) {
  return absl::c_find_if(read.fixed, [](int64_t at) { return at != kAll; }) -
         read.fixed.begin();
}

// How fast LLVM's vectors of an operation are: those of some functions are
// slower than the library's, and others get another form (math-forms), if there
// are many elements.
enum class Speed { kFast, kOtherForm, kSlow };

Speed SpeedOf(const HloInstruction& each) {
  const xla::PrimitiveType type = each.shape().element_type();
  const bool is_complex = absl::c_any_of(each.operands(), [](const auto* x) {
    return xla::ShapeUtil::ElementIsComplex(x->shape());
  });
  switch (each.opcode()) {
    case HloOpcode::kAdd:
    case HloOpcode::kBroadcast:
    case HloOpcode::kComplex:
    case HloOpcode::kConvert:
    case HloOpcode::kImag:
    case HloOpcode::kMultiply:
    case HloOpcode::kNegate:
    case HloOpcode::kReal:
    case HloOpcode::kReshape:
    case HloOpcode::kSubtract:
    case HloOpcode::kTranspose:
      return Speed::kFast;
    case HloOpcode::kAbs:
    case HloOpcode::kAnd:
    case HloOpcode::kCeil:
    case HloOpcode::kClamp:
    case HloOpcode::kCompare:
    case HloOpcode::kFloor:
    case HloOpcode::kIsFinite:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kPopulationCount:
    case HloOpcode::kSelect:
    case HloOpcode::kShiftLeft:
    case HloOpcode::kShiftRightArithmetic:
    case HloOpcode::kShiftRightLogical:
    case HloOpcode::kSign:
    case HloOpcode::kSqrt:
    case HloOpcode::kXor:
      return is_complex ? Speed::kSlow : Speed::kFast;
    case HloOpcode::kDivide:
      if (is_complex) return Speed::kSlow;
      return xla::primitive_util::IsFloatingPointType(type) ? Speed::kFast
                                                            : Speed::kOtherForm;
    case HloOpcode::kErf:
    case HloOpcode::kExp:
    case HloOpcode::kLogistic:
    case HloOpcode::kRsqrt:
    case HloOpcode::kTanh:
      return type == xla::F32 ? Speed::kFast : Speed::kSlow;
    case HloOpcode::kAtan2:
    case HloOpcode::kCbrt:
    case HloOpcode::kCos:
    case HloOpcode::kPower:
    case HloOpcode::kRemainder:
    case HloOpcode::kSin:
    case HloOpcode::kTan:
      return is_complex ? Speed::kSlow : Speed::kOtherForm;
    default:
      return Speed::kSlow;
  }
}

// Whether all that is computed is fast for so many results.
bool IsFast(const SlicedOperations& values, int64_t results) {
  return absl::c_all_of(values.inner(), [&](const HloInstruction* each) {
    const Speed speed = SpeedOf(*each);
    return speed == Speed::kFast ||
           (speed == Speed::kOtherForm && results >= kManyResults);
  });
}

// Whether it is a sum of products of two arrays, which is a dot in jaxlib's
// library.
bool IsDot(const HloInstruction& reduce, HloOpcode operation,
           const SlicedOperations& values) {
  const HloOpcode last = reduce.operand(0)->opcode();
  return reduce.shape().element_type() == xla::F32 &&
         operation == HloOpcode::kAdd &&
         (last == HloOpcode::kMultiply || last == HloOpcode::kDivide) &&
         absl::c_count_if(values.inner(), IsComputed) == 1;
}

// Whether the arrays are so much smaller than what is computed of them, in rows
// of `row`, that a loop over them is faster, though some are transposed first.
bool AreSmaller(const SlicedOperations& values, const xla::Shape& computed,
                int64_t row, bool is_extreme) {
  int64_t elements = 0;
  int64_t transposed = 0;
  // Of one array, or of its own elements alone, XLA finds a shorter form.
  int64_t arrays = 0;
  bool is_needed = false;
  for (const LeafRead& read : values.reads()) {
    is_needed |= !FixesNone(read.fixed);
    arrays += read.fixed.empty() ? 0 : 1;
    const int64_t own =
        xla::ShapeUtil::ElementsIn(values.leaves()[read.leaf]->shape());
    elements += own;
    if (!FixesNone(read.fixed) && FixedOf(read) > 0) transposed += own;
  }
  const bool has_vectors =
      row % kMinRow == 0 || row >= (is_extreme ? kAnyRowOfExtremes : kAnyRow);
  const int64_t times =
      transposed < kMany ? kTimesTransposed : kTimesManyTransposed;
  const int64_t all = xla::ShapeUtil::ElementsIn(computed);
  return is_needed && arrays > 1 && values.reads().size() <= kMaxArrays &&
         elements * kTimesSmaller <= all && transposed * times <= all &&
         (transposed == 0 || has_vectors);
}

// The dimension that a loop goes over: the first of those that are reduced and
// long enough; nothing if all are short.
std::optional<int64_t> LoopDimensionOf(const HloInstruction& reduce) {
  const int64_t least = xla::ShapeUtil::ElementIsFloating(reduce.shape())
                            ? kMinReduced
                            : kMinReducedIntegers;
  std::vector<int64_t> reduced(reduce.dimensions().begin(),
                               reduce.dimensions().end());
  absl::c_sort(reduced);
  for (const int64_t d : reduced) {
    const int64_t size = reduce.operand(0)->shape().dimensions(d);
    if (size >= least && size <= std::numeric_limits<int32_t>::max()) return d;
  }
  return std::nullopt;
}

// The loop for a reduction, whatever else reads what is reduced.
std::optional<BlockedReduce> BlockedAlone(const HloInstruction& reduce,
                                          RuleContext& context) {
  if (reduce.opcode() != HloOpcode::kReduce || reduce.operand_count() != 2) {
    return std::nullopt;
  }
  const std::optional<int64_t> dimension = LoopDimensionOf(reduce);
  const xla::PrimitiveType type = reduce.shape().element_type();
  if (!dimension.has_value() || AccumulationType(type) != type) {
    return std::nullopt;
  }
  const xla::Shape& shape = reduce.operand(0)->shape();
  const xla::Shape results = xla::ShapeUtil::DeleteDimension(*dimension, shape);
  const int64_t num_results = xla::ShapeUtil::ElementsIn(results);
  const int64_t rank = RankOf(results);
  if (rank == 0 || results.dimensions(rank - 1) < kMinRow ||
      num_results < kMinResults ||
      !FitsBeside(
          static_cast<double>(num_results),
          static_cast<double>(xla::ShapeUtil::ElementsIn(reduce.shape())))) {
    return std::nullopt;
  }
  const std::optional<HloOpcode> operation = ReductionOf(reduce, context);
  if (!operation.has_value() || (reduce.dimensions().size() > 1 &&
                                 !IsNeutral(*reduce.operand(1), *operation))) {
    return std::nullopt;
  }
  const bool is_large =
      xla::ShapeUtil::ByteSizeOfElements(results) > kLargeBytes;
  const bool are_many = shape.dimensions(*dimension) >= 4 * kTogether;
  const int64_t together = is_large && are_many ? 2 * kTogether : kTogether;
  BlockedReduce result = {
      *operation, *dimension, together,
      SlicedOperations(*reduce.operand(0), reduce,
                       ElementAt(reduce, *dimension, 0), together, context,
                       {/*ends_at_broadcasts=*/true,
                        /*repeats_products=*/!IsExtreme(*operation)})};
  if (IsDot(reduce, *operation, result.values) ||
      !IsFast(result.values, num_results) ||
      !AreSmaller(result.values, shape, results.dimensions(rank - 1),
                  IsExtreme(*operation))) {
    return std::nullopt;
  }
  return result;
}

// Whether all that reads a value, or operations on it, becomes such loops, as
// `known` does, and these are not many.
bool BecomesLoops(const HloInstruction& value, const HloInstruction& known,
                  RuleContext& context, size_t& left) {
  if (value.IsRoot()) return false;
  return absl::c_all_of(value.users(), [&](const HloInstruction* user) {
    if (left == 0) return false;
    --left;
    if (user == &known) return true;
    return user->IsElementwise() ? BecomesLoops(*user, known, context, left)
                                 : BlockedAlone(*user, context).has_value();
  });
}

// The loop, unless something else has what is reduced in memory, so that it
// would be computed once more.
std::optional<BlockedReduce> BlockedReduceOf(const HloInstruction& reduce,
                                             RuleContext& context) {
  std::optional<BlockedReduce> result = BlockedAlone(reduce, context);
  if (!result.has_value()) return std::nullopt;
  size_t readers = IsExtreme(result->operation) ? 1 : kMaxReaders;
  return BecomesLoops(*reduce.operand(0), reduce, context, readers)
             ? result
             : std::nullopt;
}

bool IsConstantNumber(const HloInstruction& leaf) {
  return leaf.opcode() == HloOpcode::kConstant && RankOf(leaf.shape()) == 0;
}

// `array` with the dimension that is read at one index before the others.
absl::StatusOr<HloInstruction*> WithFirst(HloInstruction* array,
                                          int64_t dimension) {
  std::vector<int64_t> order(RankOf(array->shape()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + dimension,
              order.begin() + dimension + 1);
  if (absl::c_is_sorted(order)) return array;
  return xla::MakeTransposeHlo(array, order);
}

// One of the first dimension. Of a slice of several, LLVM makes no vectors.
absl::StatusOr<HloInstruction*> RowAt(HloInstruction* array,
                                      HloInstruction* index) {
  return xla::MakeReshapeHlo(array->shape().dimensions().subspan(1),
                             DynamicSliceAlong(array, 0, index, 1));
}

HloInstruction* Both(HloOpcode opcode, HloInstruction* a, HloInstruction* b) {
  return a->AddInstruction(
      HloInstruction::CreateBinary(a->shape(), opcode, a, b));
}

// The loops in place of a reduction. Their state is the result up to there, and
// the arrays that the elements are computed of.
class Loops {
 public:
  Loops(const BlockedReduce& blocked, const HloInstruction& root)
      : blocked_(blocked), root_(root) {}

  // From the images of the initial value and of the leaves.
  absl::StatusOr<HloInstruction*> Build(absl::Span<HloInstruction* const> x) {
    const xla::Shape& shape = root_.operand(0)->shape();
    const int64_t size = shape.dimensions(blocked_.dimension);
    const int64_t before = size % blocked_.together;
    const int64_t trips = size / blocked_.together;
    // XLA takes `0 + x` for `x`, which is another sum of negative zeros.
    HloInstruction* result =
        x[0]->AddInstruction(HloInstruction::CreateBroadcast(
            xla::ShapeUtil::DeleteDimension(blocked_.dimension, shape),
            BarrierOf(x[0]), {}));
    for (int64_t i = 0; i < before; ++i) {
      result = Both(
          blocked_.operation, result,
          values().At(ElementAt(root_, blocked_.dimension, i), x.subspan(1)));
    }
    std::vector<HloInstruction*> arrays;
    for (const LeafRead& read : values().reads()) {
      HloInstruction* leaf = x[1 + read.leaf];
      if (!FixesNone(read.fixed)) {
        HLOENV_ASSIGN_OR_RETURN(leaf, WithFirst(leaf, FixedOf(read)));
      }
      arrays.push_back(leaf);
    }
    // Of long sums, parts are added up first, which rounds less.
    const bool has_parts = IsRounded() && trips > kTripsOfPart;
    const int64_t alone = has_parts ? trips % kTripsOfPart : trips;
    if (alone > 0) {
      result = Loop(alone, result, IntegerBeside(result, before), arrays);
    }
    if (has_parts) {
      result = LoopOverParts(trips / kTripsOfPart, result,
                             before + alone * blocked_.together, arrays);
    }
    HLOENV_RETURN_IF_ERROR(status_);
    std::vector<int64_t> rest;
    for (const int64_t d : root_.dimensions()) {
      if (d != blocked_.dimension) rest.push_back(d - (d > blocked_.dimension));
    }
    if (rest.empty()) return result;
    return xla::MakeReduceHlo(result, x[0], rest, blocked_.operation);
  }

 private:
  const SlicedOperations& values() const { return blocked_.values; }

  bool IsRounded() const {
    return xla::primitive_util::IsFloatingPointType(
               root_.shape().element_type()) &&
           (blocked_.operation == HloOpcode::kAdd ||
            blocked_.operation == HloOpcode::kMultiply);
  }

  // After `trips` iterations from the element `first`, a number, on.
  HloInstruction* Loop(int64_t trips, HloInstruction* result,
                       HloInstruction* first,
                       absl::Span<HloInstruction* const> arrays) {
    std::vector<HloInstruction*> state = {result, first};
    state.insert(state.end(), arrays.begin(), arrays.end());
    const auto body = [this](HloInstruction* index,
                             absl::Span<HloInstruction* const> parts) {
      HloInstruction* at =
          Both(HloOpcode::kAdd, parts[1],
               WithInteger(HloOpcode::kMultiply, index, blocked_.together));
      std::vector<HloInstruction*> terms;
      for (int64_t i = 0; i < blocked_.together; ++i) {
        terms.push_back(
            TermAt(WithInteger(HloOpcode::kAdd, at, i), parts.subspan(2)));
      }
      for (size_t apart = 1; apart < terms.size(); apart *= 2) {
        for (size_t i = 0; i < terms.size(); i += 2 * apart) {
          terms[i] = Both(blocked_.operation, terms[i], terms[i + apart]);
        }
      }
      std::vector<HloInstruction*> next(parts.begin(), parts.end());
      next[0] = Both(blocked_.operation, parts[0], terms[0]);
      return next;
    };
    return CountedLoop(static_cast<int32_t>(trips), state, body).front();
  }

  // A sum over such loops keeps what it rounds off, and adds that, too.
  HloInstruction* LoopOverParts(int64_t trips, HloInstruction* result,
                                int64_t first,
                                absl::Span<HloInstruction* const> arrays) {
    std::vector<HloInstruction*> state = {result, NeutralBeside(result)};
    state.insert(state.end(), arrays.begin(), arrays.end());
    const auto body = [this, first](HloInstruction* index,
                                    absl::Span<HloInstruction* const> parts) {
      HloInstruction* at =
          WithInteger(HloOpcode::kAdd,
                      WithInteger(HloOpcode::kMultiply, index,
                                  kTripsOfPart * blocked_.together),
                      first);
      HloInstruction* start = NeutralBeside(parts[0]);
      HloInstruction* part = Loop(kTripsOfPart, start, at, parts.subspan(2));
      std::vector<HloInstruction*> next(parts.begin(), parts.end());
      if (blocked_.operation == HloOpcode::kMultiply) {
        next[0] = Both(HloOpcode::kMultiply, parts[0], part);
        return next;
      }
      HloInstruction* added = Both(HloOpcode::kSubtract, part, parts[1]);
      next[0] = Both(HloOpcode::kAdd, parts[0], added);
      HloInstruction* off =
          Both(HloOpcode::kSubtract,
               Both(HloOpcode::kSubtract, next[0], parts[0]), added);
      HloInstruction* is_finite =
          index->AddInstruction(HloInstruction::CreateUnary(
              xla::ShapeUtil::ChangeElementType(off->shape(), xla::PRED),
              HloOpcode::kIsFinite, next[0]));
      next[1] = index->AddInstruction(HloInstruction::CreateTernary(
          off->shape(), HloOpcode::kSelect, is_finite, off, start));
      return next;
    };
    return CountedLoop(static_cast<int32_t>(trips), state, body).front();
  }

  // An array like `result` of the number that changes no sum, or product.
  HloInstruction* NeutralBeside(HloInstruction* result) {
    const xla::PrimitiveType type = result->shape().element_type();
    HloInstruction* number = result->AddInstruction(
        HloInstruction::CreateConstant(blocked_.operation == HloOpcode::kAdd
                                           ? xla::LiteralUtil::Zero(type)
                                           : xla::LiteralUtil::One(type)));
    return result->AddInstruction(
        HloInstruction::CreateBroadcast(result->shape(), number, {}));
  }

  // The elements at an index, a number.
  HloInstruction* TermAt(HloInstruction* at,
                         absl::Span<HloInstruction* const> arrays) {
    const auto elements = [&](const LeafRead& wanted) -> HloInstruction* {
      const auto read = absl::c_find_if(
          values().reads(),
          [&](const auto& each) { return ReadsAlike(each, wanted); });
      HloInstruction* array = arrays[read - values().reads().begin()];
      const HloInstruction& leaf = *values().leaves()[wanted.leaf];
      if (FixesNone(wanted.fixed)) {
        return IsConstantNumber(leaf) ? at->AddInstruction(leaf.Clone())
                                      : array;
      }
      absl::StatusOr<HloInstruction*> row = RowAt(array, at);
      status_.Update(row.status());
      return row.ok() ? *row : array;
    };
    return values().At(ElementAt(root_, blocked_.dimension, 0), elements);
  }

  const BlockedReduce& blocked_;
  const HloInstruction& root_;
  absl::Status status_ = absl::OkStatus();
};

}  // namespace

const Rule& BlockedRule() {
  static constexpr Rule rule = {
      "blocked",
      "Rewrites a reduction of more than eight elements each, by one "
      "operation, "
      "of what is computed of arrays a quarter as large or smaller that are "
      "broadcast, as a loop over four elements at a time. Floats may round "
      "differently.",
      [](const HloInstruction& root, RuleContext& context,
         std::vector<Proposal>& proposals) {
        const std::optional<BlockedReduce> blocked =
            BlockedReduceOf(root, context);
        if (!blocked.has_value()) return;
        std::vector<const HloInstruction*> reads = {root.operand(1)};
        reads.insert(reads.end(), blocked->values.leaves().begin(),
                     blocked->values.leaves().end());
        Propose(
            BlockedRule(), root, std::move(reads),
            [blocked = *blocked, &root](absl::Span<HloInstruction* const> x) {
              return Loops(blocked, root).Build(x);
            },
            proposals);
      }};
  return rule;
}

}  // namespace hloenv
