# SPDX-License-Identifier: Apache-2.0
"""Modules as columns for the page: nodes, edges, boxes and coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt

from .._typing import Int64Array
from ..cost.roofline import node_seconds
from ..graph.convert import graph_of
from ..graph.hlo_graph import HloGraph, opcodes
from ..hlo.module import HloModule
from ..hlo.text import logical_lines
from .layout import Layout, Structure, place
from .schema import ComputationBox, GraphData, ModuleInfo, NodeDetail

# Roles of the computations of an instruction that are drawn inside it.
_ROLES = {
    "fusion": ("fused",),
    "while": ("body", "condition"),
    "call": ("called",),
    "async-start": ("asynchronous",),
}
_MAX_TEXT = 2000
ROOT, PARAMETER, CONSTANT, SIDE_EFFECT, IN_FUSION, HAS_BOX = 1, 2, 4, 8, 16, 32


def module_info(module: HloModule) -> ModuleInfo:
    """A module in a few numbers."""
    cost = module.cost()
    return {
        "name": module.name,
        "fingerprint": module.fingerprint(),
        "instructions": module.instruction_count,
        "computations": module.computation_count,
        "position": "" if module.position is None else str(module.position),
        "flops": cost.flops,
        "bytes": cost.bytes,
    }


def graph_data(
    module: HloModule,
    *,
    alternatives: Mapping[str, int] | None = None,
    kernel_s: Mapping[str, float] | None = None,
) -> GraphData:
    """A whole module.

    Args:
        module: any.
        alternatives: the alternative at an instruction, by name.
        kernel_s: time of all runs of an instruction's kernel, by name, in seconds.
    """
    graph = graph_of(module)
    parents, roles = _nesting(graph)
    structure = Structure(
        graph.computation.astype(np.int64),
        graph.edge_sources,
        graph.edge_targets,
        parents,
    )
    everything = np.arange(graph.num_nodes)
    return _columns(
        module,
        graph,
        _Part(everything, structure, np.arange(graph.num_computations), roles),
        alternatives or {},
        kernel_s or {},
    )


def part_data(module: HloModule, graph: HloGraph, nodes: Int64Array) -> GraphData:
    """Some nodes of a module, laid out by themselves.

    Args:
        module: any.
        graph: of the module.
        nodes: ascending.
    """
    row = np.full(graph.num_nodes + 1, -1, np.int64)
    row[nodes] = np.arange(len(nodes))
    kept = (row[graph.edge_sources] >= 0) & (row[graph.edge_targets] >= 0)
    parents, roles = _nesting(graph)
    numbers, computation = np.unique(graph.computation[nodes], return_inverse=True)
    structure = Structure(
        computation.astype(np.int64),
        row[graph.edge_sources[kept]],
        row[graph.edge_targets[kept]],
        row[parents[numbers]],
    )
    part = _Part(nodes, structure, numbers.astype(np.int64), roles, kept)
    return _columns(module, graph, part, {}, {})


class _Part:
    """Nodes of a graph that are shown, and their structure.

    Attributes:
        nodes: [N] of the graph.
        structure: numbers count the shown nodes and computations.
        computations: [C] of the graph.
        roles: of all computations of the graph.
        edges: of the graph, that are shown.
    """

    def __init__(
        self,
        nodes: Int64Array,
        structure: Structure,
        computations: Int64Array,
        roles: Sequence[str],
        edges: npt.NDArray[np.bool_] | slice = slice(None),
    ) -> None:
        self.nodes = nodes
        self.structure = structure
        self.computations = computations
        self.roles = roles
        self.edges = edges


def _columns(
    module: HloModule,
    graph: HloGraph,
    part: _Part,
    alternatives: Mapping[str, int],
    kernel_s: Mapping[str, float],
) -> GraphData:
    layout = place(part.structure)
    nodes = part.nodes
    names = _picked(graph.node_names, nodes)
    known_sources = module.sources()
    sources = [
        str(known_sources[each]) if each in known_sources else "" for each in names
    ]
    shape_table, shape = _table(_picked(graph.node_shapes, nodes))
    source_table, source = _table(sources)
    opcode_table, opcode = _table([opcodes()[i] for i in graph.opcode[nodes].tolist()])
    moved = np.maximum(graph.bytes_accessed[nodes], 0)
    return {
        "module": graph.module_name,
        "width": _rounded([layout.width])[0],
        "height": _rounded([layout.height])[0],
        "opcodes": opcode_table,
        "shapes": [_shortened(each) for each in shape_table],
        "sources": source_table,
        "names": names,
        "opcode": opcode,
        "shape": shape,
        "source": source,
        "computation": part.structure.computation.tolist(),
        "flags": _flags(graph, part).tolist(),
        "alternative": [alternatives.get(each, -1) for each in names],
        "x": _rounded(layout.x),
        "y": _rounded(layout.y),
        "w": _rounded(layout.w),
        "h": _rounded(layout.h),
        "bytes": moved.tolist(),
        "flops": np.maximum(graph.flops[nodes], 0).tolist(),
        "seconds": _significant(node_seconds(graph)[nodes]),
        "kernel_s": [kernel_s.get(each, 0.0) for each in names] if kernel_s else [],
        "edge_sources": part.structure.edge_sources.tolist(),
        "edge_targets": part.structure.edge_targets.tolist(),
        "edge_controls": np.flatnonzero(graph.edge_is_control[part.edges]).tolist(),
        "computations": _boxes(graph, part, layout),
    }


def _flags(graph: HloGraph, part: _Part) -> Int64Array:
    nodes = part.nodes
    has_box = np.zeros(len(nodes), np.bool_)
    has_box[part.structure.parents[part.structure.parents >= 0]] = True
    flags: Int64Array = (
        ROOT * graph.is_root[nodes].astype(np.int64)
        + PARAMETER * graph.is_parameter[nodes]
        + CONSTANT * graph.is_constant[nodes]
        + SIDE_EFFECT * graph.has_side_effect[nodes]
        + IN_FUSION * graph.is_in_fusion[nodes]
        + HAS_BOX * has_box
    )
    return flags


def _boxes(graph: HloGraph, part: _Part, layout: Layout) -> list[ComputationBox]:
    boxes: list[ComputationBox] = []
    for row, number in enumerate(part.computations.tolist()):
        x, y, w, h = _rounded(layout.boxes[row])
        boxes.append(
            {
                "name": graph.computation_names[number],
                "role": part.roles[number],
                "caller": int(part.structure.parents[row]),
                "x": x,
                "y": y,
                "w": w,
                "h": h,
            }
        )
    return boxes


def _nesting(graph: HloGraph) -> tuple[Int64Array, list[str]]:
    """[C] the node that contains each computation, -1 for none; and its role."""
    parents = np.full(graph.num_computations, -1, np.int64)
    roles = ["applied"] * graph.num_computations
    seen: dict[int, int] = {}
    calls = zip(
        graph.call_nodes.tolist(), graph.call_computations.tolist(), strict=True
    )
    for node, computation in calls:
        place_ = seen[node] = seen.get(node, -1) + 1
        opcode = opcodes()[graph.opcode[node]]
        if opcode == "conditional":
            role = f"branch {place_}"
        else:
            known = _ROLES.get(opcode, ())
            role = known[place_] if place_ < len(known) else ""
        if role and parents[computation] < 0:
            parents[computation], roles[computation] = node, role
    for number in np.flatnonzero(graph.computation_is_entry).tolist():
        roles[number] = "entry"
    return parents, roles


def node_detail(module: HloModule, node: int) -> NodeDetail:
    """A node of the module's graph."""
    graph = graph_of(module)
    name = graph.node_names[node]
    return {
        "name": name,
        "text": "".join(lines_by_computation(module, {name})),
        "operands": _picked(graph.node_names, graph.operands(node)),
        "users": _picked(graph.node_names, graph.users(node)),
    }


def lines_by_computation(module: HloModule, names: Set[str]) -> list[str]:
    """The HLO text of some instructions; which are in which computation, if in several.

    Long constants are cut.
    """
    found: dict[str, list[str]] = {}
    title = ""
    for line in logical_lines(module.to_text()):
        if not line.startswith("  "):
            title = line.partition(" (")[0].removeprefix("ENTRY ")
            continue
        left, equals, _ = line.partition(" = ")
        name = left.strip().removeprefix("ROOT ").removeprefix("%")
        if equals and name in names:
            found.setdefault(title, []).append(_shortened(line.strip(), _MAX_TEXT))
    if len(found) < 2:
        return [line for lines in found.values() for line in lines]
    return [
        line
        for title, lines in found.items()
        for line in (f"in {title}:", *(f"  {each}" for each in lines))
    ]


def _shortened(text: str, longest: int = 300) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _picked(texts: Sequence[str], numbers: Int64Array) -> list[str]:
    return [texts[number] for number in numbers.tolist()]


def _table(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Different texts in order of first appearance, and the index of each text."""
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), index


def _rounded(values: npt.ArrayLike) -> list[float]:
    rounded: list[float] = np.round(np.asarray(values, np.float64), 2).tolist()
    return rounded


def _significant(values: npt.NDArray[np.float64]) -> list[float]:
    """To 12 decimals of a second."""
    result: list[float] = np.round(values, 12).tolist()
    return result
