// SPDX-License-Identifier: Apache-2.0
// Proposes sequential thunk execution for computations.
#include "backend/thunk_order.h"

#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"
#include "xla/service/call_graph.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// A fixed size, so that proposals do not depend on element types.
constexpr int64_t kElementBytes = 8;

// Whether the backend keeps `instruction` and thus a mark on it.
bool IsLasting(const HloInstruction& instruction) {
  return IsPlain(instruction) && !IsFree(instruction) &&
         instruction.opcode() != HloOpcode::kCopy &&
         instruction.operand_count() > 0 &&
         xla::GetInstructionCallContext(instruction.opcode()) !=
             xla::CallContext::kControlFlow;
}

const Rule& SequentialRule();
void ProposeSequential(const HloInstruction& root, RuleContext& context,
                       std::vector<Proposal>& proposals) {
  // The last lasting instruction represents its computation.
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
      SequentialRule(), root, {root.operands().begin(), root.operands().end()},
      [&root](absl::Span<HloInstruction* const> operands)
          -> absl::StatusOr<HloInstruction*> {
        HloInstruction* marked = CloneBeside(root, root.shape(), operands);
        MarkSequential(marked);
        return marked;
      },
      proposals);
}
const Rule& SequentialRule() {
  static constexpr Rule rule = {
      "in_order",
      "Runs the thunks of the instruction's computation sequentially.",
      &ProposeSequential};
  return rule;
}

absl::Span<const Rule> ThunkOrderRules() {
  static const auto* rules = new std::vector<Rule>{SequentialRule()};
  return *rules;
}

}  // namespace

PassInfo ThunkOrderPass() {
  return RulePass(
      "thunk-order", "hloenv::ThunkOrder",
      "Proposes, for each computation that XLA's ThunkExecutor would run "
      "concurrently as a dataflow graph, to run its thunks sequentially. The "
      "decision is at the last instruction of the computation that makes an "
      "array. Run it after all passes that create or remove thunks, before "
      "copy-insertion.",
      ThunkOrderRules(), [](const Options& options) {
        return MakeRulePass("thunk-order", ThunkOrderRules(), options);
      });
}

}  // namespace hloenv
