// SPDX-License-Identifier: Apache-2.0
// Proposes to read rolled arrays from one that has their ends on both sides.
//
// Before:  left = concatenate(x[1:], x[:1])
//          right = concatenate(x[-1:], x[:-1])
// After:   halo = call(x), of concatenate(x[-1:], x, x[:1])
//          left = halo[2:],  right = halo[:-2]
//
// A fused kernel asks for each element of a concatenation which part it is in,
// and LLVM makes no vectors of that along rows, nor of a roll along one
// dimension of a roll along another, as around the corners of a grid.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/cut_rules.h"
#include "passes/proposals/own_kernel.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using Images = absl::Span<HloInstruction* const>;

// Rolls of one array that are looked for.
constexpr size_t kMaxRolls = 64;

// The indices that a slice reads along `dimension`, if it reads all along the
// others.
struct Range {
  int64_t start;
  int64_t limit;
};
std::optional<Range> RangeOf(const HloInstruction& slice, int64_t dimension) {
  if (slice.opcode() != HloOpcode::kSlice) return std::nullopt;
  for (int64_t d = 0; d < RankOf(slice.shape()); ++d) {
    if (slice.slice_strides(d) != 1 ||
        (d != dimension && slice.shape().dimensions(d) !=
                               slice.operand(0)->shape().dimensions(d))) {
      return std::nullopt;
    }
  }
  return Range{slice.slice_starts(dimension), slice.slice_limits(dimension)};
}

// What `instruction` rolls along its dimension, and by how much, if it does: an
// element is moved to the index that is larger by that.
struct Step {
  const HloInstruction* of;
  int64_t dimension;
  int64_t shift;
};
std::optional<Step> StepOf(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kConcatenate ||
      instruction.operand_count() != 2 || !IsPlain(instruction)) {
    return std::nullopt;
  }
  const int64_t dimension = instruction.concatenate_dimension();
  const std::optional<Range> first =
      RangeOf(*instruction.operand(0), dimension);
  const std::optional<Range> second =
      RangeOf(*instruction.operand(1), dimension);
  if (!first.has_value() || !second.has_value()) return std::nullopt;
  const HloInstruction* of = instruction.operand(0)->operand(0);
  const int64_t size = instruction.shape().dimensions(dimension);
  if (instruction.operand(1)->operand(0) != of || !IsPlain(*of) ||
      of->shape().dimensions(dimension) != size || second->start != 0 ||
      first->limit != size || first->start != second->limit) {
    return std::nullopt;
  }
  return Step{of, dimension, size - first->start};
}

// An instruction that is `of` rolled along some of its dimensions.
struct Roll {
  const HloInstruction* root;
  const HloInstruction* of;
  std::vector<int64_t> shifts;  // by dimension, of at most half of it

  int64_t num_dimensions() const {
    return absl::c_count_if(shifts, [](int64_t shift) { return shift != 0; });
  }
};
std::optional<Roll> RollOf(const HloInstruction& root) {
  if (!StepOf(root).has_value()) return std::nullopt;
  Roll roll = {&root, &root, std::vector<int64_t>(RankOf(root.shape()))};
  for (size_t i = 0; i < kMaxRolls; ++i) {
    const std::optional<Step> step = StepOf(*roll.of);
    if (!step.has_value()) break;
    roll.of = step->of;
    roll.shifts[step->dimension] += step->shift;
  }
  for (int64_t d = 0; d < RankOf(root.shape()); ++d) {
    const int64_t size = std::max<int64_t>(1, root.shape().dimensions(d));
    roll.shifts[d] %= size;
    if (2 * roll.shifts[d] > size) roll.shifts[d] -= size;
  }
  return roll;
}

template <typename Predicate>
void RemoveIf(std::vector<Roll>& rolls, const Predicate& predicate) {
  rolls.erase(std::remove_if(rolls.begin(), rolls.end(), predicate),
              rolls.end());
}

// The rolls of `array` that something else than a further roll reads, in post
// order; none where there are too many.
std::vector<Roll> RollsOf(const HloInstruction& array, RuleContext& context) {
  std::vector<Roll> rolls;
  std::vector<const HloInstruction*> stack = {&array};
  while (!stack.empty()) {
    const HloInstruction& top = *stack.back();
    stack.pop_back();
    const std::vector<const HloInstruction*> users = context.UsersInOrder(top);
    for (const HloInstruction* slice : users) {
      if (slice->opcode() != HloOpcode::kSlice) continue;
      for (const HloInstruction* user : context.UsersInOrder(*slice)) {
        if (user->operand(0) != slice || !StepOf(*user).has_value() ||
            absl::c_any_of(
                rolls, [&](const Roll& each) { return each.root == user; })) {
          continue;
        }
        if (rolls.size() == kMaxRolls) return {};
        rolls.push_back(*RollOf(*user));
        stack.push_back(user);
      }
    }
  }
  RemoveIf(rolls, [&](const Roll& roll) {
    return !context.IsLive(*roll.root) ||
           (!roll.root->IsRoot() &&
            absl::c_all_of(roll.root->users(), [](const HloInstruction* user) {
              return user->opcode() == HloOpcode::kSlice &&
                     absl::c_all_of(user->users(), [](const auto* reader) {
                       return StepOf(*reader).has_value();
                     });
            }));
  });
  return rolls;
}

// How many elements of the other side are on each side, by dimension.
struct Halo {
  std::vector<int64_t> low;
  std::vector<int64_t> high;
};

absl::StatusOr<HloInstruction*> Part(HloInstruction* array, int64_t dimension,
                                     int64_t start, int64_t limit) {
  const auto rank = static_cast<size_t>(RankOf(array->shape()));
  std::vector<int64_t> starts(rank, 0);
  std::vector<int64_t> limits(array->shape().dimensions().begin(),
                              array->shape().dimensions().end());
  starts[dimension] = start;
  limits[dimension] = limit;
  return xla::MakeSliceHlo(array, starts, limits,
                           std::vector<int64_t>(rank, 1));
}

absl::StatusOr<HloInstruction*> WithHalo(HloInstruction* array,
                                         const Halo& halo) {
  for (int64_t d = RankOf(array->shape()) - 1; d >= 0; --d) {
    const int64_t size = array->shape().dimensions(d);
    std::vector<HloInstruction*> parts;
    if (halo.low[d] > 0) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * part,
                              Part(array, d, size - halo.low[d], size));
      parts.push_back(part);
    }
    parts.push_back(array);
    if (halo.high[d] > 0) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * part,
                              Part(array, d, 0, halo.high[d]));
      parts.push_back(part);
    }
    if (parts.size() == 1) continue;
    HLOENV_ASSIGN_OR_RETURN(array, xla::MakeConcatHlo(parts, d));
  }
  return array;
}

void ProposeHalo(const HloInstruction& instruction, RuleContext& context,
                 std::vector<Proposal>& proposals) {
  const std::optional<Roll> last = RollOf(instruction);
  if (!last.has_value() || last->of->opcode() == HloOpcode::kConstant ||
      last->of->opcode() == HloOpcode::kBroadcast ||
      xla::ShapeUtil::ElementsIn(instruction.shape()) < kMinKept) {
    return;
  }
  std::vector<Roll> rolls = RollsOf(*last->of, context);
  // Dimensions with a halo: the last one, and those of rolls along several.
  const int64_t rank = RankOf(instruction.shape());
  std::vector<bool> has_halo(rank, false);
  has_halo[rank - 1] = true;
  for (const Roll& roll : rolls) {
    if (roll.num_dimensions() < 2) continue;
    for (int64_t d = 0; d < rank; ++d) {
      if (roll.shifts[d] != 0) has_halo[d] = true;
    }
  }
  // Others stay as they are.
  RemoveIf(rolls, [&](const Roll& roll) {
    for (int64_t d = 0; d < rank; ++d) {
      if (roll.shifts[d] != 0 && !has_halo[d]) return true;
    }
    return roll.num_dimensions() == 0;
  });
  if (rolls.size() < 2) return;
  const auto order = [&](const Roll& roll) {
    return absl::c_find(context.post_order(), roll.root);
  };
  absl::c_sort(
      rolls, [&](const Roll& a, const Roll& b) { return order(a) < order(b); });
  if (rolls.back().root != &instruction) return;
  Halo halo = {std::vector<int64_t>(rank), std::vector<int64_t>(rank)};
  double elements = 1;
  for (int64_t d = 0; d < rank; ++d) {
    for (const Roll& roll : rolls) {
      halo.low[d] = std::max(halo.low[d], roll.shifts[d]);
      halo.high[d] = std::max(halo.high[d], -roll.shifts[d]);
    }
    elements *= static_cast<double>(instruction.shape().dimensions(d) +
                                    halo.low[d] + halo.high[d]);
  }
  // Mostly halo, as for halves that are exchanged.
  constexpr double kMaxPadded = 2;
  if (elements > kMaxPadded * static_cast<double>(xla::ShapeUtil::ElementsIn(
                                  instruction.shape()))) {
    return;
  }
  std::vector<const HloInstruction*> originals;
  for (auto roll = rolls.rbegin(); roll != rolls.rend(); ++roll) {
    originals.push_back(roll->root);
  }
  ProposeMany(
      HaloRule(), std::move(originals), {last->of},
      [rolls, halo,
       rank](Images x) -> absl::StatusOr<std::vector<HloInstruction*>> {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * whole,
                                InOwnKernel(x, [&](Images parameters) {
                                  return WithHalo(parameters.front(), halo);
                                }));
        std::vector<HloInstruction*> results;
        for (auto roll = rolls.rbegin(); roll != rolls.rend(); ++roll) {
          std::vector<int64_t> starts(rank), limits(rank);
          for (int64_t d = 0; d < rank; ++d) {
            starts[d] = halo.low[d] - roll->shifts[d];
            limits[d] = starts[d] + x[0]->shape().dimensions(d);
          }
          HLOENV_ASSIGN_OR_RETURN(
              HloInstruction * result,
              xla::MakeSliceHlo(whole, starts, limits,
                                std::vector<int64_t>(rank, 1)));
          results.push_back(result);
        }
        return results;
      },
      proposals);
}

}  // namespace

const Rule& HaloRule() {
  static constexpr Rule rule = {
      "halo",
      "Reads arrays that are rolled, as by jnp.roll, from one array with their "
      "ends on both sides, which is in memory: those along the last dimension, "
      "and along several. The numbers are the same; what computes them may be "
      "fused otherwise, and round differently, as with `repeated`.",
      &ProposeHalo};
  return rule;
}

}  // namespace hloenv
