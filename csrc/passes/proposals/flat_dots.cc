// SPDX-License-Identifier: Apache-2.0
// Proposes one summed dimension for a dot that sums over several, as in the
// gradient of a layer with respect to its weights:
//
//   d = f32[64,36] dot(x, y), contracting {0,1} with {0,1}
//     x: f32[256,32,64]  y: f32[256,32,36]
//
// becomes
//
//   d = f32[64,36] dot(reshape(x), reshape(y)), contracting 0 with 0
//     f32[8192,64]  f32[8192,36]
//
// XLA transposes the operands of the former, and fuses that with what computes
// them: the kernel writes a column for each row, an element at a time.
#include <string>

#include "passes/proposals/dot_rules.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// The labels that are summed over, if they are next to each other and in the
// same order in both operands; empty otherwise.
std::string SummedRun(const LabelledDot& dot) {
  const size_t count = dot.summed.size();
  if (count < 2) return "";
  const size_t start = dot.left.find_first_of(dot.summed);
  const std::string run = dot.left.substr(start, count);
  const bool is_run = run.size() == count &&
                      run.find_first_not_of(dot.summed) == std::string::npos &&
                      dot.right.find(run) != std::string::npos;
  return is_run ? run : "";
}

void ProposeFlat(const HloInstruction& root, RuleContext& /*context*/,
                 std::vector<Proposal>& proposals) {
  if (!IsPlainDot(root)) return;
  const LabelledDot dot = LabelledDotOf(root);
  const std::string run = SummedRun(dot);
  if (run.empty()) return;
  // XLA multiplies [batch, free, summed] and [batch, summed, free].
  const size_t batch = root.dot_dimension_numbers().lhs_batch_dimensions_size();
  if (dot.left.find(run) == dot.left.size() - run.size() &&
      dot.right.find(run) == batch) {
    return;  // nothing is transposed
  }
  Propose(
      FlatRule(), root, {root.operand(0), root.operand(1)},
      [dot, run, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        const Accumulation accumulation = {root.shape().element_type(),
                                           root.precision_config()};
        const Labelled left = MergeLabels({x[0], dot.left}, run, run[0]);
        const Labelled right = MergeLabels({x[1], dot.right}, run, run[0]);
        return Ordered(DotOf(left, right, dot.result, accumulation), dot.result)
            .value;
      },
      proposals);
}

}  // namespace

const Rule& FlatRule() {
  static constexpr Rule rule = {
      "flat",
      "Merges the dimensions that a dot sums over, which are next to each "
      "other, into one: XLA would transpose its operands. Floats may round "
      "differently.",
      &ProposeFlat};
  return rule;
}

}  // namespace hloenv
