// SPDX-License-Identifier: Apache-2.0
#include "rewrite/use.h"

#include "hlo/analysis.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

std::vector<Use> UsesOf(const Analysis& analysis, int32_t original) {
  const HloInstruction* instruction = analysis.index.at(original);
  const HloComputation* computation = instruction->parent();
  const int32_t number = analysis.index.NumberOf(computation);
  const int32_t first = analysis.index.First(computation);
  std::vector<Use> uses;
  if (computation->root_instruction() == instruction) {
    uses.push_back({number, Use::kRoot, 0});
  }
  for (const HloInstruction* user : instruction->users()) {
    const int32_t u = first + user->local_id();
    if (analysis.is_live[u] == 0) continue;
    for (int64_t k = 0; k < user->operand_count(); ++k) {
      if (user->operand(k) == instruction) {
        uses.push_back({number, u, static_cast<int32_t>(k)});
      }
    }
  }
  std::sort(uses.begin(), uses.end());
  return uses;
}

}  // namespace hloenv
