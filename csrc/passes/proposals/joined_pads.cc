// SPDX-License-Identifier: Apache-2.0
// Proposes concatenations for sums of arrays that zeros fill up to one shape.
//
// Before:  y = pad(a, 0, 3 behind) + pad(b, 0, 5 in front)
// After:   y = concatenate(a, b)
//
// That is what the gradient of a roll is, whose parts are slices: the
// concatenation is a roll again.
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "passes/proposals/cut_rules.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// An array between zeros along one dimension.
struct Padded {
  const HloInstruction* array;
  int64_t dimension;
  int64_t start;
  int64_t limit;
};

// Nothing for other pads, or where there are no zeros.
std::optional<Padded> PaddedOf(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kPad || !IsPlain(instruction) ||
      !IsPlain(*instruction.operand(0)) ||
      instruction.operand(1)->opcode() != HloOpcode::kConstant ||
      !instruction.operand(1)->literal().IsAll(0)) {
    return std::nullopt;
  }
  const HloInstruction& array = *instruction.operand(0);
  std::optional<Padded> found;
  for (int64_t d = 0; d < RankOf(array.shape()); ++d) {
    const auto& padding = instruction.padding_config().dimensions(d);
    const int64_t low = padding.edge_padding_low();
    const int64_t high = padding.edge_padding_high();
    if (padding.interior_padding() != 0 || low < 0 || high < 0) {
      return std::nullopt;
    }
    if (low == 0 && high == 0) continue;
    if (found.has_value()) return std::nullopt;
    found = Padded{&array, d, low, low + array.shape().dimensions(d)};
  }
  return found;
}

void ProposeJoined(const HloInstruction& instruction, RuleContext&,
                   std::vector<Proposal>& proposals) {
  if (instruction.opcode() != HloOpcode::kAdd || !IsPlain(instruction) ||
      xla::ShapeUtil::ElementsIn(instruction.shape()) < kMinKept) {
    return;
  }
  std::optional<Padded> first = PaddedOf(*instruction.operand(0));
  std::optional<Padded> second = PaddedOf(*instruction.operand(1));
  if (!first.has_value() || !second.has_value() ||
      first->dimension != second->dimension) {
    return;
  }
  if (first->start > second->start) std::swap(first, second);
  const int64_t dimension = first->dimension;
  if (first->start != 0 || first->limit != second->start ||
      second->limit != instruction.shape().dimensions(dimension)) {
    return;
  }
  Propose(
      JoinedRule(), instruction, {first->array, second->array},
      [dimension](absl::Span<HloInstruction* const> parts)
          -> absl::StatusOr<HloInstruction*> {
        return xla::MakeConcatHlo(parts, dimension);
      },
      proposals);
}

}  // namespace

const Rule& JoinedRule() {
  static constexpr Rule rule = {
      "joined",
      "Rewrites a sum of two arrays, which zeros fill up on different sides, "
      "as their concatenation: the gradient of a roll is a roll again. The "
      "numbers are the same, but -0 stays what it is, and the sum with a zero "
      "is +0.",
      &ProposeJoined};
  return rule;
}

}  // namespace hloenv
