// SPDX-License-Identifier: Apache-2.0
// Proposes tiled LLVM IR instead of Eigen calls for dots on the CPU.
#include "backend/dot_lowering.h"

#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/layout_util.h"
#include "xla/service/hlo_creation_utils.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using Images = absl::Span<HloInstruction* const>;

// `value` with its last two dimensions swapped, also in memory.
absl::StatusOr<HloInstruction*> Transposed(HloInstruction* value) {
  const int64_t rank = RankOf(value->shape());
  std::vector<int64_t> order(rank);
  for (int64_t i = 0; i < rank; ++i) order[i] = i;
  std::swap(order[rank - 2], order[rank - 1]);
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * transposed,
                          xla::MakeTransposeHlo(value, order));
  xla::LayoutUtil::SetToDefaultLayout(transposed->mutable_shape());
  return transposed;
}

// The number of scalar products in one matrix product; 0 if `dot` is not a
// matrix product.
int64_t NumProducts(const HloInstruction& dot) {
  if (dot.opcode() != xla::HloOpcode::kDot || !dot.shape().IsArray() ||
      RankOf(dot.shape()) < 2 ||
      dot.dot_dimension_numbers().lhs_contracting_dimensions_size() != 1) {
    return 0;
  }
  const int64_t rank = RankOf(dot.shape());
  const int64_t contracted =
      dot.dot_dimension_numbers().lhs_contracting_dimensions(0);
  return dot.shape().dimensions(rank - 2) * dot.shape().dimensions(rank - 1) *
         dot.operand(0)->shape().dimensions(contracted);
}

const Rule& LoopsRule();
void ProposeLoops(const HloInstruction& root, RuleContext&,
                  std::vector<Proposal>& proposals) {
  if (!IsPlain(root) || LoopsForDot(root) != LoopsFor::kAsIs) return;
  Propose(
      LoopsRule(), root, {root.operand(0), root.operand(1)},
      [&root](Images x) -> absl::StatusOr<HloInstruction*> {
        HloInstruction* dot = x[0]->parent()->AddInstruction(
            root.CloneWithNewOperands(root.shape(), {x.front(), x.back()}));
        MarkForLoops(dot);
        return dot;
      },
      proposals);
}
const Rule& LoopsRule() {
  static constexpr Rule rule = {
      "loops",
      "Lowers a small dot of row-major matrices to tiled LLVM IR. Each element "
      "is the same sum, added in another order.",
      &ProposeLoops};
  return rule;
}

const Rule& TransposedRule();
void ProposeTransposed(const HloInstruction& root, RuleContext&,
                       std::vector<Proposal>& proposals) {
  if (!IsPlain(root) || LoopsForDot(root) != LoopsFor::kTransposed) return;
  Propose(
      TransposedRule(), root, {root.operand(0), root.operand(1)},
      [&root](Images x) -> absl::StatusOr<HloInstruction*> {
        HloInstruction* operands[2] = {x.front(), x.back()};
        xla::DotDimensionNumbers numbers = root.dot_dimension_numbers();
        const int64_t num_batch = numbers.lhs_batch_dimensions_size();
        numbers.set_lhs_contracting_dimensions(0, num_batch + 1);
        numbers.set_rhs_contracting_dimensions(0, num_batch);
        for (int64_t i : {0, 1}) {
          if (!HasToBeTransposed(root, i)) continue;
          HLOENV_ASSIGN_OR_RETURN(operands[i], Transposed(operands[i]));
        }
        HloInstruction* dot = x[0]->parent()->AddInstruction(
            HloInstruction::CreateDot(root.shape(), operands[0], operands[1],
                                      numbers, root.precision_config()));
        MarkForLoops(dot);
        return dot;
      },
      proposals);
}
const Rule& TransposedRule() {
  static constexpr Rule rule = {
      "transposed",
      "As loops, for a dot whose contracted dimension is not the last of the "
      "first operand or not the first of the second: transposes these "
      "operands first.",
      &ProposeTransposed};
  return rule;
}

absl::Span<const Rule> DotLoweringRules() {
  static const auto* rules =
      new std::vector<Rule>{LoopsRule(), TransposedRule()};
  return *rules;
}

}  // namespace

PassInfo DotLoweringPass() {
  PassInfo pass = RulePass(
      "dot-lowering", "hloenv::DotLowering",
      "Proposes, for each small matrix product, tiled LLVM IR instead of the "
      "Eigen call that XLA uses on the CPU. (xla_cpu_multi_thread_eigen "
      "decides this for all dots of a module.) Run it after layout assignment, "
      "before fusion.",
      DotLoweringRules(), [](const Options& options) {
        const int64_t limit = options.Int("max_products");
        return MakeRulePass("dot-lowering", DotLoweringRules(), options,
                            [limit](const HloInstruction& instruction) {
                              return limit == 0 ||
                                     NumProducts(instruction) <= limit;
                            });
      });
  pass.options.insert(
      pass.options.begin() + 1,  // by name
      {.name = "max_products",
       .default_value = int64_t{0},
       .doc = "Maximum number of scalar products in one matrix product, "
              "without batch dimensions; 0 applies only XLA's own limits.",
       .minimum = 0});
  return pass;
}

}  // namespace hloenv
