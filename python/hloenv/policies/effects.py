# SPDX-License-Identifier: Apache-2.0
"""What each choice would change in a module, as sums over instructions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ..graph import HloGraph
    from ..rewrite import Alternatives

Float64Array = npt.NDArray[np.float64]
# From a graph to what each of its nodes counts: [N].
Weights = Callable[["HloGraph"], Float64Array]


def count_weights(graph: HloGraph) -> Float64Array:
    """[N] instructions that a node stands for: itself and its share of what it calls.

    A computation is shared by its callers; the body of a fusion counts nothing.
    """
    weights = np.ones(graph.num_nodes)
    num_callers = np.bincount(graph.call_computations, minlength=graph.num_computations)
    totals = np.diff(graph.computation_offsets).astype(np.float64)
    calls = zip(
        graph.call_nodes.tolist(), graph.call_computations.tolist(), strict=True
    )
    # Callees come before callers, so a total is complete when it is read.
    for node, callee in calls:
        if not graph.computation_is_fusion[callee]:
            share = totals[callee] / num_callers[callee]
            weights[node] += share
            totals[graph.computation[node]] += share
    return weights


def byte_weights(graph: HloGraph) -> Float64Array:
    """[N] bytes read and written, as XLA's cost analysis has them.

    Where it does not know (custom calls), the bytes of the operands and the output.
    """
    known = graph.bytes_accessed
    return np.where(known >= 0, known, graph.input_bytes + graph.output_bytes)


def choice_effects(alternatives: Alternatives, weights: Weights) -> Float64Array:
    """[X] change of the sum of weights, if this choice alone is taken.

    X counts the choices of all alternatives, one alternative after the other, the
    originals (0) included.
    """
    offsets = np.cumsum(alternatives.num_choices) - alternatives.num_choices
    effects = np.zeros(int(alternatives.num_choices.sum()))
    added: list[tuple[str, ...]] = []
    dead: list[tuple[str, ...]] = []
    whole: list[int] = []
    for alternative in alternatives:
        if alternative.kind == "pass":
            whole.append(alternative.index)
        for choice in alternative.choices:
            added.append(choice.instructions)
            dead.append(choice.makes_dead)
    graph = alternatives.graph
    # The last row is for names in computations that nothing calls.
    by_row = np.append(weights(graph), 0.0)
    rows = {name: row for row, name in enumerate(graph.node_names)}
    for names, sign in ((added, 1.0), (dead, -1.0)):
        lengths = np.fromiter(map(len, names), np.int64, len(names))
        owner = np.repeat(np.arange(len(names)), lengths)
        row = np.fromiter(
            map(rows.get, chain.from_iterable(names), repeat(graph.num_nodes)), np.int64
        )
        effects += sign * np.bincount(owner, by_row[row], minlength=len(names))
    for index in whole:
        start = int(offsets[index])
        for number in range(1, int(alternatives.num_choices[index])):
            effects[start + number] = _whole_effect(
                alternatives, index, number, weights
            )
    return effects


def cheapest_choices(
    alternatives: Alternatives, weights: Weights
) -> npt.NDArray[np.int64]:
    """[A] the choice with the least effect; the lowest one of several.

    Where a pass can only be taken as a whole, it is taken if that alone gains more
    than all other alternatives together, whose decisions then do not matter.
    """
    if len(alternatives) == 0:
        return np.zeros(0, np.int64)
    num_choices = alternatives.num_choices
    offsets = np.cumsum(num_choices) - num_choices
    effects = choice_effects(alternatives, weights)
    least = np.minimum.reduceat(effects, offsets)
    is_least = np.flatnonzero(effects == np.repeat(least, num_choices))
    decisions: npt.NDArray[np.int64] = (
        is_least[np.searchsorted(is_least, offsets)] - offsets
    )
    is_whole = np.fromiter((each.kind == "pass" for each in alternatives), np.bool_)
    if is_whole.any():
        best = int(np.argmin(np.where(is_whole, least, np.inf)))
        keep = decisions[best]
        decisions[is_whole] = 0
        if least[best] < least[~is_whole].sum():
            decisions[best] = keep
    return decisions


def _whole_effect(
    alternatives: Alternatives, index: int, choice: int, weights: Weights
) -> float:
    from ..graph import HloGraph

    decisions = alternatives.reject_all()
    before = HloGraph.from_module(alternatives.apply(decisions))
    decisions[index] = choice
    after = HloGraph.from_module(alternatives.apply(decisions))
    return _entry_sum(after, weights) - _entry_sum(before, weights)


def _entry_sum(graph: HloGraph, weights: Weights) -> float:
    """Sum over the entry, whose calls stand for all other computations."""
    return float(weights(graph)[graph.computation_offsets[-2] :].sum())
