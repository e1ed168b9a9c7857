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
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "passes/proposals/found_search.h"
#include "passes/proposals/fusion_rules.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/sort_rules.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

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
