// SPDX-License-Identifier: Apache-2.0
#include "rewrite/cycles.h"

#include <algorithm>

namespace hloenv {

// Tarjan's algorithm, without recursion because graphs can be very deep.
std::vector<int32_t> DependencyGraph::CyclicComponents(
    absl::FunctionRef<void(int32_t, std::vector<int32_t>*)> below) {
  std::sort(extra_.begin(), extra_.end());
  extra_.erase(std::unique(extra_.begin(), extra_.end()), extra_.end());
  constexpr int32_t kUnseen = -1;
  std::vector<int32_t> order(num_nodes_, kUnseen);
  std::vector<int32_t> low(num_nodes_, 0);
  std::vector<uint8_t> is_open(num_nodes_, 0);
  std::vector<int32_t> component;
  std::vector<int32_t> open;
  int32_t next_order = 0;
  int32_t num_components = 0;

  // The nodes below the top frame are the elements of `edges` from `begin` on.
  struct Frame {
    int32_t node;
    size_t begin;
    size_t next;
  };
  std::vector<int32_t> edges;
  std::vector<Frame> frames;
  const auto enter = [&](int32_t node) {
    order[node] = low[node] = next_order++;
    is_open[node] = 1;
    open.push_back(node);
    const size_t begin = edges.size();
    below(node, &edges);
    auto it = std::lower_bound(extra_.begin(), extra_.end(),
                               std::make_pair(node, INT32_MIN));
    for (; it != extra_.end() && it->first == node; ++it) {
      edges.push_back(it->second);
    }
    frames.push_back({node, begin, begin});
  };
  for (const auto& [user, unused] : extra_) {
    if (order[user] != kUnseen) continue;
    enter(user);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      if (frame.next < edges.size()) {
        const int32_t node = edges[frame.next++];
        if (order[node] == kUnseen) {
          enter(node);
        } else if (is_open[node] != 0) {
          low[frame.node] = std::min(low[frame.node], order[node]);
        }
        continue;
      }
      const int32_t node = frame.node;
      edges.resize(frame.begin);
      frames.pop_back();
      if (!frames.empty()) {
        low[frames.back().node] = std::min(low[frames.back().node], low[node]);
      }
      if (low[node] != order[node]) continue;
      const bool is_cyclic = open.back() != node;
      if (is_cyclic && component.empty()) component.assign(num_nodes_, -1);
      int32_t member;
      do {
        member = open.back();
        open.pop_back();
        is_open[member] = 0;
        if (is_cyclic) component[member] = num_components;
      } while (member != node);
      if (is_cyclic) ++num_components;
    }
  }
  return component;
}

}  // namespace hloenv
