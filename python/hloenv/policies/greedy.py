# SPDX-License-Identifier: Apache-2.0
"""The choices that lower a sum of weights without spoiling each other."""

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

    What two choices gain only together is not seen; deciding again after applying finds
    much of what was left.

    Args:
        weights: what each instruction counts.
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
            allowed: [X] which choices may be taken, of those that the policy would.
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
    """[X] whether each choice of each alternative passes the test; no original does."""
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
    """[A] choices that lower the sum of weights, best first, none spoiling another.

    A choice is taken if it gains, and no better one makes dead what it makes dead (the
    gain would count twice) or what it reads (which would have to stay), nor reads what
    it makes dead. So the gains add up, and the result is no worse than the original.
    Where a pass can only be taken as a whole, it is taken if that alone gains more than
    all others together.

    Args:
        alternatives: what to decide.
        weights: what each instruction counts.
        allowed: [X] which choices may be taken; all by default.
    """
    decisions = np.zeros(len(alternatives), np.int64)
    if len(alternatives) == 0:
        return decisions
    effects = ChoiceDeltas(alternatives, weights)
    owner = np.repeat(np.arange(len(alternatives)), alternatives.num_choices)
    change = effects.change
    if allowed is not None:
        change = np.where(allowed, change, np.inf)
    is_candidate = (change < 0) & ~effects.is_indivisible[owner]
    candidates = np.flatnonzero(is_candidate)
    candidates = candidates[np.argsort(change[candidates], kind="stable")]
    dead, reads = effects.dead(), effects.reads()
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
            decisions[index] = choice - effects.first[index]
            all_dead |= dead[choice]
            all_reads |= reads[choice]
            gain += change[choice]
    whole = np.where(effects.is_indivisible[owner], change, np.inf)
    best = int(np.argmin(whole))
    if whole[best] < gain:
        decisions[:] = 0
        decisions[owner[best]] = best - effects.first[owner[best]]
    return decisions
