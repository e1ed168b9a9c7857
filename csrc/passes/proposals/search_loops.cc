// SPDX-License-Identifier: Apache-2.0
// Proposes binary searches, which XLA's CPU backend runs as a loop over
// arrays in memory with a gather in each iteration, as one kernel. The first
// iterations read no table: which number one compares with depends on what the
// comparisons before it have found, so that it is selected by these. Of a table
// of three numbers,
//
//   r = while(i = 0, low = 0, high = 3), i < 2:
//     middle = low + (high - low) / 2
//     c = x <= table[middle]
//     (i + 1, select(c, low, middle), select(c, middle, high))
//
// becomes, where all that is known of low and high is worked out here,
//
//   c0 = x <= table[1]
//   c1 = x <= select(c0, table[0], table[2])
//   r = ...
//
// What the table contains, and whether it is sorted, does not matter.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "passes/proposals/loop_rules.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/sort_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/primitive_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Iterations that select what they compare with: 2^k - 1 numbers; and those of
// the longest search. Gathers of more numbers wait for the cache, and are
// slower in one kernel.
constexpr int64_t kSelecting = 6;
constexpr int64_t kMaxIterations = 10;
constexpr int64_t kMaxBodyInstructions = 64;

bool IsInteger(const xla::Shape& shape) {
  return xla::primitive_util::IsIntegralType(shape.element_type());
}

// A binary search.
struct Search {
  FoundLoop found;
  // Elements of the state: the two bounds, which are arrays of one shape.
  int64_t low;
  int64_t high;
  const HloInstruction* gather;
  // What is computed of the table's numbers alone: the last such instruction.
  const HloInstruction* number;
  const HloInstruction* decision;  // the comparison
  // Of each iteration that selects, the places in the table, in the order of
  // the decisions before: the first half is for a first one that is true.
  std::vector<std::vector<int64_t>> places;
};

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
    constexpr int64_t kMost = int64_t{1} << 40;
    if (value < -kMost || value > kMost) return false;
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

bool IsOfConstant(const HloInstruction& instruction) {
  const HloInstruction& number = instruction.opcode() == HloOpcode::kBroadcast
                                     ? *instruction.operand(0)
                                     : instruction;
  return number.opcode() == HloOpcode::kConstant &&
         xla::ShapeUtil::IsScalar(number.shape());
}

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

// Adds the iterations of a search to the computation of the state.
class Iterations {
 public:
  Iterations(const Search& search, std::vector<HloInstruction*> state)
      : search_(search),
        state_(std::move(state)),
        computation_(state_.front()->parent()) {}

  absl::StatusOr<std::vector<HloInstruction*>> Build() {
    HLOENV_ASSIGN_OR_RETURN(HloInstruction * numbers, Numbers());
    const HloInstruction& next = *Body().root_instruction();
    std::vector<HloInstruction*> decisions;
    for (int64_t i = 0; i < search_.found.counted.trips; ++i) {
      images_.clear();
      if (i < static_cast<int64_t>(search_.places.size())) {
        HLOENV_ASSIGN_OR_RETURN(
            HloInstruction * number,
            Selected(*numbers, search_.places[i], decisions));
        images_[search_.number] = number;
      }
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * decision,
                              Image(*search_.decision));
      decisions.push_back(decision);
      std::vector<HloInstruction*> after = state_;
      for (const int64_t bound : {search_.low, search_.high}) {
        HLOENV_ASSIGN_OR_RETURN(after[bound], Image(*next.operand(bound)));
      }
      HLOENV_ASSIGN_OR_RETURN(
          after[search_.found.counted.index],
          Image(*next.operand(search_.found.counted.index)));
      state_ = std::move(after);
    }
    return state_;
  }

 private:
  const HloComputation& Body() const {
    return *search_.found.loop->while_body();
  }

  // What an iteration makes of an instruction of the body.
  absl::StatusOr<HloInstruction*> Image(const HloInstruction& instruction) {
    if (const int64_t element = ElementOf(instruction); element >= 0) {
      return state_[element];
    }
    if (const auto found = images_.find(&instruction); found != images_.end()) {
      return found->second;
    }
    HloInstruction* image = nullptr;
    if (instruction.operand_count() == 0) {
      image = computation_->AddInstruction(instruction.Clone());
    } else {
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : instruction.operands()) {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * each, Image(*operand));
        operands.push_back(each);
      }
      image = CloneBeside(instruction, instruction.shape(), operands);
    }
    images_[&instruction] = image;
    return image;
  }

  // What the body computes of the numbers alone, of all of the table.
  absl::StatusOr<HloInstruction*> Numbers() {
    HloInstruction* table = state_[ElementOf(*search_.gather->operand(0))];
    absl::flat_hash_map<const HloInstruction*, HloInstruction*> images = {
        {search_.gather, table}};
    return OverTable(*search_.number, *table, images);
  }

  absl::StatusOr<HloInstruction*> OverTable(
      const HloInstruction& instruction, const HloInstruction& table,
      absl::flat_hash_map<const HloInstruction*, HloInstruction*>& images) {
    if (const auto found = images.find(&instruction); found != images.end()) {
      return found->second;
    }
    const xla::Shape shape = xla::ShapeUtil::ChangeElementType(
        table.shape(), instruction.shape().element_type());
    HloInstruction* image = nullptr;
    if (IsOfConstant(instruction)) {
      const bool is_scalar = instruction.opcode() == HloOpcode::kConstant;
      HloInstruction* scalar = computation_->AddInstruction(
          (is_scalar ? instruction : *instruction.operand(0)).Clone());
      image = computation_->AddInstruction(
          HloInstruction::CreateBroadcast(shape, scalar, {}));
    } else {
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : instruction.operands()) {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * each,
                                OverTable(*operand, table, images));
        operands.push_back(each);
      }
      image = instruction.opcode() == HloOpcode::kReshape
                  ? operands.front()
                  : CloneBeside(instruction, shape, operands);
    }
    images[&instruction] = image;
    return image;
  }

  // Those of the numbers at `places` that the decisions before lead to.
  absl::StatusOr<HloInstruction*> Selected(
      const HloInstruction& numbers, const std::vector<int64_t>& places,
      const std::vector<HloInstruction*>& decisions) {
    const xla::Shape& bounds = state_[search_.low]->shape();
    const xla::Shape shape = xla::ShapeUtil::ChangeElementType(
        bounds, numbers.shape().element_type());
    std::vector<HloInstruction*> values;
    for (const int64_t place : places) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * part,
                              SliceAlong(const_cast<HloInstruction*>(&numbers),
                                         0, place, place + 1));
      HLOENV_ASSIGN_OR_RETURN(
          HloInstruction * scalar,
          xla::MakeReshapeHlo(std::vector<int64_t>(), part));
      values.push_back(computation_->AddInstruction(
          HloInstruction::CreateBroadcast(shape, scalar, {})));
    }
    for (size_t i = decisions.size(); i > 0; --i) {
      std::vector<HloInstruction*> selected;
      for (size_t j = 0; j < values.size(); j += 2) {
        selected.push_back(
            computation_->AddInstruction(HloInstruction::CreateTernary(
                shape, HloOpcode::kSelect, decisions[i - 1], values[j],
                values[j + 1])));
      }
      values = std::move(selected);
    }
    const xla::Shape& read = search_.number->shape();
    if (xla::ShapeUtil::SameDimensions(read, shape)) return values.front();
    return xla::MakeReshapeHlo(read.dimensions(), values.front());
  }

  const Search& search_;
  std::vector<HloInstruction*> state_;
  HloComputation* const computation_;
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> images_;
};

absl::StatusOr<std::vector<HloInstruction*>> BuildSearch(
    const Search& search, const std::vector<int64_t>& given,
    absl::Span<HloInstruction* const> x) {
  const HloInstruction& initial = *search.found.loop->operand(0);
  return AllInOwnKernels(
      x,
      [&](absl::Span<HloInstruction* const> parameters)
          -> absl::StatusOr<std::vector<HloInstruction*>> {
        HloComputation* computation = parameters.front()->parent();
        std::vector<HloInstruction*> state;
        for (int64_t i = 0; i < initial.operand_count(); ++i) {
          const HloInstruction& each = *initial.operand(i);
          if (given[i] >= 0) {
            state.push_back(parameters[given[i]]);
          } else if (each.opcode() == HloOpcode::kConstant) {
            state.push_back(computation->AddInstruction(each.Clone()));
          } else {
            HloInstruction* number =
                computation->AddInstruction(each.operand(0)->Clone());
            state.push_back(CloneBeside(each, each.shape(), {number}));
          }
        }
        HLOENV_ASSIGN_OR_RETURN(state, Iterations(search, state).Build());
        std::vector<HloInstruction*> results;
        for (const HloInstruction* each : search.found.originals) {
          results.push_back(state[each->tuple_index()]);
        }
        return results;
      });
}

void ProposeSearch(const HloInstruction& last, RuleContext& context,
                   std::vector<Proposal>& proposals) {
  std::optional<Search> search = FindSearch(last, context);
  if (!search.has_value()) return;
  const HloInstruction& initial = *search->found.loop->operand(0);
  // What the kernel reads, each once; -1 for what it contains.
  std::vector<const HloInstruction*> reads;
  std::vector<int64_t> given;
  for (int64_t i = 0; i < initial.operand_count(); ++i) {
    if (i == search->low || i == search->high ||
        i == search->found.counted.index) {
      given.push_back(-1);
      continue;
    }
    const auto place = absl::c_find(reads, initial.operand(i));
    given.push_back(place - reads.begin());
    if (place == reads.end()) reads.push_back(initial.operand(i));
  }
  const std::vector<const HloInstruction*> originals = search->found.originals;
  ProposeMany(
      SearchRule(), originals, reads,
      [search = std::move(*search),
       given = std::move(given)](absl::Span<HloInstruction* const> x) {
        return BuildSearch(search, given, x);
      },
      proposals);
}

}  // namespace

const Rule& SearchRule() {
  static constexpr Rule rule = {
      "search",
      "Rewrites a loop of up to ten iterations, each of which reads one number "
      "of a table and by it changes two bounds, as in a binary search, as one "
      "kernel, whose first six iterations select the number in place of "
      "reading it. Exact.",
      &ProposeSearch};
  return rule;
}

}  // namespace hloenv
