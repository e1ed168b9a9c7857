// SPDX-License-Identifier: Apache-2.0
// The strings of a graph: tables that columns index into, and names and shapes,
// which are made on demand.
#pragma once

#include <string>
#include <vector>

#include "graph/topology.h"

namespace hloenv {

// Fixed for one TensorFlow version; an index is the value of XLA's enum.
const std::vector<std::string>& OpcodeNames();
const std::vector<std::string>& DtypeNames();
const std::vector<std::string>& ComparisonDirectionNames();
const std::vector<std::string>& FusionKindNames();

// [N] and [C], in node and computation order.
std::vector<std::string> NodeNames(const Topology& topology);
std::vector<std::string> NodeShapes(const Topology& topology);
std::vector<std::string> ComputationNames(const Topology& topology);

}  // namespace hloenv
