# SPDX-License-Identifier: Apache-2.0
"""Graphs for other tools: networkx, PyTorch Geometric, Graphviz, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from .errors import ArgumentTypeError
from .graph import (
    HloGraph,
    attribute_names,
    comparison_directions,
    dtypes,
    fusion_kinds,
    opcodes,
)
from .module import HloModule
from .rewrite import Alternatives

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import HeteroData

    from .pyg import HloData

# What has a graph.
GraphLike = HloGraph | HloModule | Alternatives

_FUSION_RELATIONS = ("outside", "inside", "across")


@overload
def to_pyg(
    graph: GraphLike, *, hetero: Literal[False] = False, passes: Sequence[str] = ()
) -> HloData: ...
@overload
def to_pyg(
    graph: GraphLike, *, hetero: Literal[True], passes: Sequence[str] = ()
) -> HeteroData: ...
def to_pyg(
    graph: GraphLike, *, hetero: bool = False, passes: Sequence[str] = ()
) -> HloData | HeteroData:
    """A graph for PyTorch Geometric; `Batch.from_data_list` takes any number of them.

    Tensors are copies. `hloenv.pyg.HloData` lists those of the homogeneous form,
    `hloenv.pyg.to_hetero` the node and edge types of the other.

    Args:
        graph: a graph, or what has one: a module, or alternatives.
        hetero: node types for instructions, computations, alternatives and choices.
        passes: names of passes, which become columns that say which of them propose
            a choice. Graphs that go into one batch need the same names.

    Raises:
        ArgumentTypeError: this is none of them.
        ImportError: torch or torch-geometric is not installed.
        GraphError: an alternative has no site, so nothing in the graph stands for it.
    """
    source = _graph_of(graph)
    try:
        from . import pyg
    except ImportError as error:
        raise ImportError(
            f"to_pyg needs torch and torch-geometric ({error}): "
            "pip install 'hloenv[learn]'"
        ) from error
    return pyg.to_hetero(source, passes) if hetero else pyg.to_data(source, passes)


def _graph_of(source: GraphLike) -> HloGraph:
    """A graph itself; that of a module; that of alternatives, with their choices.

    Raises:
        ArgumentTypeError: it is none of these.
    """
    if isinstance(source, HloGraph):
        return source
    if isinstance(source, Alternatives):
        return source.graph
    if isinstance(source, HloModule):
        return HloGraph.from_module(source)
    raise ArgumentTypeError(
        "what is converted is an HloGraph, an HloModule or Alternatives, not "
        f"{type(source).__name__}"
    )


def to_networkx(graph: GraphLike, *, calls: bool = True) -> nx.MultiDiGraph[int]:
    """A networkx graph whose nodes are node numbers.

    Node attributes are those of `to_json`'s nodes, without operands. Edges have
    `kind`: "operand" (with `operand_index`, `bytes` and `fusion_relation`), "control",
    or "call", from the root of a computation to the instruction that calls it. Graph
    attributes: `module`, `computations`, `alternatives`, as in `to_json`.

    Args:
        graph: a graph, or what has one: a module, or alternatives.
        calls: adds the call edges; without them computations are not connected.

    Raises:
        ImportError: networkx is not installed.
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise ImportError(
            f"to_networkx needs networkx ({error}): pip install 'hloenv[graph]'"
        ) from error
    graph = _graph_of(graph)
    result = nx.MultiDiGraph(
        module=graph.module_name,
        computations=list(_computations(graph)),
        alternatives=list(_alternatives(graph)),
    )
    for number, node in enumerate(_nodes(graph)):
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


def to_json(graph: GraphLike, *, indent: int | None = None) -> str:
    """The graph as JSON text.

    An object with `format` ("hloenv.graph/1"), `module` (its name), and:

    * `nodes`, in node order: `name`, `opcode`, `shape` (HLO text), `dtype`, `dims`
      (null for tuples and tokens), `computation` (number), `operands` and
      `control_predecessors` (node numbers), `element_count`, `input_bytes`,
      `output_bytes`, `flops`, `transcendentals`, `bytes_accessed` (-1 unknown),
      `user_count`, and where they apply: `is_root`, `has_side_effect`, `fusion_node`,
      `parameter_number`, `tuple_index`, `comparison_direction`, `fusion_kind`,
      `custom_call_target`, `trip_count`, `attributes` (an object), `alternative` (its
      number), `calls` (numbers of computations);
    * `computations`: `name`, `root` (node number), `caller` (node number, null for the
      entry), `is_entry`, `is_fusion`;
    * `alternatives`: `kind`, `sites` (objects with `node` and `choices`, node numbers),
      `passes` (for each choice, the original included, a list of names).

    Args:
        graph: a graph, or what has one: a module, or alternatives.
        indent: spaces for each level; None writes one line.
    """
    graph = _graph_of(graph)
    content = {
        "format": "hloenv.graph/1",
        "module": graph.module_name,
        "computations": list(_computations(graph)),
        "nodes": list(_nodes(graph)),
        "alternatives": list(_alternatives(graph)),
    }
    return json.dumps(content, indent=indent)


def _nodes(graph: HloGraph) -> Iterator[dict[str, Any]]:
    """One description for each node, in order."""
    names = attribute_names()
    keys, values = graph.attribute_keys.tolist(), graph.attribute_values.tolist()
    attribute_offsets = graph.attribute_offsets.tolist()
    sources, in_offsets = graph.edge_sources.tolist(), graph.in_offsets.tolist()
    alternative_of = _alternative_of_site(graph)
    calls: dict[int, list[int]] = {}
    for caller, callee in zip(
        graph.call_nodes.tolist(), graph.call_computations.tolist(), strict=True
    ):
        calls.setdefault(caller, []).append(callee)
    columns = {name: getattr(graph, name).tolist() for name in _NODE_COLUMNS}
    for number, (name, shape) in enumerate(
        zip(graph.node_names, graph.node_shapes, strict=True)
    ):
        row = {key: column[number] for key, column in columns.items()}
        edges = sources[in_offsets[number] : in_offsets[number + 1]]
        num_operands = row["operand_count"]
        is_array = not (shape.startswith("(") or shape in ("token[]", "opaque[]"))
        node = {
            "name": name,
            "opcode": opcodes()[row["opcode"]],
            "shape": shape,
            "dtype": dtypes()[row["dtype"]],
            "dims": row["dims"][: row["rank"]] if is_array else None,
            "computation": row["computation"],
            "operands": edges[:num_operands],
            "control_predecessors": edges[num_operands:],
        }
        node.update((key, row[key]) for key in _SIZE_COLUMNS)
        node.update((key, True) for key in ("is_root", "has_side_effect") if row[key])
        node.update((key, row[key]) for key in _OPTIONAL_COLUMNS if row[key] >= 0)
        for key, table in (
            ("comparison_direction", comparison_directions()),
            ("fusion_kind", fusion_kinds()),
            ("custom_call_target", graph.custom_call_targets),
        ):
            if row[key] >= 0:
                node[key] = table[row[key]]
        span = slice(attribute_offsets[number], attribute_offsets[number + 1])
        if keys[span]:
            node["attributes"] = {
                names[key]: value
                for key, value in zip(keys[span], values[span], strict=True)
            }
        if number in alternative_of:
            node["alternative"] = alternative_of[number]
        if number in calls:
            node["calls"] = calls[number]
        yield node


_SIZE_COLUMNS = (
    "element_count",
    "input_bytes",
    "output_bytes",
    "flops",
    "transcendentals",
    "bytes_accessed",
    "user_count",
)
_OPTIONAL_COLUMNS = ("fusion_node", "parameter_number", "tuple_index", "trip_count")
_NODE_COLUMNS = (
    *("opcode", "dtype", "rank", "dims", "computation", "operand_count"),
    *_SIZE_COLUMNS,
    *("is_root", "has_side_effect"),
    *_OPTIONAL_COLUMNS,
    *("comparison_direction", "fusion_kind", "custom_call_target"),
)


def _alternative_of_site(graph: HloGraph) -> dict[int, int]:
    """The alternative of each node that is a site."""
    offsets = graph.site_offsets.tolist()
    return {
        node: alternative
        for alternative in range(graph.num_alternatives)
        for node in graph.site_nodes[
            offsets[alternative] : offsets[alternative + 1]
        ].tolist()
    }


def _computations(graph: HloGraph) -> Iterator[dict[str, Any]]:
    for name, root, caller, is_entry, is_fusion in zip(
        graph.computation_names,
        graph.computation_roots.tolist(),
        graph.computation_callers.tolist(),
        graph.computation_is_entry.tolist(),
        graph.computation_is_fusion.tolist(),
        strict=True,
    ):
        yield {
            "name": name,
            "root": root,
            "caller": caller if caller >= 0 else None,
            "is_entry": is_entry,
            "is_fusion": is_fusion,
        }


def _alternatives(graph: HloGraph) -> Iterator[dict[str, Any]]:
    for alternative in range(graph.num_alternatives):
        sites = range(*graph.site_offsets[alternative : alternative + 2].tolist())
        choices = range(*graph.choice_offsets[alternative : alternative + 2].tolist())
        kind = int(graph.alternative_kind[alternative])
        yield {
            "kind": graph.alternative_kinds[kind] if kind >= 0 else None,
            "sites": [
                {
                    "node": int(graph.site_nodes[site]),
                    "choices": graph.site_choice_nodes[
                        slice(*graph.site_choice_offsets[site : site + 2].tolist())
                    ].tolist(),
                }
                for site in sites
            ],
            "passes": [
                [
                    graph.pass_names[index]
                    for index in graph.choice_passes[
                        slice(*graph.choice_pass_offsets[choice : choice + 2].tolist())
                    ].tolist()
                ]
                for choice in choices
            ],
        }


def to_dot(graph: GraphLike) -> str:
    """The graph in Graphviz's language; the same graph gives the same text.

    A computation is a box, a fusion's a grey one. Alternatives are orange hexagons;
    the edge from each choice says which it is and who proposes it. Dashed edges are
    control dependencies, dotted ones lead from a computation to its caller.
    """
    graph = _graph_of(graph)
    nodes = list(_nodes(graph))
    alternatives = list(_alternatives(graph))
    lines = [
        f"digraph {_quoted(graph.module_name)} {{",
        '  node [shape=box, fontname="monospace", fontsize=10, style=filled, '
        'fillcolor="white"];',
        '  edge [fontname="monospace", fontsize=9];',
    ]
    offsets = graph.computation_offsets.tolist()
    for number, computation in enumerate(_computations(graph)):
        color = "gray92" if computation["is_fusion"] else "white"
        label = computation["name"] + (" (entry)" if computation["is_entry"] else "")
        lines += [
            f"  subgraph cluster_{number} {{",
            f'    label={_quoted(label)}; fontname="monospace"; style=filled; '
            f'fillcolor="{color}";',
        ]
        lines += [
            f"    n{node} [{_dot_style(nodes[node])}];"
            for node in range(offsets[number], offsets[number + 1])
        ]
        lines.append("  }")
    for target, node in enumerate(nodes):
        operands = node["operands"]
        if "alternative" in node:
            passes = alternatives[node["alternative"]]["passes"]
            for choice, source in enumerate(operands):
                label = ", ".join(passes[choice]) if choice else "original"
                lines.append(
                    f"  n{source} -> n{target} "
                    f'[label={_quoted(f"{choice}: {label}")}, color="darkorange"];'
                )
        else:
            for index, source in enumerate(operands):
                label = f" [label={_quoted(str(index))}]" if len(operands) > 1 else ""
                lines.append(f"  n{source} -> n{target}{label};")
        lines += [
            f"  n{source} -> n{target} [style=dashed];"
            for source in node["control_predecessors"]
        ]
        lines += [
            f"  n{int(graph.computation_roots[callee])} -> n{target} [style=dotted];"
            for callee in node.get("calls", ())
        ]
    lines.append("}")
    return "\n".join(lines) + "\n"


def _dot_style(node: dict[str, Any]) -> str:
    if "alternative" in node:
        label = f"alternative {node['alternative']}\n{node['name']} {node['shape']}"
        return f'label={_quoted(label)}, shape=hexagon, fillcolor="orange"'
    details = [
        str(node[key])
        for key in ("custom_call_target", "comparison_direction", "tuple_index")
        if key in node
    ]
    opcode = " ".join([node["opcode"], *details])
    label = f"{node['name']}\n{opcode}\n{node['shape']}"
    colors = {"parameter": "lightblue", "constant": "lightgray", "fusion": "gray92"}
    color = colors.get(node["opcode"], "white")
    border = ", penwidth=2" if node.get("is_root") else ""
    return f'label={_quoted(label)}, fillcolor="{color}"{border}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
