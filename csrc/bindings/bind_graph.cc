// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/numpy.h"
#include "graph/columns.h"
#include "graph/cost.h"
#include "graph/labels.h"

namespace hloenv {

namespace py = pybind11;

namespace {

using GraphClass = py::class_<Graph>;

// The member that a path of pointers to members leads to.
template <typename T>
const T& Follow(const T& value) {
  return value;
}
template <typename T, typename Member, typename... Path>
const auto& Follow(const T& value, Member T::* member, Path... path) {
  return Follow(value.*member, path...);
}

// Adds the property `name`: a view of the array at the end of `path`.
template <typename... Path>
void View(GraphClass& graph, const char* name, Path... path) {
  graph.def_property_readonly(name, [path...](const py::object& self) {
    return ViewOf(Follow(self.cast<const Graph&>(), path...), self);
  });
}

void AddTopology(GraphClass& g) {
  using T = Topology;
  constexpr auto kTopology = &Graph::topology;
  View(g, "in_offsets", kTopology, &T::in_offsets);
  View(g, "out_offsets", kTopology, &T::out_offsets);
  View(g, "out_targets", kTopology, &T::out_targets);
  View(g, "out_edges", kTopology, &T::out_edges);
  View(g, "edge_sources", kTopology, &T::edge_sources);
  View(g, "edge_targets", kTopology, &T::edge_targets);
  View(g, "edge_operand_index", kTopology, &T::operand_index);
  View(g, "edge_is_control", kTopology, &T::edge_is_control);
  View(g, "computation", kTopology, &T::computation);
  View(g, "computation_offsets", kTopology, &T::computation_offsets);
  View(g, "computation_roots", kTopology, &T::computation_roots);
  View(g, "computation_callers", kTopology, &T::computation_callers);
  View(g, "computation_is_fusion", kTopology, &T::computation_is_fusion);
  View(g, "computation_is_entry", kTopology, &T::computation_is_entry);
  View(g, "parameter_offsets", kTopology, &T::parameter_offsets);
  View(g, "parameter_nodes", kTopology, &T::parameter_nodes);
  View(g, "call_nodes", kTopology, &T::call_nodes);
  View(g, "call_computations", kTopology, &T::call_computations);
}

void AddNodes(GraphClass& g) {
  using N = NodeColumns;
  constexpr auto kNodes = &Graph::nodes;
  View(g, "opcode", kNodes, &N::opcode);
  View(g, "dtype", kNodes, &N::shape, &ShapeColumns::dtype);
  View(g, "rank", kNodes, &N::shape, &ShapeColumns::rank);
  View(g, "dims", kNodes, &N::shape, &ShapeColumns::dims);
  View(g, "minor_to_major", kNodes, &N::shape, &ShapeColumns::minor_to_major);
  View(g, "element_count", kNodes, &N::element_count);
  View(g, "input_bytes", kNodes, &N::input_bytes);
  View(g, "output_bytes", kNodes, &N::output_bytes);
  View(g, "flops", kNodes, &N::flops);
  View(g, "transcendentals", kNodes, &N::transcendentals);
  View(g, "bytes_accessed", kNodes, &N::bytes_accessed);
  View(g, "fusion_node", kNodes, &N::fusion_node);
  View(g, "user_count", kNodes, &N::user_count);
  View(g, "operand_count", kNodes, &N::operand_count);
  View(g, "is_in_fusion", kNodes, &N::is_in_fusion);
  View(g, "is_parameter", kNodes, &N::is_parameter);
  View(g, "is_constant", kNodes, &N::is_constant);
  View(g, "is_root", kNodes, &N::is_root);
  View(g, "has_side_effect", kNodes, &N::has_side_effect);
  View(g, "is_alternative", kNodes, &N::is_alternative);
  View(g, "parameter_number", kNodes, &N::parameter_number);
  View(g, "tuple_index", kNodes, &N::tuple_index);
  View(g, "comparison_direction", kNodes, &N::comparison_direction);
  View(g, "fusion_kind", kNodes, &N::fusion_kind);
  View(g, "custom_call_target", kNodes, &N::custom_call_target);
  View(g, "trip_count", kNodes, &N::trip_count);
  View(g, "attribute_offsets", &Graph::attribute_offsets);
  View(g, "attribute_keys", &Graph::attributes, &AttributeList::keys);
  View(g, "attribute_values", &Graph::attributes, &AttributeList::values);
}

void AddEdgesAndComputations(GraphClass& g) {
  using E = EdgeColumns;
  using C = ComputationColumns;
  constexpr auto kEdges = &Graph::edges;
  constexpr auto kComputations = &Graph::computations;
  View(g, "edge_bytes", kEdges, &E::bytes);
  View(g, "edge_fusion_relation", kEdges, &E::fusion_relation);
  View(g, "edge_dtype", kEdges, &E::shape, &ShapeColumns::dtype);
  View(g, "edge_rank", kEdges, &E::shape, &ShapeColumns::rank);
  View(g, "edge_dims", kEdges, &E::shape, &ShapeColumns::dims);
  View(g, "edge_minor_to_major", kEdges, &E::shape,
       &ShapeColumns::minor_to_major);
  View(g, "computation_num_instructions", kComputations, &C::num_instructions);
  View(g, "computation_flops", kComputations, &C::flops);
  View(g, "computation_transcendentals", kComputations, &C::transcendentals);
  View(g, "computation_bytes_accessed", kComputations, &C::bytes_accessed);
}

void AddAlternatives(GraphClass& g) {
  using A = AlternativeColumns;
  constexpr auto kAlternatives = &Graph::alternatives;
  View(g, "alternative_kind", kAlternatives, &A::kind);
  View(g, "site_offsets", kAlternatives, &A::site_offsets);
  View(g, "site_nodes", kAlternatives, &A::site_nodes);
  View(g, "site_choice_offsets", kAlternatives, &A::site_choice_offsets);
  View(g, "site_choice_nodes", kAlternatives, &A::site_choice_nodes);
  View(g, "choice_offsets", kAlternatives, &A::choice_offsets);
  View(g, "choice_pass_offsets", kAlternatives, &A::choice_pass_offsets);
  View(g, "choice_passes", kAlternatives, &A::choice_passes);
}

}  // namespace

void BindFeatures(py::module_& m) {
  GraphClass graph(m, "Graph");
  AddTopology(graph);
  AddNodes(graph);
  AddEdgesAndComputations(graph);
  AddAlternatives(graph);
  graph
      .def_property_readonly(
          "module_name", [](const Graph& self) { return self.module.name(); })
      .def_property_readonly(
          "custom_call_targets",
          [](const Graph& self) { return self.custom_call_targets; })
      .def_property_readonly(
          "alternative_kinds",
          [](const Graph& self) { return self.alternatives.kinds; })
      .def_property_readonly(
          "pass_names",
          [](const Graph& self) { return self.alternatives.pass_names; })
      .def("node_names",
           [](const Graph& self) { return NodeNames(self.topology); })
      .def("node_shapes",
           [](const Graph& self) { return NodeShapes(self.topology); })
      .def("computation_names",
           [](const Graph& self) { return ComputationNames(self.topology); })
      .def("xla_costs", [](const Graph& self) {
        Column<double> costs;
        {
          GilRelease release;
          costs = ValueOrThrow(XlaCosts(self.module, self.topology));
        }
        return ToNumpy(std::move(costs));
      });
  m.def(
      "build_graph",
      [](const Module& module) { return ValueOrThrow(BuildGraph(module)); },
      py::arg("module"), WithoutGil());
  m.def("opcode_names", &OpcodeNames);
  m.def("dtype_names", &DtypeNames);
  m.def("comparison_direction_names", &ComparisonDirectionNames);
  m.def("fusion_kind_names", &FusionKindNames);
  m.def("attribute_names", &AttributeNames);
}

}  // namespace hloenv
