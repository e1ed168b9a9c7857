// SPDX-License-Identifier: Apache-2.0
// The order of a module's instructions and the edges between them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/column.h"
#include "hlo/module.h"

namespace xla {
class HloComputation;
class HloInstruction;
}  // namespace xla

namespace hloenv {

// A node is an instruction of a computation that the entry reaches, dead ones
// included. Computations come in post order (callees before callers, so the
// entry is last) and instructions in post order within (operands and control
// predecessors before users), so both ends of an edge lie in one computation
// and every edge goes from a lower node to a higher one.
//
// Edges are sorted by target; those of one target are its operands in order,
// then its control predecessors.
struct Topology {
  // Borrowed from the module.
  std::vector<const xla::HloComputation*> computations;  // [C]
  std::vector<const xla::HloInstruction*> nodes;         // [N]

  Column<int64_t> computation_offsets;  // [C + 1] first node of each
  Column<int32_t> computation;          // [N]

  Column<int64_t> in_offsets;     // [N + 1] into the edge columns
  Column<int64_t> edge_sources;   // [E]
  Column<int64_t> edge_targets;   // [E]
  Column<int32_t> operand_index;  // [E] -1 for a control edge
  Column<bool> edge_is_control;   // [E]

  // Edges by source, ascending edge number within one source.
  Column<int64_t> out_offsets;  // [N + 1]
  Column<int64_t> out_edges;    // [E]
  Column<int64_t> out_targets;  // [E]

  // One row for each computation that an instruction calls, by caller; a
  // computation named twice by one caller has two rows.
  Column<int64_t> call_offsets;  // [C + 1] rows of callers in computation c
  Column<int64_t> call_nodes;    // [K] the caller
  Column<int32_t> call_computations;  // [K] the callee

  Column<int64_t> computation_roots;    // [C] node
  Column<int64_t> computation_callers;  // [C] first calling node, -1 for none
  Column<bool> computation_is_fusion;   // [C] called by a fusion
  Column<bool> computation_is_entry;    // [C]

  // Nodes of the parameters of each computation, by parameter number.
  Column<int64_t> parameter_offsets;  // [C + 1]
  Column<int64_t> parameter_nodes;    // [P]

  int64_t num_nodes() const { return static_cast<int64_t>(nodes.size()); }
  int64_t num_edges() const { return edge_sources.rows(); }
  int64_t num_computations() const {
    return static_cast<int64_t>(computations.size());
  }
};

Topology BuildTopology(const Module& module);

}  // namespace hloenv
