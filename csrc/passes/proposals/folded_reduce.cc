// SPDX-License-Identifier: Apache-2.0
// Proposes elementwise operations on parts of rows for the largest or smallest
// integers of long rows, which the backend compares one after the other, for
// whether any or all truth values are true, and for sums of integers.
//
// Before:  m = s32[1000] reduce(x: s32[1000,1000], min), maximum of rows
//
// After:   a = s32[1000,125] maximum of x[:,0:125], x[:,125:250], ...
//          b = s32[1000,16] maximum of a[:,0:16], ..., a[:,109:125]
//          m = s32[1000] reduce(b, min), maximum of rows
//
// Parts overlap where they do not divide a row. Those of a sum do not, and what
// is left of a row is behind them:
//
// Before:  s = s32[1000] reduce(x: s32[1000,1001], 0), sums of rows
//
// After:   a = s32[1000,125] sum of x[:,0:125], x[:,125:250], ...
//          s = s32[1000] reduce(concatenate(a, x[:,1000:1001]), 0), of rows
#include <algorithm>
#include <vector>

#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kParts = 8;
// Elements of the rows that are left to a reduction.
constexpr int64_t kShortRow = 32;

// The rule for an operation on elements of a type; null if there is none.
const Rule* RuleFor(xla::PrimitiveType type, HloOpcode operation) {
  if (type == xla::PRED) {
    const bool is_folded =
        operation == HloOpcode::kOr || operation == HloOpcode::kAnd;
    return is_folded ? &FoldedRule() : nullptr;
  }
  if (!xla::primitive_util::IsIntegralType(type)) return nullptr;
  const int bits = xla::primitive_util::BitWidth(type);
  if (operation == HloOpcode::kAdd) {
    return bits >= 32 ? &FoldedSumRule() : nullptr;
  }
  const bool is_extreme =
      operation == HloOpcode::kMaximum || operation == HloOpcode::kMinimum;
  return is_extreme && bits >= 16 ? &FoldedRule() : nullptr;
}

// Rows [rows, length] in parts of which each element takes the place of
// several; for a sum with the rest of the row behind them.
HloInstruction* Folded(HloInstruction* x, HloOpcode operation) {
  const int64_t length = x->shape().dimensions(1);
  const bool is_sum = operation == HloOpcode::kAdd;
  const int64_t width = (length + (is_sum ? 0 : kParts - 1)) / kParts;
  std::vector<HloInstruction*> parts;
  for (int64_t i = 0; i < kParts; ++i) {
    const int64_t start = std::min(i * width, length - width);
    parts.push_back(Sliced({x, "rc"}, {{'c', start, width}}).value);
  }
  for (size_t apart = 1; apart < parts.size(); apart *= 2) {
    for (size_t i = 0; i < parts.size(); i += 2 * apart) {
      parts[i] = x->parent()->AddInstruction(HloInstruction::CreateBinary(
          parts[i]->shape(), operation, parts[i], parts[i + apart]));
    }
  }
  const int64_t rest = length - kParts * width;
  if (rest <= 0) return parts.front();
  const Labelled last = Sliced({x, "rc"}, {{'c', length - rest, rest}});
  return Concatenated({{parts.front(), "rc"}, last}, 'c').value;
}

void ProposeBy(const Rule& rule, const HloInstruction& root,
               RuleContext& context, std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kReduce || !root.shape().IsArray()) return;
  const std::optional<HloOpcode> operation = ReductionOf(root, context);
  if (!operation.has_value() ||
      RuleFor(root.shape().element_type(), *operation) != &rule ||
      (*operation == HloOpcode::kAdd &&
       !IsNeutral(*root.operand(1), *operation))) {
    return;
  }
  const xla::Shape& shape = root.operand(0)->shape();
  std::vector<int64_t> reduced(root.dimensions().begin(),
                               root.dimensions().end());
  std::sort(reduced.begin(), reduced.end());
  const int64_t num_kept = RankOf(shape) - static_cast<int64_t>(reduced.size());
  int64_t length = 1;
  for (const int64_t d : reduced) length *= shape.dimensions(d);
  if (reduced.empty() || reduced.front() != num_kept || length <= kShortRow) {
    return;
  }
  Propose(
      rule, root, {root.operand(0), root.operand(1)},
      [length, num_kept, operation = *operation,
       &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        xla::HloComputation* computation = x[0]->parent();
        const auto reshaped = [&](HloInstruction* array,
                                  std::vector<int64_t> sizes) {
          return computation->AddInstruction(HloInstruction::CreateReshape(
              xla::ShapeUtil::MakeShape(array->shape().element_type(), sizes),
              array));
        };
        const xla::Shape& whole = x[0]->shape();
        const int64_t rows = xla::ShapeUtil::ElementsIn(whole) / length;
        HloInstruction* folded =
            Folded(reshaped(x[0], {rows, length}), operation);
        // The backend makes vectors of sums.
        while (operation != HloOpcode::kAdd &&
               folded->shape().dimensions(1) > kShortRow) {
          folded = Folded(folded, operation);
        }
        // Of the rank of the operand, so that the same dimensions are reduced.
        std::vector<int64_t> sizes(RankOf(whole), 1);
        for (int64_t d = 0; d < num_kept; ++d) sizes[d] = whole.dimensions(d);
        sizes.back() = folded->shape().dimensions(1);
        return CloneBeside(root, root.shape(), {reshaped(folded, sizes), x[1]});
      },
      proposals);
}

void ProposeFolded(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  ProposeBy(FoldedRule(), root, context, proposals);
}

void ProposeFoldedSum(const HloInstruction& root, RuleContext& context,
                      std::vector<Proposal>& proposals) {
  ProposeBy(FoldedSumRule(), root, context, proposals);
}

}  // namespace

const Rule& FoldedRule() {
  static constexpr Rule rule = {
      "folded",
      "Rewrites the largest or smallest of many integers, of whole rows, as "
      "that of parts of the row, elementwise; likewise whether any or all "
      "truth values are true. Exact.",
      &ProposeFolded};
  return rule;
}

const Rule& FoldedSumRule() {
  static constexpr Rule rule = {
      "folded_sum",
      "Rewrites a sum of many integers, of whole rows, as one of the sum of "
      "eight parts of the row, elementwise. Exact.",
      &ProposeFoldedSum};
  return rule;
}

}  // namespace hloenv
