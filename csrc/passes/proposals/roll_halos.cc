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
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
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
constexpr size_t kMaxRolls = 128;

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

// An instruction that is an array rolled along some of its dimensions.
struct Roll {
  const HloInstruction* root;
  std::vector<int64_t> shifts;  // by dimension, of at most half of it

  int64_t num_dimensions() const {
    return absl::c_count_if(shifts, [](int64_t shift) { return shift != 0; });
  }
  void Add(const Step& step) {
    const int64_t size = root->shape().dimensions(step.dimension);
    int64_t& shift = shifts[step.dimension];
    shift = (shift + step.shift) % size;
    if (2 * shift > size) shift -= size;
    if (2 * shift <= -size) shift += size;
  }
};

// The array of which `instruction` is a roll, or a roll of a roll.
const HloInstruction& RolledBy(const HloInstruction& instruction) {
  const HloInstruction* array = &instruction;
  for (size_t i = 0; i < kMaxRolls; ++i) {
    const std::optional<Step> step = StepOf(*array);
    if (!step.has_value()) break;
    array = step->of;
  }
  return *array;
}

// Whether nothing but further rolls reads it.
bool IsRolledOn(const HloInstruction& instruction) {
  return !instruction.IsRoot() &&
         absl::c_all_of(instruction.users(), [](const HloInstruction* user) {
           return user->opcode() == HloOpcode::kSlice && !user->IsRoot() &&
                  absl::c_all_of(user->users(), [](const auto* reader) {
                    return StepOf(*reader).has_value();
                  });
         });
}

// The rolls of `array`, and of these, that something else reads, too, in post
// order; none where there are too many.
std::vector<Roll> RollsOf(const HloInstruction& array, RuleContext& context) {
  std::vector<Roll> found = {
      {&array, std::vector<int64_t>(RankOf(array.shape()))}};
  absl::flat_hash_set<const HloInstruction*> visited;
  for (size_t i = 0; i < found.size(); ++i) {
    // By reading both parts of each roll.
    for (const HloInstruction* slice : found[i].root->users()) {
      if (slice->opcode() != HloOpcode::kSlice) continue;
      for (const HloInstruction* user : slice->users()) {
        const std::optional<Step> step = StepOf(*user);
        if (!step.has_value() || !visited.insert(user).second) continue;
        if (found.size() > kMaxRolls) return {};
        found.push_back({user, found[i].shifts});
        found.back().Add(*step);
      }
    }
  }
  std::vector<Roll> rolls;
  for (size_t i = 1; i < found.size(); ++i) {
    if (context.IsLive(*found[i].root) && !IsRolledOn(*found[i].root)) {
      rolls.push_back(std::move(found[i]));
    }
  }
  absl::c_sort(rolls, [&](const Roll& a, const Roll& b) {
    return context.PlaceOf(*a.root) < context.PlaceOf(*b.root);
  });
  return rolls;
}

// How many elements of the other side are on each side, by dimension.
struct Halo {
  std::vector<int64_t> low;
  std::vector<int64_t> high;
};

absl::StatusOr<HloInstruction*> WithHalo(HloInstruction* array,
                                         const Halo& halo) {
  for (int64_t d = RankOf(array->shape()) - 1; d >= 0; --d) {
    const int64_t size = array->shape().dimensions(d);
    std::vector<HloInstruction*> parts;
    if (halo.low[d] > 0) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * part,
                              SliceAlong(array, d, size - halo.low[d], size));
      parts.push_back(part);
    }
    parts.push_back(array);
    if (halo.high[d] > 0) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * part,
                              SliceAlong(array, d, 0, halo.high[d]));
      parts.push_back(part);
    }
    if (parts.size() == 1) continue;
    HLOENV_ASSIGN_OR_RETURN(array, xla::MakeConcatHlo(parts, d));
  }
  return array;
}

void ProposeHalo(const HloInstruction& instruction, RuleContext& context,
                 std::vector<Proposal>& proposals) {
  if (!StepOf(instruction).has_value() ||
      xla::ShapeUtil::ElementsIn(instruction.shape()) < kMinKept) {
    return;
  }
  const HloInstruction& array = RolledBy(instruction);
  if (array.opcode() == HloOpcode::kConstant ||
      array.opcode() == HloOpcode::kBroadcast ||
      array.opcode() == HloOpcode::kIota) {
    return;
  }
  std::vector<Roll> rolls = RollsOf(array, context);
  if (rolls.empty() || rolls.back().root != &instruction) return;
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
  rolls.erase(std::remove_if(rolls.begin(), rolls.end(),
                             [&](const Roll& roll) {
                               for (int64_t d = 0; d < rank; ++d) {
                                 if (roll.shifts[d] != 0 && !has_halo[d]) {
                                   return true;
                                 }
                               }
                               return roll.num_dimensions() == 0;
                             }),
              rolls.end());
  if (rolls.size() < 2) return;
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
      HaloRule(), std::move(originals), {&array},
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
