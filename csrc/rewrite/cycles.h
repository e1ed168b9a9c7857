// SPDX-License-Identifier: Apache-2.0
// Strongly connected components of the dependency graph of originals and new
// instructions.
//
//   module                       added edges
//   f2 = s32[] not(x)
//   u = s32[] negate(f2)         u -> f1: u may read f1 instead of f2
//   b = s32[] add(x, u)
//   f1 = s32[] not(b)
//
// Operands are edges too: f1 -> b -> u. So u, b and f1 are one component: if u
// reads f1, u depends on itself. Two values can depend on each other under some
// decisions only if they are in one component, because the edges of each
// decided module are a subset of those of the graph.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace hloenv {

class DependencyGraph {
 public:
  explicit DependencyGraph(int32_t num_nodes) : num_nodes_(num_nodes) {}

  // Declares that `user` may also read `node`, besides its own operands.
  void AddEdge(int32_t user, int32_t node) { extra_.emplace_back(user, node); }

  bool is_empty() const { return extra_.empty(); }

  // By node: the number of its cyclic component, -1 outside of cycles. Empty
  // when there is no cycle. `below` appends the operands of a node. Visits only
  // nodes reachable from the users of added edges, because every cycle contains
  // one of these.
  std::vector<int32_t> CyclicComponents(
      absl::FunctionRef<void(int32_t, std::vector<int32_t>*)> below);

 private:
  int32_t num_nodes_;
  std::vector<std::pair<int32_t, int32_t>> extra_;
};

}  // namespace hloenv
