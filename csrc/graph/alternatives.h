// SPDX-License-Identifier: Apache-2.0
// The alternatives of a graph.
#pragma once

#include "absl/status/status.h"
#include "graph/columns.h"

namespace hloenv {

// Fills `graph->alternatives` and marks the sites among the nodes, from the
// topology and the other columns. Errors: InvalidModuleError when an index is
// out of range, or the sites of one alternative differ in number of choices.
absl::Status AddAlternatives(Graph* graph);

}  // namespace hloenv
