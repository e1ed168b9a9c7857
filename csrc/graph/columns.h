// SPDX-License-Identifier: Apache-2.0
// The features of nodes, edges and alternatives, one array per feature.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attributes.h"
#include "graph/column.h"
#include "graph/topology.h"

namespace hloenv {

// Dimensions kept per shape; `rank` stays true for shapes with more.
inline constexpr int64_t kMaxRank = 8;

// Of the shape of one instruction's output. A tuple has rank 0, its counts are
// sums over its leaves, and -1 pads `dims` and `minor_to_major`.
struct ShapeColumns {
  Column<int32_t> dtype;          // index into DtypeNames()
  Column<int32_t> rank;           // of arrays, true even above kMaxRank
  Column<int64_t> dims;           // [., kMaxRank] upper bounds; -1 unbounded
  Column<int8_t> minor_to_major;  // [., kMaxRank] -1 throughout: no layout
};

struct NodeColumns {
  Column<int32_t> opcode;  // index into OpcodeNames()
  ShapeColumns shape;
  Column<int64_t> element_count;
  Column<int64_t> input_bytes;   // sum of output_bytes over operands
  Column<int64_t> output_bytes;  // sum over leaves
  // From XLA's HloCostAnalysis; -1 if unknown (custom calls).
  Column<double> flops;
  Column<double> transcendentals;
  Column<double> bytes_accessed;
  Column<int64_t> fusion_node;  // the fusion that this node is inside of, or -1
  Column<int32_t> user_count;   // distinct users
  Column<int32_t> operand_count;
  Column<bool> is_in_fusion;
  Column<bool> is_parameter;
  Column<bool> is_constant;
  Column<bool> is_root;
  Column<bool> has_side_effect;  // its own, or of what it calls
  Column<bool> is_alternative;
  Column<int32_t> parameter_number;     // -1 unless a parameter
  Column<int32_t> tuple_index;          // -1 unless get-tuple-element
  Column<int8_t> comparison_direction;  // into ComparisonDirectionNames(), -1
  Column<int8_t> fusion_kind;           // into FusionKindNames(), -1
  Column<int32_t> custom_call_target;   // into custom_call_targets, -1
  Column<int64_t> trip_count;           // of a while whose count is known, -1
};

// The position of an edge relative to fusions.
enum class FusionRelation : int8_t {
  kOutside = 0,  // no fusion at either end
  kInside = 1,   // between two instructions of one fused computation
  kAcross = 2,   // into or out of a fusion instruction
};

// A control edge carries no data: dtype 0, rank 0, bytes 0.
struct EdgeColumns {
  ShapeColumns shape;
  Column<int64_t> bytes;
  Column<int8_t> fusion_relation;  // FusionRelation
};

// Sums over the instructions of each computation, callees included as their
// callers count them.
struct ComputationColumns {
  Column<int64_t> num_instructions;
  Column<double> flops;
  Column<double> transcendentals;
  Column<double> bytes_accessed;
};

// A alternatives, S sites (the nodes that share a decision), X choices, of all
// alternatives one after another.
struct AlternativeColumns {
  Column<int64_t> site_offsets;         // [A + 1] into site_nodes
  Column<int64_t> site_nodes;           // [S] by alternative, then by node
  Column<int32_t> kind;                 // [A] index into kinds
  Column<int64_t> choice_offsets;       // [A + 1]
  Column<int64_t> site_choice_offsets;  // [S + 1] into site_choice_nodes
  Column<int64_t> site_choice_nodes;    // the operand that is each choice
  Column<int64_t> choice_pass_offsets;  // [X + 1] into choice_passes
  Column<int32_t> choice_passes;        // index into pass_names
  std::vector<std::string> kinds;
  std::vector<std::string> pass_names;  // in order of first appearance
};

struct Graph {
  explicit Graph(const Module& m) : module(m) {}

  Module module;  // keeps what `topology` borrows
  Topology topology;
  NodeColumns nodes;
  EdgeColumns edges;
  ComputationColumns computations;
  AlternativeColumns alternatives;
  Column<int64_t> attribute_offsets;  // [N + 1] into `attributes`
  AttributeList attributes;
  std::vector<std::string> custom_call_targets;
};

// Errors: InvalidModuleError when XLA's cost analysis fails.
absl::StatusOr<Graph> BuildGraph(const Module& module);

}  // namespace hloenv
