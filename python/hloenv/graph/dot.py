# SPDX-License-Identifier: Apache-2.0
"""Conversion of graphs to Graphviz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hlo.source import Source
from .convert import GraphLike, graph_of, sources_of
from .export import alternative_rows, computation_rows, node_rows


def to_dot(graph: GraphLike, *, sources: Mapping[str, Source] | None = None) -> str:
    """The graph as deterministic Graphviz text.

    Computations are boxes, grey for fusions. Alternatives are orange hexagons; the edge
    from each choice has its number and passes as label. Dashed edges are control
    dependencies; dotted edges lead from a computation to its caller. The tooltip of a
    node is its source location.

    Args:
        graph: a graph, a module, or alternatives.
        sources: as for `to_json`.
    """
    sources = sources_of(graph) if sources is None else sources
    graph = graph_of(graph)
    nodes = list(node_rows(graph, sources))
    alternatives = list(alternative_rows(graph))
    lines = [
        f"digraph {_quoted(graph.module_name)} {{",
        '  node [shape=box, fontname="monospace", fontsize=10, style=filled, '
        'fillcolor="white"];',
        '  edge [fontname="monospace", fontsize=9];',
    ]
    offsets = graph.computation_offsets.tolist()
    for number, computation in enumerate(computation_rows(graph)):
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
    tooltip = ""
    if "source" in node:
        tooltip = f", tooltip={_quoted(str(Source(**node['source'])))}"
    return f'label={_quoted(label)}, fillcolor="{color}"{border}{tooltip}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
