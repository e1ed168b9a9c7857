// SPDX-License-Identifier: Apache-2.0
// Proposes to merge dots and convolutions that share an operand, and to split
// them.
#include "backend/dot_lowering.h"
#include "google/protobuf/util/message_differencer.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"

namespace hloenv {
namespace {

using google::protobuf::util::MessageDifferencer;
using xla::HloInstruction;
using xla::HloOpcode;
using Images = absl::Span<HloInstruction* const>;

// Maximum distance in post order of users of one operand that are paired.
constexpr size_t kMaxDistance = 8;

// An operand of a dot or convolution, and a dimension that it shares with the
// result.
struct Side {
  int64_t operand;  // 0 or 1: the operand that may be sliced
  int64_t operand_dimension;
  int64_t result_dimension;
};

// The free dimensions of the operands of a dot, and the output feature
// dimension of the kernel of a convolution without groups.
std::vector<Side> SidesOf(const HloInstruction& instruction) {
  std::vector<Side> sides;
  if (!IsPlain(instruction) || instruction.operand_count() != 2 ||
      !IsPlain(*instruction.operand(0)) || !IsPlain(*instruction.operand(1))) {
    return sides;
  }
  if (instruction.opcode() == HloOpcode::kConvolution) {
    if (instruction.feature_group_count() == 1 &&
        instruction.batch_group_count() == 1) {
      const auto& numbers = instruction.convolution_dimension_numbers();
      sides.push_back({1, numbers.kernel_output_feature_dimension(),
                       numbers.output_feature_dimension()});
    }
    return sides;
  }
  if (instruction.opcode() != HloOpcode::kDot) return sides;
  const auto& numbers = instruction.dot_dimension_numbers();
  const auto free_dimensions = [](const HloInstruction& operand,
                                  const auto& batch, const auto& contracting) {
    std::vector<int64_t> result;
    for (int64_t d = 0; d < RankOf(operand.shape()); ++d) {
      if (!absl::c_linear_search(batch, d) &&
          !absl::c_linear_search(contracting, d)) {
        result.push_back(d);
      }
    }
    return result;
  };
  const std::vector<int64_t> left =
      free_dimensions(*instruction.operand(0), numbers.lhs_batch_dimensions(),
                      numbers.lhs_contracting_dimensions());
  const std::vector<int64_t> right =
      free_dimensions(*instruction.operand(1), numbers.rhs_batch_dimensions(),
                      numbers.rhs_contracting_dimensions());
  const int64_t num_batch = numbers.lhs_batch_dimensions_size();
  const auto num_left = static_cast<int64_t>(left.size());
  for (int64_t i = 0; i < num_left; ++i) {
    sides.push_back({0, left[i], num_batch + i});
  }
  for (size_t i = 0; i < right.size(); ++i) {
    sides.push_back(
        {1, right[i], num_batch + num_left + static_cast<int64_t>(i)});
  }
  return sides;
}

// Adds a clone of `original` with `cut` as the operand at `side`.
absl::StatusOr<HloInstruction*> With(const HloInstruction& original,
                                     const Side& side, HloInstruction* cut,
                                     HloInstruction* other) {
  xla::Shape shape = original.shape();
  shape.set_dimensions(side.result_dimension,
                       cut->shape().dimensions(side.operand_dimension));
  HloInstruction* operands[2] = {other, other};
  operands[side.operand] = cut;
  HloInstruction* result = cut->parent()->AddInstruction(
      original.CloneWithNewOperands(shape, operands));
  ClearMark(result);
  return result;
}

bool SameFunction(const HloInstruction& a, const HloInstruction& b) {
  if (a.opcode() != b.opcode() ||
      a.shape().element_type() != b.shape().element_type() ||
      !MessageDifferencer::Equals(a.precision_config(), b.precision_config())) {
    return false;
  }
  if (a.opcode() == HloOpcode::kDot) {
    return MessageDifferencer::Equals(a.dot_dimension_numbers(),
                                      b.dot_dimension_numbers());
  }
  return MessageDifferencer::Equals(a.convolution_dimension_numbers(),
                                    b.convolution_dimension_numbers()) &&
         MessageDifferencer::Equals(a.window(), b.window());
}

// Whether two operands can be concatenated along `dimension`.
bool FitTogether(const HloInstruction& a, const HloInstruction& b,
                 int64_t dimension) {
  if (a.shape().element_type() != b.shape().element_type() ||
      RankOf(a.shape()) != RankOf(b.shape())) {
    return false;
  }
  for (int64_t d = 0; d < RankOf(a.shape()); ++d) {
    if (d != dimension && a.shape().dimensions(d) != b.shape().dimensions(d)) {
      return false;
    }
  }
  return true;
}

const Rule& MergeRule();
void ProposeMerge(const HloInstruction& last, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  for (const Side& side : SidesOf(last)) {
    const HloInstruction* shared = last.operand(1 - side.operand);
    for (const HloInstruction* before :
         context.UsersBefore(*shared, last, kMaxDistance)) {
      const HloInstruction& first = *before;
      const std::vector<Side> sides = SidesOf(first);
      const bool has_side = absl::c_any_of(sides, [&](const Side& other) {
        return other.operand == side.operand &&
               other.operand_dimension == side.operand_dimension;
      });
      if (!has_side || first.operand(1 - side.operand) != shared ||
          !SameFunction(first, last) ||
          first.operand(side.operand) == last.operand(side.operand) ||
          !FitTogether(*first.operand(side.operand),
                       *last.operand(side.operand), side.operand_dimension) ||
          context.Reaches(first, last)) {
        continue;
      }
      ProposeMany(
          MergeRule(), {&last, &first},
          {shared, first.operand(side.operand), last.operand(side.operand)},
          [&last,
           side](Images x) -> absl::StatusOr<std::vector<HloInstruction*>> {
            HLOENV_ASSIGN_OR_RETURN(
                HloInstruction * both,
                xla::MakeConcatHlo({x[1], x[2]}, side.operand_dimension));
            HLOENV_ASSIGN_OR_RETURN(HloInstruction * whole,
                                    With(last, side, both, x[0]));
            const int64_t middle =
                x[1]->shape().dimensions(side.operand_dimension);
            HLOENV_ASSIGN_OR_RETURN(
                HloInstruction * left,
                SliceAlong(whole, side.result_dimension, 0, middle));
            HLOENV_ASSIGN_OR_RETURN(
                HloInstruction * right,
                SliceAlong(whole, side.result_dimension, middle,
                           both->shape().dimensions(side.operand_dimension)));
            return std::vector<HloInstruction*>{right, left};
          },
          proposals);
    }
  }
}
const Rule& MergeRule() {
  static constexpr Rule rule = {
      "merge",
      "Rewrites two dots or convolutions with a shared operand and equal "
      "attributes as slices of one dot or convolution of the concatenation of "
      "the other operands. Each element is the same sum; the backend may add "
      "in another order.",
      &ProposeMerge};
  return rule;
}

const Rule& SplitRule();
void ProposeSplit(const HloInstruction& root, RuleContext&,
                  std::vector<Proposal>& proposals) {
  for (const Side& side : SidesOf(root)) {
    const HloInstruction* joined = root.operand(side.operand);
    if (joined->opcode() != HloOpcode::kConcatenate ||
        joined->concatenate_dimension() != side.operand_dimension ||
        joined->operand_count() < 2 || root.operand(0) == root.operand(1)) {
      continue;
    }
    std::vector<const HloInstruction*> reads = {root.operand(1 - side.operand)};
    reads.insert(reads.end(), joined->operands().begin(),
                 joined->operands().end());
    Propose(
        SplitRule(), root, std::move(reads),
        [&root, side](Images x) -> absl::StatusOr<HloInstruction*> {
          std::vector<HloInstruction*> parts;
          for (size_t i = 1; i < x.size(); ++i) {
            HLOENV_ASSIGN_OR_RETURN(HloInstruction * part,
                                    With(root, side, x[i], x[0]));
            parts.push_back(part);
          }
          return xla::MakeConcatHlo(parts, side.result_dimension);
        },
        proposals);
  }
}
const Rule& SplitRule() {
  static constexpr Rule rule = {
      "split",
      "Rewrites a dot or convolution of a concatenation as the concatenation "
      "of dots or convolutions of its parts. Each element is the same sum.",
      &ProposeSplit};
  return rule;
}

const Rule& SliceRule();
void ProposeSlice(const HloInstruction& root, RuleContext&,
                  std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kSlice || !IsPlain(root)) return;
  const HloInstruction* whole = root.operand(0);
  for (const Side& side : SidesOf(*whole)) {
    const int64_t cut = side.result_dimension;
    bool cuts_only_there = whole->operand(0) != whole->operand(1);
    for (int64_t d = 0; d < RankOf(root.shape()); ++d) {
      cuts_only_there &=
          d == cut ? root.slice_strides(d) == 1
                   : root.shape().dimensions(d) == whole->shape().dimensions(d);
    }
    if (!cuts_only_there ||
        root.shape().dimensions(cut) == whole->shape().dimensions(cut)) {
      continue;
    }
    Propose(
        SliceRule(), root, {whole->operand(0), whole->operand(1)},
        [&root, whole, side, cut](Images x) -> absl::StatusOr<HloInstruction*> {
          HLOENV_ASSIGN_OR_RETURN(
              HloInstruction * part,
              SliceAlong(x[side.operand], side.operand_dimension,
                         root.slice_starts(cut), root.slice_limits(cut)));
          return With(*whole, side, part, x[1 - side.operand]);
        },
        proposals);
  }
}
const Rule& SliceRule() {
  static constexpr Rule rule = {
      "slice",
      "Rewrites a slice of a dot or convolution as a dot or convolution of a "
      "slice, even if the original has other users. Each element is the same "
      "sum.",
      &ProposeSlice};
  return rule;
}

absl::Span<const Rule> MergeDotsRules() {
  static const auto* rules =
      new std::vector<Rule>{MergeRule(), SliceRule(), SplitRule()};
  return *rules;
}

}  // namespace

PassInfo MergeDotsPass() {
  return RulePass(
      "merge-dots", "hloenv::MergeDots",
      "Proposes to merge dots and convolutions that share an operand, and to "
      "split them. Run it before layout assignment.",
      MergeDotsRules(), [](const Options& options) {
        return MakeRulePass("merge-dots", MergeDotsRules(), options);
      });
}

}  // namespace hloenv
