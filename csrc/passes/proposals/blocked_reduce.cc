// SPDX-License-Identifier: Apache-2.0
// Proposes loops over four elements at a time for reductions of what is
// computed of much smaller arrays that are broadcast: distances of many
// features, the best path over all states, sums over all pairs. The backend
// makes a loop for each result, often without vectors.
//
// Before:  s = f32[200,300] reduce(abs(a[:,:,None] - b[None,:,:]): f32[200,64,
//              300], 0), dimensions={1}, add
// After:   s = 0; for k = 0, 4, 8, ...:
//          s = ((s + abs(a[:,k] - b[k,:])) + abs(a[:,k+1] - b[k+1,:])) + ...
//
// The first elements, if four does not divide their number, come before that.
#include <numeric>

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

// Elements of each iteration; the least of each reduction, and results.
constexpr int64_t kTogether = 4;
constexpr int64_t kMinReduced = 9;
constexpr int64_t kMinResults = 1024;
// Results of each row, which are vectors: of others, half are wasted.
constexpr int64_t kMinRow = 8;
constexpr int64_t kAnyRow = 16;
// Bytes of results that no cache holds, for which twice as many are better.
constexpr int64_t kLargeBytes = int64_t{32} << 20;
// How many times as many elements are reduced as those that they are computed
// of; where these are transposed; where those are many; and arrays of these.
constexpr int64_t kTimesSmaller = 4;
constexpr int64_t kTimesTransposed = 8;
constexpr int64_t kTimesManyTransposed = 16;
constexpr int64_t kMany = int64_t{1} << 20;
constexpr size_t kMostArrays = 16;

struct BlockedReduce {
  HloOpcode operation;
  int64_t size;      // elements of each reduction
  int64_t together;  // those of an iteration
  SlicedOperations values;
};

FixedIndices ElementAt(const HloInstruction& reduce, int64_t index) {
  FixedIndices fixed(RankOf(reduce.operand(0)->shape()), kAll);
  fixed[reduce.dimensions(0)] = index;
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

// Whether jaxlib's library computes these elements as fast: sums of products of
// two arrays are dots there, and it has a logarithm of 1 + x.
bool IsOfLibrary(const HloInstruction& reduce, HloOpcode operation,
                 const SlicedOperations& values) {
  const HloOpcode last = reduce.operand(0)->opcode();
  const bool is_scaled =
      last == HloOpcode::kMultiply || last == HloOpcode::kDivide;
  return reduce.shape().element_type() == xla::F32 &&
         ((operation == HloOpcode::kAdd && is_scaled &&
           absl::c_count_if(values.inner(), IsComputed) == 1) ||
          absl::c_any_of(values.inner(), [](const HloInstruction* each) {
            return each->opcode() == HloOpcode::kLog1p;
          }));
}

// Whether the arrays are so much smaller than what is computed of them, in rows
// of `row`, that a loop over them is faster, though some are transposed first.
bool AreSmaller(const SlicedOperations& values, const xla::Shape& computed,
                int64_t row) {
  int64_t elements = 0;
  int64_t transposed = 0;
  for (const LeafRead& read : values.reads()) {
    const int64_t own =
        xla::ShapeUtil::ElementsIn(values.leaves()[read.leaf]->shape());
    elements += own;
    if (!FixesNone(read.fixed) && FixedOf(read) > 0) transposed += own;
  }
  const bool has_vectors = row % kMinRow == 0 || row >= kAnyRow;
  const int64_t times =
      transposed < kMany ? kTimesTransposed : kTimesManyTransposed;
  const int64_t all = xla::ShapeUtil::ElementsIn(computed);
  return values.reads().size() <= kMostArrays &&
         elements * kTimesSmaller <= all && transposed * times <= all &&
         (transposed == 0 || has_vectors);
}

std::optional<BlockedReduce> BlockedReduceOf(const HloInstruction& reduce,
                                             RuleContext& context) {
  if (reduce.opcode() != HloOpcode::kReduce || reduce.operand_count() != 2 ||
      reduce.dimensions().size() != 1) {
    return std::nullopt;
  }
  const xla::Shape& shape = reduce.operand(0)->shape();
  const int64_t size = shape.dimensions(reduce.dimensions(0));
  const int64_t rank = RankOf(reduce.shape());
  const xla::PrimitiveType type = reduce.shape().element_type();
  if (size < kMinReduced || rank == 0 || AccumulationType(type) != type ||
      reduce.shape().dimensions(rank - 1) < kMinRow ||
      xla::ShapeUtil::ElementsIn(reduce.shape()) < kMinResults) {
    return std::nullopt;
  }
  const std::optional<HloOpcode> operation = ReductionOf(reduce, context);
  if (!operation.has_value()) return std::nullopt;
  const bool is_large =
      xla::ShapeUtil::ByteSizeOfElements(reduce.shape()) > kLargeBytes;
  const int64_t together = is_large ? 2 * kTogether : kTogether;
  BlockedReduce result = {
      *operation, size, together,
      SlicedOperations(*reduce.operand(0), reduce, ElementAt(reduce, 0),
                       together, context,
                       SlicedOperations::Broadcasts::kLeaves)};
  if (IsOfLibrary(reduce, *operation, result.values)) return std::nullopt;
  if (!AreSmaller(result.values, shape, reduce.shape().dimensions(rank - 1))) {
    return std::nullopt;
  }
  return result;
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
  xla::Shape shape = array->shape();
  shape.set_dimensions(0, 1);
  HloInstruction* zero = array->AddInstruction(
      HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0<int32_t>(0)));
  std::vector<HloInstruction*> starts(RankOf(shape), zero);
  starts[0] = index;
  HloInstruction* row =
      array->AddInstruction(HloInstruction::CreateDynamicSlice(
          shape, array, starts, shape.dimensions()));
  return xla::MakeReshapeHlo(shape.dimensions().subspan(1), row);
}

absl::StatusOr<HloInstruction*> BuildBlocks(
    const BlockedReduce& blocked, const HloInstruction& root,
    absl::Span<HloInstruction* const> x) {
  const SlicedOperations& values = blocked.values;
  const int64_t before = blocked.size % blocked.together;
  std::vector<HloInstruction*> terms;
  for (int64_t i = 0; i < before; ++i) {
    terms.push_back(values.At(ElementAt(root, i), x.subspan(1)));
  }
  std::vector<HloInstruction*> state = {
      ChainOf(root, blocked.operation, x[0], terms)};
  for (const LeafRead& read : values.reads()) {
    HloInstruction* leaf = x[1 + read.leaf];
    if (!FixesNone(read.fixed)) {
      HLOENV_ASSIGN_OR_RETURN(leaf, WithFirst(leaf, FixedOf(read)));
    }
    state.push_back(leaf);
  }
  absl::Status status = absl::OkStatus();
  const auto body = [&](HloInstruction* index,
                        absl::Span<HloInstruction* const> parts)
      -> std::vector<HloInstruction*> {
    const auto number = [index](int64_t value) {
      return index->AddInstruction(HloInstruction::CreateConstant(
          xla::LiteralUtil::CreateR0(static_cast<int32_t>(value))));
    };
    const auto binary = [](HloOpcode opcode, HloInstruction* a,
                           HloInstruction* b) {
      return a->AddInstruction(
          HloInstruction::CreateBinary(a->shape(), opcode, a, b));
    };
    HloInstruction* first =
        binary(HloOpcode::kMultiply, index, number(blocked.together));
    HloInstruction* result = parts[0];
    for (int64_t i = 0; i < blocked.together; ++i) {
      HloInstruction* at = binary(HloOpcode::kAdd, first, number(before + i));
      const auto elements = [&](const LeafRead& wanted) -> HloInstruction* {
        const auto read = absl::c_find_if(
            values.reads(),
            [&](const auto& each) { return ReadsAlike(each, wanted); });
        HloInstruction* part = parts[1 + (read - values.reads().begin())];
        const HloInstruction& leaf = *values.leaves()[wanted.leaf];
        if (FixesNone(wanted.fixed)) {
          return IsConstantNumber(leaf) ? index->AddInstruction(leaf.Clone())
                                        : part;
        }
        absl::StatusOr<HloInstruction*> row = RowAt(part, at);
        status.Update(row.status());
        return row.ok() ? *row : part;
      };
      result = binary(blocked.operation, result,
                      values.At(ElementAt(root, 0), elements));
    }
    std::vector<HloInstruction*> next(parts.begin(), parts.end());
    next[0] = result;
    return next;
  };
  HloInstruction* result =
      CountedLoop(static_cast<int32_t>(blocked.size / blocked.together), state,
                  body)
          .front();
  HLOENV_RETURN_IF_ERROR(status);
  return result;
}

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
              return BuildBlocks(blocked, root, x);
            },
            proposals);
      }};
  return rule;
}

}  // namespace hloenv
