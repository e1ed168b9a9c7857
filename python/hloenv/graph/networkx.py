# SPDX-License-Identifier: Apache-2.0
"""Conversion of graphs to networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._optional import needed_by
from .convert import GraphLike, graph_of, sources_of
from .export import alternative_rows, computation_rows, node_rows

if TYPE_CHECKING:
    import networkx as nx


_FUSION_RELATIONS = ("outside", "inside", "across")


def to_networkx(graph: GraphLike, *, calls: bool = True) -> nx.MultiDiGraph[int]:
    """A networkx graph; its nodes are node numbers.

    Node attributes are those of `to_json`'s nodes, without operands. Edges have
    `kind`: "operand" (with `operand_index`, `bytes` and `fusion_relation`), "control",
    or "call", from the root of a computation to the instruction that calls it. Graph
    attributes: `module`, `computations`, `alternatives`, as in `to_json`.

    Args:
        graph: a graph, a module, or alternatives.
        calls: adds the call edges; without them computations are not connected.

    Raises:
        ImportError: networkx is not installed.
    """
    with needed_by("to_networkx", "networkx", "graph"):
        import networkx as nx
    sources = sources_of(graph)
    graph = graph_of(graph)
    result = nx.MultiDiGraph(
        module=graph.module_name,
        computations=list(computation_rows(graph)),
        alternatives=list(alternative_rows(graph)),
    )
    for number, node in enumerate(node_rows(graph, sources)):
        del node["operands"], node["control_predecessors"]
        result.add_node(number, **node)
    for source, target, operand, size, relation in zip(
        graph.edge_sources.tolist(),
        graph.edge_targets.tolist(),
        graph.edge_operand_index.tolist(),
        graph.edge_bytes.tolist(),
        graph.edge_fusion_relation.tolist(),
        strict=True,
    ):
        if operand < 0:
            result.add_edge(source, target, kind="control")
        else:
            result.add_edge(
                source,
                target,
                kind="operand",
                operand_index=operand,
                bytes=size,
                fusion_relation=_FUSION_RELATIONS[relation],
            )
    if calls:
        roots = graph.computation_roots[graph.call_computations].tolist()
        for root, caller in zip(roots, graph.call_nodes.tolist(), strict=True):
            result.add_edge(root, caller, kind="call")
    return result
