// SPDX-License-Identifier: Apache-2.0
#include "hlo/analysis.h"

#include "hlo/order.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Marks what the roots of one computation reach.
void MarkLive(const HloComputation& computation, const InstructionIndex& index,
              absl::Span<const HloInstruction* const> roots,
              std::vector<uint8_t>* is_live) {
  const int32_t first = index.First(&computation);
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

Analysis::Analysis(const xla::HloModule& module) : hlo(module), index(module) {
  is_live.assign(index.size(), 0);
  is_live_computation.assign(index.computations().size(), 0);
  has_extras.assign(index.size(), 0);

  const auto computations = CalleesFirst(module);
  std::vector<uint8_t> has_effect(index.computations().size(), 0);
  std::vector<std::vector<int32_t>> effects_of(index.computations().size());
  for (const HloComputation* computation : computations) {
    const int32_t number = index.NumberOf(computation);
    const int32_t first = index.First(computation);
    for (const HloInstruction* instruction : computation->instructions()) {
      has_extras[first + instruction->local_id()] =
          static_cast<uint8_t>(HasExtras(*instruction));
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

  is_live_computation[index.NumberOf(module.entry_computation())] = 1;
  for (auto it = computations.rbegin(); it != computations.rend(); ++it) {
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
      MarkLive(*computation, index, roots, &is_live);
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
  for (const HloComputation* computation : computations) {
    const int32_t number = index.NumberOf(computation);
    if (is_live_computation[number] != 0) post_order.push_back(number);
  }
}

bool HasExtras(const HloInstruction& instruction) {
  return instruction.has_sharding() || instruction.has_frontend_attributes() ||
         instruction.has_result_accuracy() || instruction.has_backend_config();
}

}  // namespace hloenv
