# SPDX-License-Identifier: Apache-2.0
"""Conversion of graphs to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..hlo.source import Source
from .convert import GraphLike, graph_of, sources_of
from .hlo_graph import (
    HloGraph,
    attribute_names,
    comparison_directions,
    dtypes,
    fusion_kinds,
    opcodes,
)


def to_json(
    graph: GraphLike,
    *,
    indent: int | None = None,
    sources: Mapping[str, Source] | None = None,
) -> str:
    """The graph as JSON text.

    An object with `format` ("hloenv.graph/1"), `module` (its name), and:

    * `nodes`, in node order: `name`, `opcode`, `shape` (HLO text), `dtype`, `dims`
      (null for tuples and tokens), `computation` (number), `operands` and
      `control_predecessors` (node numbers), `element_count`, `input_bytes`,
      `output_bytes`, `flops`, `transcendentals`, `bytes_accessed` (-1 unknown),
      `user_count`, and if applicable: `is_root`, `has_side_effect`, `fusion_node`,
      `parameter_number`, `tuple_index`, `comparison_direction`, `fusion_kind`,
      `custom_call_target`, `trip_count`, `attributes` (an object), `alternative` (its
      number), `calls` (numbers of computations), `source` (an object with `op_name`,
      `file` and `line`);
    * `computations`: `name`, `root` (node number), `caller` (node number, null for the
      entry), `is_entry`, `is_fusion`;
    * `alternatives`: `kind`, `sites` (objects with `node` and `choices`, node numbers),
      `passes` (for each choice, the original included, a list of names).

    Args:
        graph: a graph, a module, or alternatives.
        indent: spaces for each level; None writes one line.
        sources: source locations of nodes by name, as from `HloModule.sources`; by
            default those of the given module or alternatives.
    """
    sources = sources_of(graph) if sources is None else sources
    graph = graph_of(graph)
    content = {
        "format": "hloenv.graph/1",
        "module": graph.module_name,
        "computations": list(computation_rows(graph)),
        "nodes": list(node_rows(graph, sources)),
        "alternatives": list(alternative_rows(graph)),
    }
    return json.dumps(content, indent=indent)


def node_rows(
    graph: HloGraph, sources: Mapping[str, Source]
) -> Iterator[dict[str, Any]]:
    """One description for each node, in order."""
    names = attribute_names()
    keys, values = graph.attribute_keys.tolist(), graph.attribute_values.tolist()
    attribute_offsets = graph.attribute_offsets.tolist()
    producers, in_offsets = graph.edge_sources.tolist(), graph.in_offsets.tolist()
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
        edges = producers[in_offsets[number] : in_offsets[number + 1]]
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
        if name in sources:
            node["source"] = sources[name]._asdict()
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


def computation_rows(graph: HloGraph) -> Iterator[dict[str, Any]]:
    """One description for each computation, in order."""
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


def alternative_rows(graph: HloGraph) -> Iterator[dict[str, Any]]:
    """One description for each alternative, in order."""
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
