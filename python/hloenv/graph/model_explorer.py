# SPDX-License-Identifier: Apache-2.0
"""Conversion of graphs to the JSON of Google's Model Explorer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..hlo.source import Source
from .convert import GraphLike, graph_of, sources_of
from .export import alternative_rows, computation_rows, node_rows

# Shown by Model Explorer under these names, if a node has them.
_ATTRIBUTES = (
    "shape",
    "output_bytes",
    "flops",
    "transcendentals",
    "bytes_accessed",
    "parameter_number",
    "tuple_index",
    "comparison_direction",
    "fusion_kind",
    "custom_call_target",
    "trip_count",
    "is_root",
    "has_side_effect",
)
_CONTROL = "control"


def to_model_explorer(
    graph: GraphLike,
    *,
    indent: int | None = None,
    sources: Mapping[str, Source] | None = None,
) -> str:
    """The graph as a graph collection of Model Explorer, as JSON text.

    `model-explorer FILE.json` opens it. Computations are layers, inside those of the
    instruction that calls them first; an alternative is a node whose inputs are its
    choices, with their passes as metadata.

    Args:
        graph: a graph, a module, or alternatives.
        indent: spaces for each level; None writes one line.
        sources: as for `to_json`.
    """
    sources = sources_of(graph) if sources is None else sources
    graph = graph_of(graph)
    rows = list(node_rows(graph, sources))
    computations = list(computation_rows(graph))
    spaces = _namespaces(rows, computations)
    alternatives = list(alternative_rows(graph))
    nodes = []
    for number, row in enumerate(rows):
        node: dict[str, Any] = {
            "id": str(number),
            "label": row["opcode"],
            "namespace": spaces[row["computation"]],
            "attrs": _attributes(row),
            "incomingEdges": _edges(row),
            "outputsMetadata": [
                {"id": "0", "attrs": [{"key": "shape", "value": row["shape"]}]}
            ],
        }
        if "alternative" in row:
            passes = alternatives[row["alternative"]]["passes"]
            node["label"] = f"alternative {row['alternative']}"
            node["inputsMetadata"] = [
                {
                    "id": str(choice),
                    "attrs": [
                        {"key": "choice", "value": ", ".join(names) or "original"}
                    ],
                }
                for choice, names in enumerate(passes)
            ]
        nodes.append(node)
    return json.dumps(
        {
            "label": graph.module_name,
            "graphs": [{"id": graph.module_name, "nodes": nodes}],
        },
        indent=indent,
    )


def _namespaces(
    rows: list[dict[str, Any]], computations: list[dict[str, Any]]
) -> list[str]:
    """[C] the layers of each computation, outermost first, joined by "/"."""
    spaces = [""] * len(computations)
    # Callers come after their callees.
    for number in range(len(computations) - 1, -1, -1):
        computation = computations[number]
        name = computation["name"].replace("/", "_")
        if computation["caller"] is None:
            continue
        around = spaces[rows[computation["caller"]]["computation"]]
        caller = rows[computation["caller"]]["name"].replace("/", "_")
        spaces[number] = "/".join(filter(None, (around, f"{caller}: {name}")))
    return spaces


def _attributes(row: Mapping[str, Any]) -> list[dict[str, str]]:
    values = {"name": row["name"]}
    values |= {key: row[key] for key in _ATTRIBUTES if key in row}
    values |= row.get("attributes", {})
    if "source" in row:
        values["source"] = str(Source(**row["source"]))
    return [{"key": key, "value": str(value)} for key, value in values.items()]


def _edges(row: Mapping[str, Any]) -> list[dict[str, str]]:
    edges = [
        {
            "sourceNodeId": str(source),
            "sourceNodeOutputId": "0",
            "targetNodeInputId": str(index),
        }
        for index, source in enumerate(row["operands"])
    ]
    edges += [
        {
            "sourceNodeId": str(source),
            "sourceNodeOutputId": "0",
            "targetNodeInputId": _CONTROL,
        }
        for source in row["control_predecessors"]
    ]
    return edges
