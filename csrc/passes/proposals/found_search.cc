// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/found_search.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/fusion_rules.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// Iterations that select what they compare with: 2^k - 1 numbers; and those of
// the longest search. Gathers of more numbers wait for the cache, and are
// slower in one kernel.
constexpr int64_t kSelecting = 6;
constexpr int64_t kMaxIterations = 10;
constexpr int64_t kMaxBodyInstructions = 64;

bool IsInteger(const xla::Shape& shape) {
  return xla::primitive_util::IsIntegralType(shape.element_type());
}

struct Bounds {
  int64_t low;
  int64_t high;
};

// Values of the integers that a body computes of the bounds and the decision.
class Evaluation {
 public:
  Evaluation(const Search& search, Bounds bounds, std::optional<bool> decision)
      : search_(search), bounds_(bounds), decision_(decision) {}

  // Nothing where it depends on more, or overflows.
  std::optional<int64_t> Of(const HloInstruction& instruction) {
    if (&instruction == search_.decision) {
      if (!decision_.has_value()) return std::nullopt;
      return *decision_ ? 1 : 0;
    }
    const auto known = values_.find(&instruction);
    if (known != values_.end()) return known->second;
    return values_[&instruction] = Evaluate(instruction);
  }

 private:
  std::optional<int64_t> Evaluate(const HloInstruction& instruction) {
    const xla::PrimitiveType type = instruction.shape().element_type();
    if (type != xla::PRED && !xla::primitive_util::IsIntegralType(type)) {
      return std::nullopt;
    }
    const std::optional<int64_t> value = Compute(instruction);
    if (!value.has_value() || !Fits(*value, type)) return std::nullopt;
    return value;
  }

  static bool Fits(int64_t value, xla::PrimitiveType type) {
    if (type == xla::PRED) return value == 0 || value == 1;
    constexpr int64_t kMax = int64_t{1} << 40;
    if (value < -kMax || value > kMax) return false;
    const int bits = xla::primitive_util::BitWidth(type);
    if (xla::primitive_util::IsUnsignedIntegralType(type)) {
      return value >= 0 && (bits > 40 || value < (int64_t{1} << bits));
    }
    return bits > 40 || (value >= -(int64_t{1} << (bits - 1)) &&
                         value < (int64_t{1} << (bits - 1)));
  }

  std::optional<int64_t> Compute(const HloInstruction& instruction) {
    if (const int64_t element = ElementOf(instruction); element >= 0) {
      if (element == search_.low) return bounds_.low;
      if (element == search_.high) return bounds_.high;
      return std::nullopt;
    }
    switch (instruction.opcode()) {
      case HloOpcode::kConstant:
        return IntegerOf(instruction);
      case HloOpcode::kBroadcast:
        if (!xla::ShapeUtil::IsScalar(instruction.operand(0)->shape())) {
          return std::nullopt;
        }
        return Of(*instruction.operand(0));
      case HloOpcode::kReshape:
      case HloOpcode::kConvert:
      case HloOpcode::kCopy:
        return Of(*instruction.operand(0));
      case HloOpcode::kSelect: {
        const std::optional<int64_t> which = Of(*instruction.operand(0));
        if (!which.has_value()) return std::nullopt;
        return Of(*instruction.operand(*which != 0 ? 1 : 2));
      }
      case HloOpcode::kSign: {
        const std::optional<int64_t> value = Of(*instruction.operand(0));
        if (!value.has_value()) return std::nullopt;
        return (*value > 0) - (*value < 0);
      }
      case HloOpcode::kNot: {
        if (instruction.shape().element_type() != xla::PRED) {
          return std::nullopt;
        }
        const std::optional<int64_t> value = Of(*instruction.operand(0));
        if (!value.has_value()) return std::nullopt;
        return 1 - *value;
      }
      default:
        return Binary(instruction);
    }
  }

  static bool Compared(xla::ComparisonDirection direction, int64_t a,
                       int64_t b) {
    switch (direction) {
      case xla::ComparisonDirection::kEq:
        return a == b;
      case xla::ComparisonDirection::kNe:
        return a != b;
      case xla::ComparisonDirection::kLt:
        return a < b;
      case xla::ComparisonDirection::kLe:
        return a <= b;
      case xla::ComparisonDirection::kGt:
        return a > b;
      case xla::ComparisonDirection::kGe:
        return a >= b;
    }
    return false;
  }

  std::optional<int64_t> Binary(const HloInstruction& instruction) {
    if (instruction.operand_count() != 2) return std::nullopt;
    const std::optional<int64_t> a = Of(*instruction.operand(0));
    const std::optional<int64_t> b = Of(*instruction.operand(1));
    if (!a.has_value() || !b.has_value()) return std::nullopt;
    switch (instruction.opcode()) {
      case HloOpcode::kAdd:
        return *a + *b;
      case HloOpcode::kSubtract:
        return *a - *b;
      case HloOpcode::kAnd:
        return *a & *b;
      case HloOpcode::kCompare:
        return Compared(instruction.comparison_direction(), *a, *b);
      case HloOpcode::kMaximum:
        return std::max(*a, *b);
      case HloOpcode::kMinimum:
        return std::min(*a, *b);
      case HloOpcode::kDivide:
        if (*a < 0 || *b <= 0) return std::nullopt;
        return *a / *b;
      case HloOpcode::kRemainder:
        if (*a < 0 || *b <= 0) return std::nullopt;
        return *a % *b;
      case HloOpcode::kShiftRightLogical:
      case HloOpcode::kShiftRightArithmetic:
        if (*a < 0 || *b < 0 || *b > 31) return std::nullopt;
        return *a >> *b;
      default:
        return std::nullopt;
    }
  }

  const Search& search_;
  const Bounds bounds_;
  const std::optional<bool> decision_;
  absl::flat_hash_map<const HloInstruction*, std::optional<int64_t>> values_;
};

// Whether the gather takes one number of a table for each of its indices.
bool IsLookup(const HloInstruction& gather) {
  const xla::GatherDimensionNumbers& dims = gather.gather_dimension_numbers();
  const xla::Shape& indices = gather.operand(1)->shape();
  return RankOf(gather.operand(0)->shape()) == 1 &&
         gather.operand(0)->shape().dimensions(0) > 0 &&
         dims.start_index_map_size() == 1 &&
         gather.gather_slice_sizes()[0] == 1 &&
         dims.operand_batching_dims_size() == 0 && IsInteger(indices) &&
         xla::ShapeUtil::ElementsIn(indices) ==
             xla::ShapeUtil::ElementsIn(gather.shape());
}

// What a body computes of the numbers that its gather reads.
struct OfNumbers {
  absl::flat_hash_set<const HloInstruction*> all;
  // Of them and constants alone, one by one.
  absl::flat_hash_set<const HloInstruction*> alone;
};

OfNumbers FindOfNumbers(const std::vector<HloInstruction*>& post_order,
                        const HloInstruction& gather) {
  OfNumbers found;
  for (const HloInstruction* each : post_order) {
    const bool is_gather = each == &gather;
    const auto is_in = [](const auto& set) {
      return [&set](const HloInstruction* operand) {
        return set.contains(operand);
      };
    };
    if (!is_gather && absl::c_none_of(each->operands(), is_in(found.all))) {
      continue;
    }
    found.all.insert(each);
    const bool is_alone =
        ((each->IsElementwise() && each->called_computations().empty()) ||
         each->opcode() == HloOpcode::kReshape) &&
        absl::c_all_of(each->operands(), [&](const HloInstruction* operand) {
          return found.alone.contains(operand) || IsOfConstant(*operand);
        });
    if (is_gather || is_alone) found.alone.insert(each);
  }
  return found;
}

// The last instruction of the numbers alone, if it is all that others read.
const HloInstruction* LastOfNumbers(const OfNumbers& of_numbers,
                                    const HloInstruction& gather) {
  const HloInstruction* read = nullptr;
  for (const HloInstruction* each : of_numbers.all) {
    if (of_numbers.alone.contains(each)) continue;
    for (const HloInstruction* operand : each->operands()) {
      if (!of_numbers.alone.contains(operand)) continue;
      if (read != nullptr && read != operand) return &gather;
      read = operand;
    }
  }
  return read != nullptr ? read : &gather;
}

// The numbers that the bounds may be after an iteration, by its decision.
std::optional<Bounds> After(const Search& search, Bounds bounds,
                            bool decision) {
  const HloInstruction& next =
      *search.found.loop->while_body()->root_instruction();
  Evaluation evaluation(search, bounds, decision);
  const std::optional<int64_t> low = evaluation.Of(*next.operand(search.low));
  const std::optional<int64_t> high = evaluation.Of(*next.operand(search.high));
  if (!low.has_value() || !high.has_value()) return std::nullopt;
  return Bounds{*low, *high};
}

std::optional<std::vector<std::vector<int64_t>>> PlacesOf(const Search& search,
                                                          Bounds initial) {
  const int64_t last = search.gather->operand(0)->shape().dimensions(0) - 1;
  std::vector<std::vector<int64_t>> places;
  std::vector<Bounds> all = {initial};
  const int64_t iterations = std::min(search.found.counted.trips, kSelecting);
  for (int64_t i = 0; i < iterations; ++i) {
    std::vector<int64_t> now;
    std::vector<Bounds> next;
    for (const Bounds& each : all) {
      const std::optional<int64_t> place =
          Evaluation(search, each, std::nullopt).Of(*search.gather->operand(1));
      const std::optional<Bounds> yes = After(search, each, true);
      const std::optional<Bounds> no = After(search, each, false);
      if (!place.has_value() || !yes.has_value() || !no.has_value()) {
        return std::nullopt;
      }
      now.push_back(std::clamp(*place, int64_t{0}, last));
      next.push_back(*yes);
      next.push_back(*no);
    }
    places.push_back(std::move(now));
    all = std::move(next);
  }
  return places;
}

// The only number of an array.
std::optional<int64_t> FilledWith(const HloInstruction& array) {
  if (array.opcode() != HloOpcode::kBroadcast || !IsInteger(array.shape())) {
    return std::nullopt;
  }
  return IntegerOf(*array.operand(0));
}

}  // namespace

std::optional<Search> FindSearch(const HloInstruction& last,
                                 RuleContext& context) {
  std::optional<FoundLoop> found = FoundLoopOf(last, context);
  if (!found.has_value() || found->counted.trips > kMaxIterations) {
    return std::nullopt;
  }
  const HloInstruction& loop = *found->loop;
  const HloComputation& body = *loop.while_body();
  if (body.instruction_count() > kMaxBodyInstructions) return std::nullopt;
  Search search{std::move(*found), -1, -1, nullptr, nullptr, nullptr, {}};
  const HloInstruction& next = *body.root_instruction();
  for (int64_t i = 0; i < next.operand_count(); ++i) {
    if (ElementOf(*next.operand(i)) == i || i == search.found.counted.index) {
      continue;
    }
    int64_t& bound = search.low < 0 ? search.low : search.high;
    if (bound >= 0) return std::nullopt;
    bound = i;
  }
  if (search.high < 0) return std::nullopt;
  const HloInstruction& low = *loop.operand(0)->operand(search.low);
  const HloInstruction& high = *loop.operand(0)->operand(search.high);
  const std::optional<int64_t> first = FilledWith(low);
  const std::optional<int64_t> second = FilledWith(high);
  if (!first.has_value() || !second.has_value() ||
      low.shape() != high.shape()) {
    return std::nullopt;
  }
  const std::vector<HloInstruction*> post_order =
      body.MakeInstructionPostOrder();
  for (const HloInstruction* each : post_order) {
    if (!IsRepeatable(*each)) return std::nullopt;
    if (each->opcode() != HloOpcode::kGather) continue;
    if (search.gather != nullptr) return std::nullopt;
    search.gather = each;
  }
  const int64_t table =
      search.gather == nullptr ? -1 : ElementOf(*search.gather->operand(0));
  // The table must stay as it is.
  if (table < 0 || ElementOf(*next.operand(table)) != table ||
      !IsLookup(*search.gather) ||
      xla::ShapeUtil::ElementsIn(search.gather->shape()) !=
          xla::ShapeUtil::ElementsIn(low.shape())) {
    return std::nullopt;
  }
  const OfNumbers of_numbers = FindOfNumbers(post_order, *search.gather);
  search.number = LastOfNumbers(of_numbers, *search.gather);
  for (const HloInstruction* each : post_order) {
    if (!of_numbers.all.contains(each) || of_numbers.alone.contains(each) ||
        each->shape().element_type() != xla::PRED ||
        !xla::ShapeUtil::SameDimensions(each->shape(), low.shape())) {
      continue;
    }
    search.decision = each;
    auto places = PlacesOf(search, {*first, *second});
    if (!places.has_value()) continue;
    search.places = std::move(*places);
    return search;
  }
  return std::nullopt;
}

}  // namespace hloenv
