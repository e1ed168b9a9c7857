// SPDX-License-Identifier: Apache-2.0
// Proposes the iterations of a short loop over integers one after the other, in
// a kernel of their own: jax draws random numbers by five iterations of
// threefry, each of which XLA computes by kernels that read and write all bits.
//
//   x, y = while(i = 0, x0, y0), i < 5: (i + 1, f(x, y, i), g(x, y, i))
//   bits = xor(x, y)
//
// becomes a call, which XLA does not inline, of
//
//   xor(f(... f(x0, y0, 0) ...), g(...))
//
// In memory, as readers would compute all rounds again for each element that
// they read.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/cut_rules.h"
#include "passes/proposals/loop_rules.h"
#include "passes/proposals/own_kernel.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMaxRounds = 8;
// Arrays of the state, operations of all iterations for one element, and
// elements of what is no array of all elements, as the numbers of a key.
constexpr int64_t kMaxStateArrays = 4;
constexpr int64_t kMaxOperations = 512;
constexpr int64_t kFewElements = 16;
// Instructions that compute the first state of indices, and that join the
// results.
constexpr size_t kMaxBefore = 64;
constexpr size_t kMaxBehind = 8;

bool IsOfIntegers(const HloInstruction& instruction) {
  return instruction.shape().IsArray() &&
         (xla::primitive_util::IsIntegralType(
              instruction.shape().element_type()) ||
          instruction.shape().element_type() == xla::PRED);
}

bool HasFewElements(const HloInstruction& instruction) {
  return instruction.shape().IsArray() &&
         xla::ShapeUtil::ElementsIn(instruction.shape()) <= kFewElements;
}

// Whether it is one instruction of a processor for several elements.
bool IsQuick(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kCompare:
    case HloOpcode::kConvert:
    case HloOpcode::kMultiply:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kSelect:
    case HloOpcode::kShiftLeft:
    case HloOpcode::kShiftRightArithmetic:
    case HloOpcode::kShiftRightLogical:
    case HloOpcode::kSubtract:
    case HloOpcode::kXor:
      return IsOfIntegers(instruction);
    default:
      return false;
  }
}

// Whether each iteration computes this once: a number, or a few, or an array
// that the state has, or a number or row of one for all elements. Operations on
// other smaller arrays would be computed again for each element.
bool IsOfFew(const HloInstruction& instruction, int64_t elements) {
  const auto is_smaller = [&](const HloInstruction& each) {
    return xla::ShapeUtil::ElementsIn(each.shape()) < elements;
  };
  switch (instruction.opcode()) {
    case HloOpcode::kGetTupleElement:
      return true;
    case HloOpcode::kBroadcast:
      return is_smaller(*instruction.operand(0));
    case HloOpcode::kReshape:
      return is_smaller(instruction);
    case HloOpcode::kConstant:
      return HasFewElements(instruction);
    default:
      return HasFewElements(instruction) &&
             absl::c_all_of(instruction.operands(),
                            [](const auto* operand) {
                              return HasFewElements(*operand);
                            }) &&
             (instruction.opcode() == HloOpcode::kSlice ||
              IsQuick(instruction));
  }
}

// Whether the iterations are quick operations on arrays of the shape of
// `array`, element by element, and on few numbers, and few of them.
bool IsOfRounds(const FoundLoop& found, const xla::Shape& array) {
  if (found.counted.trips > kMaxRounds) return false;
  const int64_t elements = xla::ShapeUtil::ElementsIn(array);
  int64_t arrays = 0;
  int64_t operations = 0;
  for (const HloInstruction* each : found.loop->while_body()->instructions()) {
    if (!each->shape().IsArray()) {  // a state, or a part of one
      if (each->opcode() != HloOpcode::kTuple &&
          each->opcode() != HloOpcode::kParameter) {
        return false;
      }
      continue;
    }
    if (!IsOfIntegers(*each)) return false;
    const bool is_whole = xla::ShapeUtil::SameDimensions(each->shape(), array);
    arrays += is_whole && ElementOf(*each) >= 0 ? 1 : 0;
    operations += IsQuick(*each) ? 1 : 0;
    const bool is_smaller =
        xla::ShapeUtil::ElementsIn(each->shape()) < elements;
    const bool is_known =
        IsOfFew(*each, elements) || (is_whole && IsQuick(*each));
    if (!is_known || !(is_whole || is_smaller)) return false;
  }
  return arrays <= kMaxStateArrays && operations > 0 &&
         operations * found.counted.trips <= kMaxOperations;
}

// Instructions that compute an array, and what they read, each once.
struct Computed {
  std::vector<const HloInstruction*> inside;  // in post order
  std::vector<const HloInstruction*> reads;
};

// Adds what computes an array of indices, numbers and constants, by quick
// operations that others may do, too; it is read where that are other arrays,
// or too many.
void AddIndices(const HloInstruction& array, Computed& computed) {
  std::vector<const HloInstruction*> open = {&array};
  absl::flat_hash_set<const HloInstruction*> seen = {&array};
  Computed found;
  while (!open.empty() && found.inside.size() <= kMaxBefore) {
    const HloInstruction* each = open.back();
    open.pop_back();
    const bool is_constant =
        each->opcode() == HloOpcode::kConstant && HasFewElements(*each);
    const bool is_source = each->opcode() == HloOpcode::kIota ||
                           each->opcode() == HloOpcode::kBroadcast;
    const bool is_inside = is_constant || (!HasFewElements(*each) &&
                                           (is_source || IsQuick(*each)));
    if (!is_inside || !IsReplaceable(*each) || !IsOfIntegers(*each)) {
      found.reads.push_back(each);
      continue;
    }
    found.inside.push_back(each);
    for (const HloInstruction* operand : each->operands()) {
      if (seen.insert(operand).second) open.push_back(operand);
    }
  }
  if (found.inside.size() > kMaxBefore) found = {{}, {&array}};
  absl::c_copy(found.inside, std::back_inserter(computed.inside));
  for (const HloInstruction* each : found.reads) {
    if (!absl::c_linear_search(computed.reads, each)) {
      computed.reads.push_back(each);
    }
  }
}

// The loop of `results`, elements of its tuple, if these are all its results.
std::optional<FoundLoop> LoopOf(
    const absl::flat_hash_set<const HloInstruction*>& results,
    RuleContext& context) {
  for (const HloInstruction* each : results) {
    const std::optional<FoundLoop> found = FoundLoopOf(*each, context);
    if (!found.has_value()) continue;
    const bool are_all = found->originals.size() == results.size() &&
                         absl::c_all_of(found->originals, [&](const auto* own) {
                           return results.contains(own);
                         });
    return are_all ? found : std::nullopt;
  }
  return std::nullopt;
}

bool IsResult(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kGetTupleElement &&
         instruction.operand(0)->opcode() == HloOpcode::kWhile;
}

// What joins results of one loop, the last of it first, and these results:
// elementwise operations that nothing else reads.
struct JoinedResults {
  std::vector<const HloInstruction*> behind;
  absl::flat_hash_set<const HloInstruction*> results;
};

std::optional<JoinedResults> JoinedOf(const HloInstruction& last) {
  JoinedResults found;
  if (IsResult(last)) {
    found.results.insert(&last);
    return found;
  }
  if (!IsQuick(last) || HasFewElements(last)) return std::nullopt;
  // Nothing smaller joins them: results are on both sides.
  int64_t sides = 0;
  absl::flat_hash_set<const HloInstruction*> inside = {&last};
  found.behind.push_back(&last);
  for (size_t i = 0; i < found.behind.size(); ++i) {
    for (const HloInstruction* operand : found.behind[i]->unique_operands()) {
      if (operand->opcode() == HloOpcode::kBroadcast &&
          HasFewElements(*operand->operand(0)) && IsReplaceable(*operand)) {
        continue;
      }
      if (!xla::ShapeUtil::SameDimensions(operand->shape(), last.shape())) {
        return std::nullopt;
      }
      if (found.behind[i] == &last) ++sides;
      if (IsResult(*operand)) {
        found.results.insert(operand);
      } else if (!IsQuick(*operand) || !IsReplaceable(*operand) ||
                 found.behind.size() == kMaxBehind) {
        return std::nullopt;
      } else if (inside.insert(operand).second) {
        found.behind.push_back(operand);
      }
    }
  }
  const auto is_read_inside = [&](const HloInstruction* each) {
    return !each->IsRoot() &&
           absl::c_all_of(each->users(), [&](const HloInstruction* user) {
             return inside.contains(user);
           });
  };
  const bool are_own = std::all_of(found.behind.begin() + 1, found.behind.end(),
                                   is_read_inside) &&
                       absl::c_all_of(found.results, is_read_inside);
  if (sides < 2 || !are_own) return std::nullopt;
  return found;
}

void ProposeRounds(const HloInstruction& last, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  if (!IsReplaceable(last) || !IsOfIntegers(last) ||
      xla::ShapeUtil::ElementsIn(last.shape()) < kMinKept) {
    return;
  }
  std::optional<JoinedResults> joined = JoinedOf(last);
  if (!joined.has_value()) return;
  const std::optional<FoundLoop> found = LoopOf(joined->results, context);
  if (!found.has_value() || !IsOfRounds(*found, last.shape()) ||
      !MayRepeat(*found->loop, found->counted.trips)) {
    return;
  }
  Computed computed;
  for (const HloInstruction* each : found->loop->operand(0)->operands()) {
    AddIndices(*each, computed);
  }
  for (const HloInstruction* each : joined->behind) {
    for (const HloInstruction* operand : each->operands()) {
      if (operand->opcode() == HloOpcode::kBroadcast) {
        AddIndices(*operand, computed);
      }
    }
  }
  // By their places: what is computed of others comes behind these.
  const auto is_before = [&](const HloInstruction* a, const HloInstruction* b) {
    return context.PlaceOf(*a) < context.PlaceOf(*b);
  };
  for (auto* each : {&computed.inside, &joined->behind}) {
    absl::c_sort(*each, is_before);
    each->erase(std::unique(each->begin(), each->end()), each->end());
  }
  if (computed.reads.empty()) {  // a call needs an operand
    computed.reads.push_back(
        found->loop->operand(0)->operand(found->counted.index));
  }
  Propose(
      RoundsRule(), last, computed.reads,
      [found = *found, computed, behind = joined->behind,
       &last](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return InOwnKernel(
            x,
            [&](absl::Span<HloInstruction* const> parameters)
                -> absl::StatusOr<HloInstruction*> {
              absl::flat_hash_map<const HloInstruction*, HloInstruction*> image;
              for (size_t i = 0; i < parameters.size(); ++i) {
                image[computed.reads[i]] = parameters[i];
              }
              const auto add = [&](const HloInstruction* each) {
                std::vector<HloInstruction*> operands;
                for (const HloInstruction* operand : each->operands()) {
                  operands.push_back(image.at(operand));
                }
                image[each] = operands.empty()
                                  ? parameters[0]->AddInstruction(each->Clone())
                                  : CloneBeside(*each, each->shape(), operands);
              };
              for (const HloInstruction* each : computed.inside) {
                if (!image.contains(each)) add(each);
              }
              std::vector<HloInstruction*> state;
              for (const HloInstruction* each :
                   found.loop->operand(0)->operands()) {
                state.push_back(image.at(each));
              }
              state = Unrolled(*found.loop, found.counted, found.counted.trips,
                               state);
              for (const HloInstruction* each : found.originals) {
                image[each] = state[each->tuple_index()];
              }
              absl::c_for_each(behind, add);
              return image.at(&last);
            });
      },
      proposals);
}

}  // namespace

const Rule& RoundsRule() {
  static constexpr Rule rule = {
      "rounds",
      "Rewrites a loop of at most eight iterations of quick integer operations "
      "on arrays, element by element, such as the rounds of a hash, which jax "
      "draws random numbers by, as these iterations one after the other, in "
      "one kernel.",
      &ProposeRounds};
  return rule;
}

}  // namespace hloenv
