// SPDX-License-Identifier: Apache-2.0
// Strongly connected parts of "reads" over originals and new instructions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace hloenv {

class DependencyGraph {
 public:
  explicit DependencyGraph(int32_t num_nodes) : num_nodes_(num_nodes) {}

  // `user` may read `node`, besides what it reads by nature.
  void AddEdge(int32_t user, int32_t node) { extra_.emplace_back(user, node); }

  bool is_empty() const { return extra_.empty(); }

  // By node: the number of its cyclic component, -1 outside of cycles. Empty
  // when there is no cycle. `below` appends what a node reads by nature. Visits
  // only what the added edges' users reach: a cycle needs one of them.
  std::vector<int32_t> CyclicComponents(
      absl::FunctionRef<void(int32_t, std::vector<int32_t>*)> below);

 private:
  int32_t num_nodes_;
  std::vector<std::pair<int32_t, int32_t>> extra_;
};

}  // namespace hloenv
