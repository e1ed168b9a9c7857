# SPDX-License-Identifier: Apache-2.0
"""Greedy choices that lower a sum of weights and do not conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .._typing import BoolArray, Int64Array
from ..rewrite.choice_deltas import ChoiceDeltas, Weights

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives, Choice


class Greedy:
    """Takes the choices that lower a sum of weights, best first.

    Ignores gains that need two choices together; applying the policy again after these
    decisions finds most of them.

    Args:
        weights: weight of each instruction.
        allowed: which choices may be taken; all by default.
        duplicate_compared: also take choices that `Alternatives.duplicates_compared`
            marks.
    """

    def __init__(
        self,
        weights: Weights,
        allowed: Callable[[Choice], bool] | None = None,
        *,
        duplicate_compared: bool = False,
    ) -> None:
        self._weights = weights
        self._allowed = allowed
        self._duplicate_compared = duplicate_compared

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        return self.decide(alternatives)

    def decide(
        self, alternatives: Alternatives, allowed: BoolArray | None = None
    ) -> Int64Array:
        """[A] choices.

        Args:
            alternatives: what to decide.
            allowed: [X] which choices may be taken, in addition to the policy's test.
        """
        if self._allowed is not None:
            own = choices_that(alternatives, self._allowed)
            allowed = own if allowed is None else own & allowed
        if not self._duplicate_compared:
            usual = ~alternatives.duplicates_compared
            allowed = usual if allowed is None else usual & allowed
        return cheapest_choices(alternatives, self._weights, allowed)


def choices_that(
    alternatives: Alternatives, test: Callable[[Choice], bool]
) -> BoolArray:
    """[X] whether each choice passes the test; False for originals."""
    return np.fromiter(
        (
            index > 0 and test(choice)
            for alternative in alternatives
            for index, choice in enumerate(alternative.choices)
        ),
        np.bool_,
        int(alternatives.num_choices.sum()),
    )


def cheapest_choices(
    alternatives: Alternatives, weights: Weights, allowed: BoolArray | None = None
) -> Int64Array:
    """[A] choices that lower the sum of weights, best first, without conflicts.

    A choice is taken if it has a gain and does not conflict with a better one. Two
    choices conflict if both make an instruction dead (the gain would count twice), or
    one reads what the other makes dead (it would stay live). Gains therefore add up,
    and the result is no worse than the original. An indivisible pass is accepted if its
    gain exceeds the sum of all other gains.

    Args:
        alternatives: what to decide.
        weights: weight of each instruction.
        allowed: [X] which choices may be taken; all by default.
    """
    decisions = np.zeros(len(alternatives), np.int64)
    if len(alternatives) == 0:
        return decisions
    deltas = ChoiceDeltas(alternatives, weights)
    owner = np.repeat(np.arange(len(alternatives)), alternatives.num_choices)
    change = deltas.change
    if allowed is not None:
        change = np.where(allowed, change, np.inf)
    is_candidate = (change < 0) & ~deltas.is_indivisible[owner]
    candidates = np.flatnonzero(is_candidate)
    candidates = candidates[np.argsort(change[candidates], kind="stable")]
    dead, reads = deltas.dead(), deltas.reads()
    all_dead: set[int] = set()
    all_reads: set[int] = set()
    gain = 0.0
    for choice in candidates.tolist():
        index = owner[choice]
        is_free = all_dead.isdisjoint(dead[choice]) and not decisions[index]
        if (
            is_free
            and all_dead.isdisjoint(reads[choice])
            and all_reads.isdisjoint(dead[choice])
        ):
            decisions[index] = choice - deltas.first[index]
            all_dead |= dead[choice]
            all_reads |= reads[choice]
            gain += change[choice]
    indivisible = np.where(deltas.is_indivisible[owner], change, np.inf)
    best = int(np.argmin(indivisible))
    if indivisible[best] < gain:
        decisions[:] = 0
        decisions[owner[best]] = best - deltas.first[owner[best]]
    return decisions
