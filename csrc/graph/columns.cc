// SPDX-License-Identifier: Apache-2.0
#include "graph/columns.h"

#include "graph/alternatives.h"
#include "graph/cost.h"
#include "graph/name_table.h"
#include "graph/shapes.h"
#include "hlo/trip_count.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;

// Instructions are fetched into the cache this many nodes ahead, and their
// shapes, whose address the instruction holds, half as many.
constexpr int64_t kLookahead = 8;

ShapeColumns MakeShapeColumns(int64_t rows) {
  ShapeColumns columns;
  columns.dtype = Column<int32_t>(rows);
  columns.rank = Column<int32_t>(rows);
  columns.dims = Column<int64_t>(rows, kMaxRank);
  columns.minor_to_major = Column<int8_t>(rows, kMaxRank);
  return columns;
}

void WriteShape(const Shape& shape, int64_t row, ShapeColumns* columns) {
  int64_t* dims = columns->dims.row(row);
  int8_t* minor_to_major = columns->minor_to_major.row(row);
  std::fill_n(dims, kMaxRank, -1);
  std::fill_n(minor_to_major, kMaxRank, static_cast<int8_t>(-1));
  if (!shape.IsArray()) {
    columns->dtype[row] = shape.element_type_including_buffer();
    columns->rank[row] = 0;
    return;
  }
  const absl::Span<const int64_t> sizes = shape.dimensions();
  const int64_t rank = static_cast<int64_t>(sizes.size());
  columns->dtype[row] = shape.element_type();
  columns->rank[row] = static_cast<int32_t>(rank);
  const int64_t kept = std::min(rank, kMaxRank);
  for (int64_t i = 0; i < kept; ++i) {
    dims[i] = sizes[i] == Shape::kUnboundedSize ? -1 : sizes[i];
  }
  if (shape.has_layout()) {
    const absl::Span<const int64_t> order = shape.layout().minor_to_major();
    const int64_t ordered =
        std::min(static_cast<int64_t>(order.size()), kMaxRank);
    for (int64_t i = 0; i < ordered; ++i) {
      minor_to_major[i] = static_cast<int8_t>(order[i]);
    }
  }
}

// Repeats the shape of node `from` as row `to` of an edge.
void CopyShape(const ShapeColumns& nodes, int64_t from, ShapeColumns* edges,
               int64_t to) {
  edges->dtype[to] = nodes.dtype[from];
  edges->rank[to] = nodes.rank[from];
  std::copy_n(nodes.dims.row(from), kMaxRank, edges->dims.row(to));
  std::copy_n(nodes.minor_to_major.row(from), kMaxRank,
              edges->minor_to_major.row(to));
}

// Fills the columns in one walk over the nodes.
class Builder {
 public:
  explicit Builder(Graph* graph)
      : graph_(*graph),
        topology_(graph->topology),
        nodes_(graph->nodes),
        targets_(&graph->custom_call_targets) {}

  absl::Status Run() {
    Allocate();
    CostModel costs(topology_, nodes_.element_count);
    for (int64_t node = 0; node < topology_.num_nodes(); ++node) {
      Prefetch(node);
      WriteNode(node);
      costs.SetSize(node, topology_.nodes[node]->shape(),
                    nodes_.output_bytes[node]);
      Cost cost;
      HLOENV_RETURN_IF_ERROR(costs.Add(node, &cost));
      nodes_.flops[node] = cost.flops;
      nodes_.transcendentals[node] = cost.transcendentals;
      nodes_.bytes_accessed[node] = cost.bytes_accessed;
    }
    graph_.attribute_offsets[topology_.num_nodes()] =
        static_cast<int64_t>(graph_.attributes.keys.size());
    WriteComputations(costs);
    return absl::OkStatus();
  }

 private:
  void Allocate() {
    const int64_t n = topology_.num_nodes();
    nodes_.opcode = Column<int32_t>(n);
    nodes_.shape = MakeShapeColumns(n);
    nodes_.element_count = Column<int64_t>(n);
    nodes_.input_bytes = Column<int64_t>(n);
    nodes_.output_bytes = Column<int64_t>(n);
    nodes_.flops = Column<double>(n);
    nodes_.transcendentals = Column<double>(n);
    nodes_.bytes_accessed = Column<double>(n);
    nodes_.fusion_node = Column<int64_t>(n);
    nodes_.user_count = Column<int32_t>(n);
    nodes_.operand_count = Column<int32_t>(n);
    nodes_.is_in_fusion = Column<bool>(n);
    nodes_.is_parameter = Column<bool>(n);
    nodes_.is_constant = Column<bool>(n);
    nodes_.is_root = Column<bool>(n);
    nodes_.has_side_effect = Column<bool>(n);
    nodes_.is_alternative = Column<bool>(n);
    nodes_.parameter_number = Column<int32_t>(n);
    nodes_.tuple_index = Column<int32_t>(n);
    nodes_.comparison_direction = Column<int8_t>(n);
    nodes_.fusion_kind = Column<int8_t>(n);
    nodes_.custom_call_target = Column<int32_t>(n);
    nodes_.trip_count = Column<int64_t>(n);
    nodes_.parameter_number.Fill(-1);
    nodes_.tuple_index.Fill(-1);
    nodes_.comparison_direction.Fill(-1);
    nodes_.fusion_kind.Fill(-1);
    nodes_.custom_call_target.Fill(-1);
    nodes_.trip_count.Fill(-1);
    nodes_.is_parameter.Fill(false);
    nodes_.is_constant.Fill(false);
    nodes_.is_alternative.Fill(false);
    graph_.attribute_offsets = Column<int64_t>(n + 1);
    graph_.attributes.keys.reserve(2 * n);
    graph_.attributes.values.reserve(2 * n);
    const int64_t e = topology_.num_edges();
    graph_.edges.shape = MakeShapeColumns(e);
    graph_.edges.bytes = Column<int64_t>(e);
    graph_.edges.fusion_relation = Column<int8_t>(e);
    computation_has_effect_.assign(topology_.num_computations(), false);
  }

  void Prefetch(int64_t node) const {
    const int64_t n = topology_.num_nodes();
    if (node + kLookahead < n) {
      const char* instruction =
          reinterpret_cast<const char*>(topology_.nodes[node + kLookahead]);
      __builtin_prefetch(instruction);
      __builtin_prefetch(instruction + 64);
    }
    if (node + kLookahead / 2 < n) {
      const char* shape = reinterpret_cast<const char*>(
          &topology_.nodes[node + kLookahead / 2]->shape());
      __builtin_prefetch(shape);
      __builtin_prefetch(shape + 64);
      __builtin_prefetch(shape + 128);
    }
  }

  void WriteNode(int64_t node) {
    const HloInstruction& instruction = *topology_.nodes[node];
    const int32_t computation = topology_.computation[node];
    const Shape& shape = instruction.shape();
    nodes_.opcode[node] = static_cast<int32_t>(instruction.opcode());
    WriteShape(shape, node, &nodes_.shape);
    int64_t element_count = 0;
    int64_t output_bytes = 0;
    SumLeaves(shape, &element_count, &output_bytes);
    nodes_.element_count[node] = element_count;
    nodes_.output_bytes[node] = output_bytes;
    nodes_.user_count[node] = static_cast<int32_t>(instruction.user_count());
    nodes_.operand_count[node] =
        static_cast<int32_t>(instruction.operand_count());
    nodes_.is_root[node] = instruction.IsRoot();
    const bool is_in_fusion = topology_.computation_is_fusion[computation];
    nodes_.is_in_fusion[node] = is_in_fusion;
    nodes_.fusion_node[node] =
        is_in_fusion ? topology_.computation_callers[computation] : -1;
    nodes_.has_side_effect[node] = instruction.HasSideEffectNoRecurse();
    if (HloInstruction::MightHaveCalledComputations(instruction.opcode())) {
      AddEffectsOfCallees(node);
    }
    if (nodes_.has_side_effect[node])
      computation_has_effect_[computation] = true;
    WriteSpecifics(instruction, node);
    graph_.attribute_offsets[node] =
        static_cast<int64_t>(graph_.attributes.keys.size());
    AppendAttributes(instruction, &graph_.attributes);
    WriteInEdges(node);
  }

  void AddEffectsOfCallees(int64_t node) {
    const Column<int64_t>& callers = topology_.call_nodes;
    while (next_call_ < callers.rows() && callers[next_call_] == node) {
      if (computation_has_effect_[topology_.call_computations[next_call_]]) {
        nodes_.has_side_effect[node] = true;
      }
      ++next_call_;
    }
  }

  void WriteSpecifics(const HloInstruction& instruction, int64_t node) {
    switch (instruction.opcode()) {
      case HloOpcode::kParameter:
        nodes_.is_parameter[node] = true;
        nodes_.parameter_number[node] =
            static_cast<int32_t>(instruction.parameter_number());
        break;
      case HloOpcode::kConstant:
        nodes_.is_constant[node] = true;
        break;
      case HloOpcode::kGetTupleElement:
        nodes_.tuple_index[node] =
            static_cast<int32_t>(instruction.tuple_index());
        break;
      case HloOpcode::kCompare:
        nodes_.comparison_direction[node] =
            static_cast<int8_t>(instruction.comparison_direction());
        break;
      case HloOpcode::kFusion:
        nodes_.fusion_kind[node] =
            static_cast<int8_t>(instruction.fusion_kind());
        break;
      case HloOpcode::kCustomCall:
        nodes_.custom_call_target[node] =
            targets_.IndexOf(instruction.custom_call_target());
        break;
      case HloOpcode::kWhile:
        nodes_.trip_count[node] = WhileTripCount(instruction);
        break;
      default:
        break;
    }
  }

  void WriteInEdges(int64_t node) {
    EdgeColumns& edges = graph_.edges;
    const bool is_fusion =
        nodes_.opcode[node] == static_cast<int32_t>(HloOpcode::kFusion);
    int64_t input_bytes = 0;
    for (int64_t edge = topology_.in_offsets[node];
         edge < topology_.in_offsets[node + 1]; ++edge) {
      const int64_t source = topology_.edge_sources[edge];
      FusionRelation relation = nodes_.is_in_fusion[node]
                                    ? FusionRelation::kInside
                                    : FusionRelation::kOutside;
      if (is_fusion ||
          nodes_.opcode[source] == static_cast<int32_t>(HloOpcode::kFusion)) {
        relation = FusionRelation::kAcross;
      }
      edges.fusion_relation[edge] = static_cast<int8_t>(relation);
      if (topology_.edge_is_control[edge]) {
        edges.bytes[edge] = 0;
        edges.shape.dtype[edge] = xla::PRIMITIVE_TYPE_INVALID;
        edges.shape.rank[edge] = 0;
        std::fill_n(edges.shape.dims.row(edge), kMaxRank, -1);
        std::fill_n(edges.shape.minor_to_major.row(edge), kMaxRank,
                    static_cast<int8_t>(-1));
        continue;
      }
      edges.bytes[edge] = nodes_.output_bytes[source];
      input_bytes = SaturatingSum(input_bytes, nodes_.output_bytes[source]);
      CopyShape(nodes_.shape, source, &edges.shape, edge);
    }
    nodes_.input_bytes[node] = input_bytes;
  }

  void WriteComputations(const CostModel& costs) {
    ComputationColumns& columns = graph_.computations;
    const int64_t n = topology_.num_computations();
    columns.num_instructions = Column<int64_t>(n);
    columns.flops = Column<double>(n);
    columns.transcendentals = Column<double>(n);
    columns.bytes_accessed = Column<double>(n);
    for (int64_t c = 0; c < n; ++c) {
      const Cost& cost = costs.computation_costs()[c];
      columns.num_instructions[c] = topology_.computation_offsets[c + 1] -
                                    topology_.computation_offsets[c];
      columns.flops[c] = cost.flops;
      columns.transcendentals[c] = cost.transcendentals;
      columns.bytes_accessed[c] = cost.bytes_accessed;
    }
  }

  Graph& graph_;
  const Topology& topology_;
  NodeColumns& nodes_;
  NameTable targets_;
  int64_t next_call_ = 0;
  std::vector<bool> computation_has_effect_;
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const Module& module) {
  Graph graph(module);
  graph.topology = BuildTopology(module);
  HLOENV_RETURN_IF_ERROR(Builder(&graph).Run());
  HLOENV_RETURN_IF_ERROR(AddAlternatives(&graph));
  return graph;
}

}  // namespace hloenv
