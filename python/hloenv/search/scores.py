# SPDX-License-Identifier: Apache-2.0
"""Gain scores of changes, by static cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._typing import Float64Array, Int64Array
from ..cost.roofline import node_seconds
from ..rewrite.alternatives import Alternatives
from ..rewrite.choice_deltas import ChoiceDeltas
from ..rewrite.game import Game, Prefix
from .neighborhood import relevant


@dataclass(frozen=True)
class Flip:
    """One decision changed.

    Attributes:
        stop: index of the decision point.
        alternative: index of the alternative.
        choice: the new choice.
        change_s: change of the static cost, in seconds.
    """

    stop: int
    alternative: int
    choice: int
    change_s: float


# Captures whose costs are kept.
_MAX_KEPT = 64


class GainScore:
    """Static costs of single choices, cached for the most recent captures."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._costs: dict[int, tuple[Alternatives, Int64Array, Float64Array]] = {}

    def costs(self, alternatives: Alternatives) -> tuple[Int64Array, Float64Array]:
        """[A] first choice of each alternative, and [X] seconds of all choices."""
        known = self._costs.get(id(alternatives))
        if known is None:
            if len(alternatives):
                deltas = ChoiceDeltas(alternatives, node_seconds)
                known = (alternatives, deltas.first, deltas.change)
            else:
                known = (alternatives, np.zeros(0, np.int64), np.zeros(0))
            self._costs[id(alternatives)] = known
            if len(self._costs) > _MAX_KEPT:
                del self._costs[next(iter(self._costs))]
        return known[1], known[2]

    def flips(self, decided: Prefix) -> list[Flip]:
        """All single changes of relevant decisions, the highest gain score first."""
        flips = []
        for stop, relevant_indices in enumerate(relevant(self._game, decided)):
            alternatives = self._game.alternatives(decided[:stop])
            first, change = self.costs(alternatives)
            for index in relevant_indices.tolist():
                now = int(decided[stop][index])
                base = int(first[index])
                present = max(now, 0)  # undecided: the original
                for choice in range(int(alternatives.num_choices[index])):
                    if choice != now:
                        change_s = float(change[base + choice] - change[base + present])
                        flips.append(Flip(stop, index, choice, change_s))
        return sorted(flips, key=lambda flip: flip.change_s)

    def weights(self, alternatives: Alternatives) -> Float64Array:
        """[A] the largest absolute change of the static cost, in seconds."""
        first, change = self.costs(alternatives)
        if first.size == 0:
            return np.zeros(0)
        return np.maximum.reduceat(np.abs(change), first)
