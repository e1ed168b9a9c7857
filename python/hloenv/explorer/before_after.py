# SPDX-License-Identifier: Apache-2.0
"""Two modules around a change: small graphs of what changed, and their HLO text."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from .._typing import Int64Array
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from .graph_data import lines_by_computation, part_data
from .schema import BeforeAfter

_MAX_NODES = 120
_MAX_LINES = 150
_MAX_OPERANDS = 6


def before_after(
    module: HloModule,
    after: HloModule,
    changed: Mapping[str, str],
    core: Set[str] | None = None,
) -> BeforeAfter:
    """What changed between two modules, with operands and users, where there is room.

    Args:
        module: before.
        after: the other one.
        changed: by name of an instruction, "removed", "changed" or "added".
        core: names of the changed instructions to show, if not all.
    """
    wanted = changed.keys() if core is None else core
    first, second = HloGraph.from_module(module), HloGraph.from_module(after)
    # What is next to a change in one module is shown in both.
    around = _names(first, _neighbourhood(first, changed, wanted)[0])
    around |= _names(second, _neighbourhood(second, changed, wanted)[0])
    around -= changed.keys()
    nodes_before, left_before = _neighbourhood(first, changed, wanted, around)
    nodes_after, left_after = _neighbourhood(second, changed, wanted, around)
    shown = _names(first, nodes_before) | _names(second, nodes_after)
    return {
        "before": part_data(module, first, nodes_before),
        "after": part_data(after, second, nodes_after),
        "changed": {name: kind for name, kind in changed.items() if name in shown},
        "text_before": _lines(module, wanted),
        "text_after": _lines(after, wanted),
        "num_left_out": left_before + left_after,
    }


def _neighbourhood(
    graph: HloGraph,
    changed: Mapping[str, str],
    wanted: Set[str],
    around: Set[str] = frozenset(),
) -> tuple[Int64Array, int]:
    """Wanted nodes with their operands and users, and how many are left out."""
    is_shown = np.fromiter((each in wanted for each in graph.node_names), np.bool_)
    core = np.flatnonzero(is_shown)
    # What an added fusion contains is part of it; so is the fusion of a changed node.
    fusions = graph.fusion_node[core]
    is_shown[fusions[fusions >= 0]] = True
    kept = [*core[:_MAX_NODES].tolist(), *np.flatnonzero(is_shown).tolist()]
    # Of a changed tuple of many values, those that stay are not shown.
    is_wide = np.fromiter(
        (changed.get(each) == "changed" for each in graph.node_names), np.bool_
    ) & (graph.operand_count > _MAX_OPERANDS)
    touches_target = (is_shown & ~is_wide)[graph.edge_targets]
    touches_source = is_shown[graph.edge_sources]
    kept += graph.edge_sources[touches_target].tolist()
    kept += graph.edge_targets[touches_source].tolist()
    kept_before = np.array(kept, np.int64)
    is_around = np.fromiter((each in around for each in graph.node_names), np.bool_)
    kept += np.flatnonzero(is_around).tolist()
    # What is next to a change in the other module alone has its operands beside it.
    is_around[kept_before] = False
    is_wide = graph.operand_count > _MAX_OPERANDS
    kept += graph.edge_sources[(is_around & ~is_wide)[graph.edge_targets]].tolist()
    nodes = list(dict.fromkeys(kept))
    chosen = np.sort(np.array(nodes[:_MAX_NODES], np.int64))
    return chosen, len(nodes) - len(chosen)


def _names(graph: HloGraph, nodes: Int64Array) -> set[str]:
    return {graph.node_names[node] for node in nodes.tolist()}


def _lines(module: HloModule, names: Set[str]) -> list[str]:
    return lines_by_computation(module, names)[:_MAX_LINES]
