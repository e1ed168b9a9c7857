// SPDX-License-Identifier: Apache-2.0
// Which computations run their steps in order.
#include "backend/thunk_order.h"

#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/service/call_graph.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// The same is proposed whatever the types of arrays are, as for other rewrites.
constexpr int64_t kElementBytes = 8;

// A step that the backend keeps as it is, so that a mark stays on it.
bool IsLasting(const HloInstruction& instruction) {
  return IsPlain(instruction) && !IsFree(instruction) &&
         instruction.opcode() != HloOpcode::kCopy &&
         instruction.operand_count() > 0 &&
         xla::GetInstructionCallContext(instruction.opcode()) !=
             xla::CallContext::kControlFlow;
}

const Rule& InOrderRule();
void ProposeInOrder(const HloInstruction& root, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  // One instruction stands for its computation: the last that lasts.
  if (!IsLasting(root)) return;
  const auto& order = context.post_order();
  const auto last =
      std::find_if(order.rbegin(), order.rend(),
                   [](const HloInstruction* each) { return IsLasting(*each); });
  if (last == order.rend() || *last != &root ||
      !RunsAsGraph(*root.parent(), kElementBytes) ||
      IsSequential(*root.parent())) {
    return;
  }
  Propose(
      InOrderRule(), root, {root.operands().begin(), root.operands().end()},
      [&root](absl::Span<HloInstruction* const> operands)
          -> absl::StatusOr<HloInstruction*> {
        HloInstruction* marked = CloneBeside(root, root.shape(), operands);
        MarkSequential(marked);
        return marked;
      },
      proposals);
}
const Rule& InOrderRule() {
  static constexpr Rule rule = {
      "in_order",
      "All steps of the computation that the instruction is in, one after the "
      "other.",
      &ProposeInOrder};
  return rule;
}

absl::Span<const Rule> ThunkOrderRules() {
  static const auto* rules = new std::vector<Rule>{InOrderRule()};
  return *rules;
}

}  // namespace

PassInfo ThunkOrderPass() {
  return RulePass(
      "thunk-order", "hloenv::ThunkOrder",
      "Proposes, for each computation of many steps, to run them one after the "
      "other in place of each as soon as it can, by whichever thread is free, "
      "as XLA's executor does on the CPU. The last instruction of the "
      "computation that makes an array stands for it. It belongs behind all "
      "passes that decide what a step is, before copies are inserted.",
      ThunkOrderRules(), [](const Options& options) {
        return MakeRulePass("thunk-order", ThunkOrderRules(), options);
      });
}

}  // namespace hloenv
