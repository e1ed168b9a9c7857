// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/computed_terms.h"

#include "absl/algorithm/container.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/service/instruction_fusion.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

constexpr size_t kMaxOperations = 32;

// Whether a kernel of its own writes a value.
bool IsInMemory(const HloInstruction& value) {
  switch (value.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kReshape:
      return IsInMemory(*value.operand(0));
    case HloOpcode::kCall:
    case HloOpcode::kConstant:
    case HloOpcode::kConvolution:
    case HloOpcode::kCustomCall:
    case HloOpcode::kDot:
    case HloOpcode::kFft:
    case HloOpcode::kFusion:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kParameter:
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kRng:
    case HloOpcode::kScatter:
    case HloOpcode::kSort:
    case HloOpcode::kWhile:
      return true;
    default:
      return false;
  }
}

// Whether parts of arrays that are not in memory are among what an elementwise
// value is computed of.
bool ReadsComputedParts(const HloInstruction& value) {
  std::vector<const HloInstruction*> found = {&value};
  absl::flat_hash_set<const HloInstruction*> visited = {&value};
  for (size_t i = 0; i < found.size() && i < kMaxOperations; ++i) {
    for (const HloInstruction* operand : found[i]->operands()) {
      if (operand->opcode() == HloOpcode::kSlice) {
        if (!IsInMemory(*operand->operand(0))) return true;
      } else if (operand->IsElementwise() && visited.insert(operand).second) {
        found.push_back(operand);
      }
    }
  }
  return false;
}

}  // namespace

ComputedTerms::ComputedTerms(const HloInstruction& value,
                             const IsRepeated& is_repeated)
    : value_(value) {
  Collect(value, is_repeated);
}

bool ComputedTerms::is_read_once() const {
  return absl::c_all_of(inner_, [](const HloInstruction* each) {
    return each->user_count() == 1 && !each->IsRoot();
  });
}

bool ComputedTerms::IsInner(const HloInstruction& value) const {
  const bool is_again = value.user_count() > 1 || value.IsRoot();
  return RankOf(value.shape()) > 0 && value.IsElementwise() &&
         value.operand_count() > 0 && value.called_computations().empty() &&
         !value.HasSideEffect() &&
         !(is_again && (xla::InstructionFusion::IsExpensive(value) ||
                        ReadsComputedParts(value))) &&
         inner_.size() < kMaxOperations;
}

bool ComputedTerms::IsStatistic() const {
  return absl::c_all_of(inner_, [&](const HloInstruction* each) {
    switch (each->opcode()) {
      case HloOpcode::kAbs:
      case HloOpcode::kAdd:
      case HloOpcode::kConvert:
      case HloOpcode::kNegate:
      case HloOpcode::kSubtract:
        return true;
      case HloOpcode::kMultiply:
        return absl::c_none_of(each->operands(), [](const auto* operand) {
          return operand->opcode() == HloOpcode::kBroadcast &&
                 xla::ShapeUtil::ElementsIn(operand->operand(0)->shape()) > 1;
        });
      default:
        return false;
    }
  });
}

void ComputedTerms::Collect(const HloInstruction& value,
                            const IsRepeated& is_repeated) {
  if (inner_.contains(&value)) return;
  if (IsInner(value)) {
    inner_.insert(&value);
    for (const HloInstruction* operand : value.operands()) {
      Collect(*operand, is_repeated);
    }
    return;
  }
  const HloInstruction* leaf = &value;
  if (value.opcode() == HloOpcode::kBroadcast && is_repeated(value)) {
    leaf = value.operand(0);
    repeats_arrays_ |= xla::ShapeUtil::ElementsIn(leaf->shape()) > 1;
  } else {
    are_in_memory_ &= IsInMemory(value);
  }
  Place(*leaf);
}

size_t ComputedTerms::Place(const HloInstruction& number) {
  const auto found = absl::c_find(leaves_, &number);
  const size_t place = found - leaves_.begin();
  if (found == leaves_.end()) leaves_.push_back(&number);
  return place;
}

// Builds each value once.
class ComputedTerms::Builder {
 public:
  Builder(const ComputedTerms& terms, absl::Span<const int64_t> sizes,
          absl::Span<HloInstruction* const> x, const Repeat& repeat)
      : terms_(terms), sizes_(sizes), x_(x), repeat_(repeat) {}

  absl::StatusOr<HloInstruction*> Of(const HloInstruction& value) {
    const auto known = built_.find(&value);
    if (known != built_.end()) return known->second;
    HLOENV_ASSIGN_OR_RETURN(HloInstruction * result, New(value));
    return built_[&value] = result;
  }

 private:
  HloInstruction* ImageOf(const HloInstruction* leaf) const {
    return x_[absl::c_find(terms_.leaves_, leaf) - terms_.leaves_.begin()];
  }

  absl::StatusOr<HloInstruction*> New(const HloInstruction& value) {
    if (terms_.inner_.contains(&value)) {
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : value.operands()) {
        HLOENV_ASSIGN_OR_RETURN(operands.emplace_back(), Of(*operand));
      }
      return x_[0]->parent()->AddInstruction(value.CloneWithNewOperands(
          xla::ShapeUtil::MakeShape(value.shape().element_type(), sizes_),
          operands));
    }
    if (absl::c_linear_search(terms_.leaves_, &value)) {
      HloInstruction* leaf = ImageOf(&value);
      // A limit of `clamp`, or what `select` selects by.
      if (RankOf(value.shape()) == 0) return leaf;
      return xla::MakeReshapeHlo(sizes_, leaf);
    }
    return repeat_(value, ImageOf(value.operand(0)));
  }

  const ComputedTerms& terms_;
  absl::Span<const int64_t> sizes_;
  absl::Span<HloInstruction* const> x_;
  const Repeat& repeat_;
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> built_;
};

absl::StatusOr<HloInstruction*> ComputedTerms::Build(
    absl::Span<const int64_t> sizes, absl::Span<HloInstruction* const> x,
    const Repeat& repeat) const {
  return Builder(*this, sizes, x, repeat).Of(value_);
}

}  // namespace hloenv
