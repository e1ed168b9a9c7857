// SPDX-License-Identifier: Apache-2.0
// Proposes other layouts for dots, convolutions, transposes and reductions.
#include "backend/dot_lowering.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"
#include "xla/layout_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Layout;
using xla::Shape;
using Images = absl::Span<HloInstruction* const>;

// Above this rank, the number of all layouts is too large.
constexpr int64_t kMaxRankOfAll = 3;

bool IsArrayWithLayout(const Shape& shape) {
  return shape.IsArray() && shape.is_static() && shape.has_layout() &&
         shape.layout().tiles().empty() &&
         shape.layout().element_size_in_bits() == 0 &&
         shape.layout().memory_space() == 0 && RankOf(shape) >= 2;
}

// The other layouts of a shape: all of them up to rank 3; above that, one for
// each minor dimension. Omits layouts that differ only in the position of
// dimensions of size 1, which are the same in memory.
std::vector<Layout> OtherLayouts(const Shape& shape) {
  const int64_t rank = RankOf(shape);
  std::vector<std::vector<int64_t>> orders;
  std::vector<int64_t> order(rank);
  for (int64_t i = 0; i < rank; ++i) order[i] = i;
  if (rank <= kMaxRankOfAll) {
    do {
      orders.push_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
  } else {
    const absl::Span<const int64_t> now = shape.layout().minor_to_major();
    for (int64_t minor = 0; minor < rank; ++minor) {
      std::vector<int64_t> moved = {minor};
      for (int64_t d : now) {
        if (d != minor) moved.push_back(d);
      }
      orders.push_back(std::move(moved));
    }
  }
  const auto in_memory = [&shape](absl::Span<const int64_t> minor_to_major) {
    std::vector<int64_t> large;
    for (int64_t d : minor_to_major) {
      if (shape.dimensions(d) > 1) large.push_back(d);
    }
    return large;
  };
  std::vector<std::vector<int64_t>> seen = {
      in_memory(shape.layout().minor_to_major())};
  std::vector<Layout> layouts;
  for (const std::vector<int64_t>& each : orders) {
    std::vector<int64_t> key = in_memory(each);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
    seen.push_back(std::move(key));
    layouts.push_back(xla::LayoutUtil::MakeLayout(each));
  }
  return layouts;
}

// The backend requires the batch dimensions of a dot to be outermost, in
// operands and result.
bool KeepsBatchOutermost(const HloInstruction& instruction, int64_t operand,
                         const Layout& layout) {
  if (instruction.opcode() != HloOpcode::kDot) return true;
  const xla::DotDimensionNumbers& numbers = instruction.dot_dimension_numbers();
  const int64_t num_batch = numbers.lhs_batch_dimensions_size();
  const Layout& now = operand < 0
                          ? instruction.shape().layout()
                          : instruction.operand(operand)->shape().layout();
  const int64_t rank = layout.minor_to_major().size();
  for (int64_t i = rank - num_batch; i < rank; ++i) {
    if (layout.minor_to_major(i) != now.minor_to_major(i)) return false;
  }
  return true;
}

// The backend has a matrix product with other layouts than the default ones
// only for operands of the result's type, and writes thin products of batches
// as loops that are for row-major arrays.
bool HasOtherLayouts(const HloInstruction& dot) {
  const int64_t num_batch =
      dot.dot_dimension_numbers().lhs_batch_dimensions_size();
  for (const HloInstruction* operand : dot.operands()) {
    if (operand->shape().element_type() != dot.shape().element_type()) {
      return false;
    }
  }
  if (num_batch == 0) return true;
  for (const HloInstruction* array : {dot.operand(0), dot.operand(1), &dot}) {
    const absl::Span<const int64_t> sizes = array->shape().dimensions();
    for (int64_t size : sizes.subspan(num_batch)) {
      if (size <= kThin) return false;
    }
  }
  return true;
}

bool IsCandidate(const HloInstruction& instruction) {
  if (!IsArrayWithLayout(instruction.shape()) || instruction.HasSideEffect() ||
      instruction.HasControlDependencies() || instruction.has_sharding()) {
    return false;
  }
  switch (instruction.opcode()) {
    case HloOpcode::kDot:
      return HasOtherLayouts(instruction);
    case HloOpcode::kConvolution:
    case HloOpcode::kReduce:
    case HloOpcode::kTranspose:
      return true;
    default:
      return false;
  }
}

HloInstruction* Copy(HloInstruction* value, const Shape& shape) {
  return value->parent()->AddInstruction(
      HloInstruction::CreateUnary(shape, HloOpcode::kCopy, value));
}

std::vector<const HloInstruction*> Operands(const HloInstruction& of) {
  return {of.operands().begin(), of.operands().end()};
}

const Rule& ResultRule();
void ProposeResult(const HloInstruction& root, RuleContext&,
                   std::vector<Proposal>& proposals) {
  if (!IsCandidate(root)) return;
  for (const Layout& layout : OtherLayouts(root.shape())) {
    if (!KeepsBatchOutermost(root, /*operand=*/-1, layout)) continue;
    Propose(
        ResultRule(), root, Operands(root),
        [&root, layout](Images x) -> absl::StatusOr<HloInstruction*> {
          Shape shape = root.shape();
          *shape.mutable_layout() = layout;
          return Copy(CloneBeside(root, shape, x), root.shape());
        },
        proposals);
  }
}
const Rule& ResultRule() {
  static constexpr Rule rule = {
      "results",
      "Gives the result of a dot, convolution, transpose or reduce another "
      "layout and copies it to the original layout. The backend may add in "
      "another order.",
      &ProposeResult};
  return rule;
}

const Rule& OperandRule();
void ProposeOperand(const HloInstruction& root, RuleContext&,
                    std::vector<Proposal>& proposals) {
  if (!IsCandidate(root)) return;
  for (int64_t i = 0; i < root.operand_count(); ++i) {
    const Shape& operand = root.operand(i)->shape();
    if (!IsArrayWithLayout(operand)) continue;
    for (const Layout& layout : OtherLayouts(operand)) {
      if (!KeepsBatchOutermost(root, i, layout)) continue;
      Propose(
          OperandRule(), root, Operands(root),
          [&root, i, layout](Images x) -> absl::StatusOr<HloInstruction*> {
            std::vector<HloInstruction*> operands(x.begin(), x.end());
            Shape shape = operands[i]->shape();
            *shape.mutable_layout() = layout;
            operands[i] = Copy(operands[i], shape);
            return CloneBeside(root, root.shape(), operands);
          },
          proposals);
    }
  }
}
const Rule& OperandRule() {
  static constexpr Rule rule = {
      "operands",
      "Copies an operand of a dot, convolution, transpose or reduce to another "
      "layout. The backend may add in another order.",
      &ProposeOperand};
  return rule;
}

absl::Span<const Rule> LayoutRules() {
  static const auto* rules = new std::vector<Rule>{OperandRule(), ResultRule()};
  return *rules;
}

}  // namespace

PassInfo GeneralLayoutPass() {
  return RulePass(
      "general-layout", "hloenv::GeneralLayout",
      "Proposes other layouts for the operands and results of dots, "
      "convolutions, transposes and reductions: all layouts up to rank 3, "
      "above that one for each minor dimension. Run it after layout "
      "assignment, before fusion.",
      LayoutRules(), [](const Options& options) {
        return MakeRulePass("general-layout", LayoutRules(), options);
      });
}

}  // namespace hloenv
