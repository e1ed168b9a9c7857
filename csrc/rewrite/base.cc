// SPDX-License-Identifier: Apache-2.0
#include "rewrite/base.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Marks what the roots of one computation reach.
void MarkLive(const HloComputation& computation, const Base& base,
              absl::Span<const HloInstruction* const> roots,
              std::vector<uint8_t>* is_live) {
  const int32_t first = base.index.First(&computation);
  std::vector<const HloInstruction*> stack(roots.begin(), roots.end());
  for (const HloInstruction* root : roots) {
    (*is_live)[first + root->local_id()] = 1;
  }
  const auto visit = [&](const HloInstruction* instruction) {
    uint8_t& mark = (*is_live)[first + instruction->local_id()];
    if (mark == 0) {
      mark = 1;
      stack.push_back(instruction);
    }
  };
  while (!stack.empty()) {
    const HloInstruction* top = stack.back();
    stack.pop_back();
    for (const HloInstruction* operand : top->operands()) visit(operand);
    for (const HloInstruction* before : top->control_predecessors()) {
      visit(before);
    }
  }
}

}  // namespace

Base::Base(Module m) : module(std::move(m)), index(module.hlo()) {
  is_live.assign(index.size(), 0);
  is_live_computation.assign(index.computations().size(), 0);

  // Callees come before callers in post order.
  const auto post_order = module.hlo().MakeComputationPostOrder();
  std::vector<uint8_t> has_effect(index.computations().size(), 0);
  std::vector<std::vector<int32_t>> effects_of(index.computations().size());
  for (const HloComputation* computation : post_order) {
    const int32_t number = index.NumberOf(computation);
    const int32_t first = index.First(computation);
    for (const HloInstruction* instruction : computation->instructions()) {
      bool effect = instruction->HasSideEffectNoRecurse();
      for (const HloComputation* called : instruction->called_computations()) {
        effect = effect || has_effect[index.NumberOf(called)] != 0;
      }
      if (effect) {
        has_effect[number] = 1;
        effects_of[number].push_back(first + instruction->local_id());
      }
    }
  }

  is_live_computation[index.NumberOf(module.hlo().entry_computation())] = 1;
  for (auto it = post_order.rbegin(); it != post_order.rend(); ++it) {
    const HloComputation* computation = *it;
    const int32_t number = index.NumberOf(computation);
    if (is_live_computation[number] == 0) continue;
    std::vector<const HloInstruction*> roots = {
        computation->root_instruction()};
    bool has_dead_end = false;
    for (int32_t effect : effects_of[number]) roots.push_back(index.at(effect));
    for (const HloInstruction* parameter :
         computation->parameter_instructions()) {
      roots.push_back(parameter);
    }
    const int32_t first = index.First(computation);
    for (const HloInstruction* instruction : computation->instructions()) {
      if (instruction->user_count() == 0 &&
          instruction != computation->root_instruction() &&
          instruction->opcode() != xla::HloOpcode::kParameter) {
        has_dead_end = true;
      }
      is_live[first + instruction->local_id()] = 1;
    }
    if (has_dead_end) {
      for (const HloInstruction* instruction : computation->instructions()) {
        is_live[first + instruction->local_id()] = 0;
      }
      MarkLive(*computation, *this, roots, &is_live);
    }
    for (const HloInstruction* instruction : computation->instructions()) {
      if (is_live[first + instruction->local_id()] == 0) continue;
      for (const HloComputation* called : instruction->called_computations()) {
        is_live_computation[index.NumberOf(called)] = 1;
      }
    }
    for (int32_t effect : effects_of[number]) effects.push_back(effect);
  }
  std::sort(effects.begin(), effects.end());
}

}  // namespace hloenv
