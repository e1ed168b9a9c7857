// SPDX-License-Identifier: Apache-2.0
// Proposes chains of operations for reductions of few elements each, of which
// the backend makes slow loops or slow calls of a library.
//
// Before:  s = f32[1000] reduce(x: f32[1000,3], 0), dimensions={1}, add
// After:   s = ((0 + x[:,0]) + x[:,1]) + x[:,2]
//
// Where x is elementwise, so are its slices, on slices of what x is computed
// from.
// The operations are those of the reduction in the order of its definition, and
// each is elementwise, so that it fuses with what makes and what reads it.
// Where that may be another reduction, NaN is selected beside extremes of
// floats, and a sum is in a kernel of its own.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/kernel_cone.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/sliced_operations.h"
#include "xla/comparison_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Elements that are reduced to one, and of rows, from which XLA reduces windows
// of 32 first.
constexpr int64_t kManyToOne = 33;
// Limit of the elements of each reduction.
constexpr int64_t kMaxReduced = 16;

struct ShortReduce {
  HloOpcode operation;
  std::vector<int64_t> sizes;  // of the reduced dimensions
  int64_t terms = 1;
};

std::optional<ShortReduce> ShortReduceOf(const HloInstruction& reduce,
                                         RuleContext& context) {
  if (reduce.opcode() != HloOpcode::kReduce) return std::nullopt;
  const std::optional<HloOpcode> operation = ReductionOf(reduce, context);
  if (!operation.has_value()) return std::nullopt;
  const HloInstruction& operand = *reduce.operand(0);
  ShortReduce result;
  result.operation = *operation;
  for (const int64_t d : reduce.dimensions()) {
    result.sizes.push_back(operand.shape().dimensions(d));
    result.terms *= result.sizes.back();
    if (result.terms > kMaxReduced) return std::nullopt;
  }
  // XLA drops the initial value of a reduction of one element.
  if (result.terms == 1 && !IsNeutral(*reduce.operand(1), *operation)) {
    return std::nullopt;
  }
  return result;
}

// The reduced indices of one term, or of the first.
FixedIndices TermOf(const HloInstruction& root, const ShortReduce& reduce,
                    int64_t term) {
  FixedIndices fixed(RankOf(root.operand(0)->shape()), kAll);
  for (size_t i = reduce.sizes.size(); i-- > 0;) {
    fixed[root.dimensions(i)] = term % reduce.sizes[i];
    term /= reduce.sizes[i];
  }
  return fixed;
}

const Rule& ChainRule();
void ProposeChain(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  const std::optional<ShortReduce> reduce = ShortReduceOf(root, context);
  if (!reduce.has_value()) return;
  const SlicedOperations slices(
      *root.operand(0), root, TermOf(root, *reduce, 0), reduce->terms, context,
      {/*ends_at_broadcasts=*/false,
       /*repeats_products=*/!IsExtreme(reduce->operation)});
  std::vector<const HloInstruction*> reads = {root.operand(1)};
  reads.insert(reads.end(), slices.leaves().begin(), slices.leaves().end());
  const auto build = [reduce = *reduce, slices,
                      &root](absl::Span<HloInstruction* const> x)
      -> absl::StatusOr<HloInstruction*> {
    const xla::PrimitiveType type =
        AccumulationType(root.shape().element_type());
    std::vector<HloInstruction*> terms;
    for (int64_t term = 0; term < reduce.terms; ++term) {
      HloInstruction* part =
          slices.At(TermOf(root, reduce, term), x.subspan(1));
      terms.push_back(Converted({part, ""}, type).value);
    }
    return ChainOf(root, reduce.operation, Converted({x[0], ""}, type).value,
                   terms);
  };
  Propose(ChainRule(), root, std::move(reads),
          OutOfSlowLoops(root, reduce->operation, reduce->terms, build),
          proposals);
}
const Rule& ChainRule() {
  static constexpr Rule rule = {
      "chain",
      "Rewrites a reduction of up to 16 elements each, by one operation, as a "
      "chain of this operation on slices, a kernel of its own where a "
      "reduction of many elements reads it. Floats may round differently.",
      &ProposeChain};
  return rule;
}

absl::Span<const Rule> ReduceFormRules() {
  static const auto* rules = new std::vector<Rule>{
      ChainRule(),       BlockedRule(),     ColumnsRule(),
      FoldedRule(),      WindowChainRule(), DimensionsRule(),
      SelectChainRule(), PackedIndexRule(), KeyedIndexRule(),
      ScanRule(),        ScanGroupsRule(),  PrefixesRule(),
      ScatterRowsRule(), ScatterIntoRule(), FoldedSumRule(),
      SideBySideRule(),  SqueezedRule(),    PrefixGradientsRule()};
  return *rules;
}

// Of the search for reductions that read a result.
constexpr size_t kMaxReaders = 64;

// Whether XLA may fuse it with what it reads.
bool IsFusedWithOperands(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBroadcast:
    case HloOpcode::kGather:
    case HloOpcode::kReshape:
      return true;
    default:
      return MovesElements(instruction) || instruction.IsElementwise();
  }
}

// Whether such an instruction reads elements of `root`, or what is computed of
// them, so that XLA may fuse a chain into its loop.
bool IsReadBy(const HloInstruction& root, bool with_broadcasts,
              bool (*is_meant)(const HloInstruction& reader)) {
  std::vector<const HloInstruction*> stack = {&root};
  absl::flat_hash_set<const HloInstruction*> visited = {&root};
  while (!stack.empty()) {
    const HloInstruction* top = stack.back();
    stack.pop_back();
    for (const HloInstruction* user : top->users()) {
      if (is_meant(*user)) return true;
      if (!IsFusedWithOperands(*user) || !visited.insert(user).second ||
          (user->opcode() == HloOpcode::kBroadcast && !with_broadcasts)) {
        continue;
      }
      if (visited.size() > kMaxReaders) return true;
      stack.push_back(user);
    }
  }
  return false;
}

// In the loop of a reduction, jaxlib 0.10 loses a NaN in the first operand of a
// minimum or maximum, and makes no vectors of a chain of them.
bool IsReduction(const HloInstruction& reader) {
  return reader.opcode() == HloOpcode::kDot ||
         reader.opcode() == HloOpcode::kReduce ||
         reader.opcode() == HloOpcode::kReduceWindow;
}

// The smaller or larger of two floats; the first if that is NaN.
HloInstruction* SelectedExtreme(HloOpcode operation, HloInstruction* x,
                                HloInstruction* y) {
  xla::HloComputation* computation = x->parent();
  HloInstruction* extreme = computation->AddInstruction(
      HloInstruction::CreateBinary(x->shape(), operation, x, y));
  HloInstruction* is_nan =
      computation->AddInstruction(HloInstruction::CreateCompare(
          xla::ShapeUtil::ChangeElementType(x->shape(), xla::PRED), x, x,
          xla::ComparisonDirection::kNe));
  return computation->AddInstruction(HloInstruction::CreateTernary(
      x->shape(), HloOpcode::kSelect, is_nan, x, extreme));
}

}  // namespace

std::optional<HloOpcode> OperationOf(const xla::HloComputation& reducer) {
  const HloInstruction& root = *reducer.root_instruction();
  if (root.operand_count() != 2 ||
      root.operand(0)->opcode() != HloOpcode::kParameter ||
      root.operand(1)->opcode() != HloOpcode::kParameter ||
      root.operand(0) == root.operand(1)) {
    return std::nullopt;
  }
  switch (root.opcode()) {
    case HloOpcode::kAdd:
    case HloOpcode::kMultiply:
      if (root.shape().element_type() == xla::PRED) return std::nullopt;
      return root.opcode();
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kAnd:
    case HloOpcode::kOr:
    case HloOpcode::kXor:
      return root.opcode();
    default:
      return std::nullopt;
  }
}

bool IsReducible(const xla::Shape& shape) {
  return shape.element_type() == xla::PRED ||
         HasExactTypes(shape, shape, shape);
}

std::optional<HloOpcode> ReductionOf(const HloInstruction& root,
                                     RuleContext& context) {
  if (root.operand_count() != 2 || !IsPlain(root)) return std::nullopt;
  const HloInstruction& operand = *root.operand(0);
  const std::optional<HloOpcode> operation = OperationOf(*root.to_apply());
  const bool takes_one = operation.has_value() && IsExtreme(*operation);
  const xla::PrimitiveType type = root.shape().element_type();
  const bool is_narrow = type == xla::S8 || type == xla::U8 ||
                         type == xla::S16 || type == xla::U16;
  if (!operation.has_value() ||
      !(IsReducible(root.shape()) || (takes_one && is_narrow)) ||
      !operand.shape().is_static() ||
      xla::ShapeUtil::IsZeroElementArray(operand.shape()) ||
      xla::ShapeUtil::IsZeroElementArray(root.shape()) ||
      operand.shape().element_type() != root.shape().element_type()) {
    return std::nullopt;
  }
  // Sums of infinities or huge masks depend on the order.
  const bool has_order =
      *operation == HloOpcode::kAdd || *operation == HloOpcode::kMultiply;
  if (has_order && context.ExtremesOf(operand).large()) return std::nullopt;
  if (has_order && context.IsCompared(root)) return std::nullopt;
  return operation;
}

bool HasSlowLoop(const HloInstruction& reader) {
  if (reader.opcode() != HloOpcode::kReduce) return false;
  const xla::Shape& shape = reader.operand(0)->shape();
  const int64_t last = RankOf(shape) - 1;
  int64_t reduced = 1;
  for (const int64_t d : reader.dimensions()) reduced *= shape.dimensions(d);
  return last >= 0 && reduced >= kManyToOne &&
         (shape.dimensions(last) >= kManyToOne ||
          !absl::c_linear_search(reader.dimensions(), last));
}

BuildFn OutOfSlowLoops(const HloInstruction& root, HloOpcode operation,
                       size_t terms, BuildFn build) {
  const bool is_sum =
      operation == HloOpcode::kAdd || operation == HloOpcode::kMultiply;
  const auto is_slow = [](const HloInstruction& reader) {
    return reader.opcode() == HloOpcode::kDot || HasSlowLoop(reader);
  };
  if (terms < 2 || !is_sum || !IsReadBy(root, false, is_slow)) return build;
  return [build = std::move(build)](absl::Span<HloInstruction* const> x) {
    return InOwnKernel(x, build);
  };
}

bool IsExtreme(HloOpcode operation) {
  return operation == HloOpcode::kMaximum || operation == HloOpcode::kMinimum;
}

HloInstruction* ChainOf(const HloInstruction& root, HloOpcode operation,
                        HloInstruction* initial,
                        absl::Span<HloInstruction* const> terms) {
  const xla::Shape shape = xla::ShapeUtil::ChangeElementType(
      root.shape(), initial->shape().element_type());
  xla::HloComputation* computation = initial->parent();
  // XLA takes `0 + x` for `x`, which is another sum of negative zeros.
  const bool is_sum =
      operation == HloOpcode::kAdd && !xla::ShapeUtil::ElementIsIntegral(shape);
  HloInstruction* result = is_sum ? BarrierOf(initial) : initial;
  if (RankOf(shape) > 0) {
    result = computation->AddInstruction(
        HloInstruction::CreateBroadcast(shape, result, {}));
  }
  const bool is_selected = IsExtreme(operation) &&
                           xla::ShapeUtil::ElementIsFloating(shape) &&
                           IsReadBy(root, true, IsReduction);
  for (HloInstruction* term : terms) {
    result = is_selected
                 ? SelectedExtreme(operation, result, term)
                 : computation->AddInstruction(HloInstruction::CreateBinary(
                       shape, operation, result, term));
  }
  return Converted({result, ""}, root.shape().element_type()).value;
}

PassInfo ReduceFormsPass() {
  return RulePass(
      "reduce-forms", "hloenv::ReduceForms",
      "Proposes elementwise operations for reductions of few elements each: of "
      "short dimensions, such as three coordinates; of small windows, as in "
      "pooling; of windows that overlap, one dimension after the other; and "
      "for the gradient of max pooling; two reductions for one "
      "over rows and short columns of groups; the largest integers of parts of "
      "rows; one reduction for the "
      "index of an extreme element; loops for cumulative reductions, for long "
      "ones of functions of arrays that are broadcast to each other, for "
      "results "
      "for all prefixes of rows (jax.lax.associative_scan), and for "
      "scatters into columns; and a scatter into an array for its sum with one "
      "into zeros. Run it before layout assignment. Integer "
      "results are exact; floats may round differently, as "
      "the order of a reduction is not fixed. Sums that read infinities or "
      "huge masks of the module are not rewritten.",
      ReduceFormRules(), [](const Options& options) {
        return MakeRulePass("reduce-forms", ReduceFormRules(), options);
      });
}

}  // namespace hloenv
