// SPDX-License-Identifier: Apache-2.0
#include "hlo/order.h"

namespace hloenv {

using xla::HloComputation;

std::vector<HloComputation*> CalleesFirst(const xla::HloModule& module) {
  std::vector<HloComputation*> order = module.MakeComputationPostOrder();
  absl::flat_hash_set<const HloComputation*> done;
  const auto is_done = [&done](const auto& callee) {
    return done.contains(callee.first);
  };
  bool is_right = true;
  for (const HloComputation* computation : order) {
    is_right &= absl::c_all_of(computation->callee_computations(), is_done);
    done.insert(computation);
  }
  if (is_right) return order;
  done.clear();
  std::vector<HloComputation*> result;
  std::vector<HloComputation*> stack;
  for (HloComputation* start : order) {
    stack.push_back(start);
    while (!stack.empty()) {
      HloComputation* top = stack.back();
      const size_t depth = stack.size();
      if (!done.contains(top)) {
        for (const auto& [callee, count] : top->callee_computations()) {
          if (!done.contains(callee)) stack.push_back(callee);
        }
      }
      if (stack.size() != depth) continue;
      stack.pop_back();
      if (done.insert(top).second) result.push_back(top);
    }
  }
  return result;
}

}  // namespace hloenv
