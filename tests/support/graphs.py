# SPDX-License-Identifier: Apache-2.0
"""Graphs that several tests look at."""

from __future__ import annotations

from hloenv.graph.hlo_graph import HloGraph, attribute_names
from support.paths import TESTDATA

HLO = TESTDATA / "graphs"
SMALL = (HLO / "small.hlo").read_text()
# In post order, the reducer first.
SMALL_NAMES = (
    *("a", "b", "sum"),
    *("zero", "x", "y", "product", "power", "total", "wide", "share", "square", "out"),
)
FUSED = (HLO / "fusion.hlo").read_text()
ALTERNATIVES = (HLO / "alternatives.hlo").read_text()


def graph_of(*instructions: str, computations: str = "") -> HloGraph:
    """The graph of a module whose entry holds these instructions."""
    body = "\n".join(instructions)
    return HloGraph.from_module(
        f"HloModule test\n{computations}\nENTRY main {{\n{body}\n}}\n"
    )


def row_of(graph: HloGraph, name: str) -> int:
    return graph.node_names.index(name)


def attributes_of(graph: HloGraph, name: str) -> dict[str, int]:
    node = row_of(graph, name)
    span = slice(*graph.attribute_offsets[node : node + 2])
    keys = [attribute_names()[key] for key in graph.attribute_keys[span]]
    return dict(zip(keys, graph.attribute_values[span].tolist(), strict=True))
