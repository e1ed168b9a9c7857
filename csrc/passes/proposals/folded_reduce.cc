// SPDX-License-Identifier: Apache-2.0
// Proposes elementwise operations on parts of rows for the largest or smallest
// integers of long rows, which the backend compares one after the other, and
// for whether any or all truth values are true.
//
// Before:  m = s32[1000] reduce(x: s32[1000,1000], min), maximum of rows
//
// After:   a = s32[1000,125] maximum of x[:,0:125], x[:,125:250], ...
//          b = s32[1000,16] maximum of a[:,0:16], ..., a[:,109:125]
//          m = s32[1000] reduce(b, min), maximum of rows
//
// Parts overlap where they do not divide a row.
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

bool IsFolded(xla::PrimitiveType type, HloOpcode operation) {
  if (type == xla::PRED) {
    return operation == HloOpcode::kOr || operation == HloOpcode::kAnd;
  }
  return (operation == HloOpcode::kMaximum ||
          operation == HloOpcode::kMinimum) &&
         xla::primitive_util::IsIntegralType(type) &&
         xla::primitive_util::BitWidth(type) >= 16;
}

// Rows [rows, length] in parts of which each element takes the place of
// several.
HloInstruction* Folded(HloInstruction* x, HloOpcode operation) {
  const int64_t length = x->shape().dimensions(1);
  const int64_t width = (length + kParts - 1) / kParts;
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
  return parts.front();
}

void ProposeFolded(const HloInstruction& root, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kReduce || !root.shape().IsArray()) return;
  const std::optional<HloOpcode> operation = ReductionOf(root, context);
  if (!operation.has_value() ||
      !IsFolded(root.shape().element_type(), *operation)) {
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
      FoldedRule(), root, {root.operand(0), root.operand(1)},
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
        HloInstruction* folded = reshaped(x[0], {rows, length});
        while (folded->shape().dimensions(1) > kShortRow) {
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

}  // namespace hloenv
