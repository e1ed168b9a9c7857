# SPDX-License-Identifier: Apache-2.0
"""Alternatives as rows, and one choice as a picture of before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._typing import Int64Array
from ..cost.roofline import node_seconds
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from ..hlo.numerics import Numerics, numerics_of
from ..hlo.passes import list_passes
from ..hlo.text import ModuleText, parse_text
from ..rewrite.alternatives import Alternatives, Choice
from ..rewrite.choice_deltas import ChoiceDeltas, count_weights
from .graph_data import instruction_lines, part_data
from .schema import AlternativeDetail, AlternativeRow, ChoiceRow

_MAX_NODES = 120
_MAX_OPERANDS = 6
_MAX_IRRELEVANT = 500
_CLASSES: tuple[Numerics, ...] = ("exact", "rounding", "unsafe")


def alternative_rows(alternatives: Alternatives) -> list[AlternativeRow]:
    """One row for each alternative, in order."""
    costs = alternatives.costs
    static = ChoiceDeltas(alternatives, count_weights).change_of(node_seconds)
    marks = alternatives.duplicates_compared
    module = HloModule._wrap(alternatives._capture.module())
    graph = HloGraph.from_module(module)
    node_of = {name: node for node, name in enumerate(graph.node_names)}
    rows: list[AlternativeRow] = []
    for alternative, source in zip(alternatives, alternatives.sources, strict=True):
        first = int(costs.first[alternative.index])
        choices: list[ChoiceRow] = []
        for number, choice in enumerate(alternative.choices):
            x = first + number
            choices.append(
                {
                    "opcode": choice.opcode,
                    "passes": list(choice.passes),
                    "rule": choice.rule,
                    "numerics": numerics_of_choice(choice),
                    "adds": len(choice.instructions),
                    "kills": len(choice.makes_dead),
                    "instructions": float(costs.instructions[x]),
                    "flops": float(costs.flops[x]),
                    "bytes": float(costs.bytes_accessed[x]),
                    "static_s": float(static[x]),
                    "compares_duplicates": bool(marks[x]),
                }
            )
        sites = alternative.sites
        node = node_of.get(sites[0].original, -1)
        rows.append(
            {
                "index": alternative.index,
                "kind": alternative.kind,
                "original": sites[0].original,
                "opcode": choices[0]["opcode"],
                "shape": graph.node_shapes[node] if node >= 0 else "",
                "computation": sites[0].computation,
                "source": "" if source is None else str(source),
                "sites": len(sites),
                "choices": choices,
            }
        )
    return rows


def numerics_of_choice(choice: Choice) -> str:
    """The weakest guarantee of the passes that propose a choice."""
    known = frozenset(list_passes())
    classes = [
        numerics_of(each) if each in known else "rounding" for each in choice.passes
    ]
    return max(classes, key=_CLASSES.index, default="exact")


def alternative_detail(
    alternatives: Alternatives, module: HloModule, index: int, choice: int
) -> AlternativeDetail:
    """What one choice changes, if it alone is taken.

    Args:
        alternatives: captured on `module`.
        module: before the decisions.
        index: of the alternative.
        choice: from 1.
    """
    undecided = alternatives.leave_to_xla()
    decisions = undecided.copy()
    decisions[index] = choice
    after = alternatives.apply(decisions, partial=True)
    first, second = HloGraph.from_module(module), HloGraph.from_module(after)
    changed = _changes(module, after)
    before_nodes, left_before = _neighbourhood(first, changed)
    after_nodes, left_after = _neighbourhood(second, changed)
    was, now = alternatives.relevant(undecided), alternatives.relevant(decisions)
    lost = np.flatnonzero(was & ~now)
    alternative = alternatives[index]
    shown = alternative.choices[choice]
    return {
        "index": index,
        "choice": choice,
        "sites": [
            {
                "computation": site.computation,
                "original": site.original,
                "uses": [
                    f"{use.user} (operand {use.operand})" if use.user else "the result"
                    for use in site.uses
                ],
            }
            for site in alternative.sites
        ],
        "before": part_data(module, first, before_nodes),
        "after": part_data(after, second, after_nodes),
        "changed": changed,
        "text_before": _lines(module, changed, ("removed", "changed")),
        "text_after": _lines(after, changed, ("added", "changed")),
        "kills": list(shown.makes_dead),
        "makes_irrelevant": lost[:_MAX_IRRELEVANT].tolist(),
        "num_left_out": left_before + left_after,
    }


def _changes(before: HloModule, after: HloModule) -> dict[str, str]:
    """Kind of change by name: a decision leaves the names of what stays."""
    old, new = (
        _operands(parse_text(before.to_text())),
        _operands(parse_text(after.to_text())),
    )
    changed = {name: "removed" for name in old if name not in new}
    for name, operands in new.items():
        if name not in old:
            changed[name] = "added"
        elif operands != old[name]:
            changed[name] = "changed"
    return changed


def _operands(text: ModuleText) -> dict[str, tuple[str, ...]]:
    """By name of an instruction: opcode, shape and names of its operands."""
    found = {}
    for computation in text.computations.values():
        instructions = computation.instructions
        for number, each in enumerate(instructions):
            is_root = "root" if number == computation.root else ""
            operands = [instructions[i].name for i in each.operands]
            found[each.name] = (each.opcode, each.shape, is_root, *operands)
    return found


def _neighbourhood(graph: HloGraph, changed: dict[str, str]) -> tuple[Int64Array, int]:
    """Changed nodes with their operands and users, and how many are left out."""
    is_shown = np.fromiter((each in changed for each in graph.node_names), np.bool_)
    core = np.flatnonzero(is_shown)
    # What an added fusion contains is part of it; so is the fusion of a changed node.
    around = graph.fusion_node[core]
    is_shown[around[around >= 0]] = True
    kept = [*core[:_MAX_NODES].tolist(), *np.flatnonzero(is_shown).tolist()]
    # Of a changed tuple of many values, those that stay are not shown.
    is_wide = np.fromiter(
        (changed.get(each) == "changed" for each in graph.node_names), np.bool_
    ) & (graph.operand_count > _MAX_OPERANDS)
    touches_target = (is_shown & ~is_wide)[graph.edge_targets]
    touches_source = is_shown[graph.edge_sources]
    kept += graph.edge_sources[touches_target].tolist()
    kept += graph.edge_targets[touches_source].tolist()
    nodes = list(dict.fromkeys(kept))
    chosen = np.sort(np.array(nodes[:_MAX_NODES], np.int64))
    return chosen, len(nodes) - len(chosen)


def _lines(
    module: HloModule, changed: dict[str, str], kinds: Sequence[str]
) -> list[str]:
    names = {name for name, kind in changed.items() if kind in kinds}
    return list(instruction_lines(module, names).values())[:_MAX_NODES]
