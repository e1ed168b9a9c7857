# SPDX-License-Identifier: Apache-2.0
"""Alternatives as rows, and one choice as a picture of before and after."""

from __future__ import annotations

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
from .before_after import before_after
from .schema import (
    AlternativeDetail,
    AlternativeRow,
    ChoiceRow,
    DecisionDifference,
)

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


def decision_differences(
    alternatives: Alternatives, first: Int64Array, second: Int64Array
) -> list[DecisionDifference]:
    """What two decisions differ in, the largest static estimates first.

    Args:
        alternatives: that are decided.
        first: [A] choices, -1 for what is left to later passes.
        second: [A] likewise.

    Returns:
        The alternatives with another choice that at least one of the decisions leaves
        relevant.
    """
    relevant = alternatives.relevant(first) | alternatives.relevant(second)
    static = ChoiceDeltas(alternatives, count_weights).change_of(node_seconds)
    # What is left to later passes counts as the original.
    first_s, second_s = (
        static[alternatives.costs.first + np.maximum(each, 0)]
        for each in (first, second)
    )
    others = np.flatnonzero((first != second) & relevant)
    change = second_s - first_s
    return [
        {
            "index": int(each),
            "first": int(first[each]),
            "second": int(second[each]),
            "static_s": float(change[each]),
        }
        for each in others[np.argsort(-np.abs(change[others]), kind="stable")]
    ]


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
        "kills": list(shown.makes_dead),
        "makes_irrelevant": lost[:_MAX_IRRELEVANT].tolist(),
        **before_after(module, after, _changes(module, after)),
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
