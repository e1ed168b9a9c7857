// SPDX-License-Identifier: Apache-2.0
// XLA's cost analysis, one instruction at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/column.h"
#include "graph/topology.h"

namespace xla {
class HloCostAnalysis;
class HloInstruction;
class Shape;
}  // namespace xla

namespace hloenv {

struct Cost {
  double flops = 0;
  double transcendentals = 0;
  double bytes_accessed = 0;
};

// Computes the same costs as xla::HloCostAnalysis, but faster: frequent opcodes
// are computed here, from columns, without a hash map and without visiting a
// computation once for each caller; others by XLA. Exact where XLA rounds to
// float.
//
// Nodes are added in order, once each.
class CostModel {
 public:
  // `element_counts` is [N], over all leaves of a node's output; the row of a
  // node has to be there before that node is added.
  CostModel(const Topology& topology, const Column<int64_t>& element_counts);
  ~CostModel();

  // Notes the size of a node's output, before `Add` of that node.
  // `array_bytes` is that of an array, and not used for other shapes.
  void SetSize(int64_t node, const xla::Shape& shape, int64_t array_bytes);

  // The cost of the next node. Errors: InvalidModuleError.
  absl::Status Add(int64_t node, Cost* cost);

  // [C] sums over the instructions added so far.
  const std::vector<Cost>& computation_costs() const { return totals_; }

 private:
  absl::Status AddOwn(int64_t node, Cost* cost);
  absl::Status AskXla(int64_t node, Cost* cost);
  // Cost of the `index`-th computation that `node` calls.
  const Cost& CalleeOf(int64_t node, int64_t index);
  // Sets the arithmetic of `count` calls of it.
  void AddCallee(int64_t node, int64_t index, double count, Cost* cost);
  int64_t OperandOf(int64_t node, int64_t index) const {
    return topology_.edge_sources[topology_.in_offsets[node] + index];
  }

  const Topology& topology_;
  const Column<int64_t>& element_counts_;
  // [N] as XLA's cost analysis counts them: a tuple is its table of pointers.
  Column<int64_t> sizes_;
  std::vector<Cost> totals_;  // [C]
  int64_t next_call_ = 0;     // first call of the node at hand or later
  std::unique_ptr<xla::HloCostAnalysis> analysis_;  // made when first asked
};

// [N, 3] flops, transcendentals, bytes accessed from one run of XLA's own
// analysis over the whole module: what the cost columns are checked against.
absl::StatusOr<Column<double>> XlaCosts(const Module& module,
                                        const Topology& topology);

}  // namespace hloenv
