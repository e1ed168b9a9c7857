# SPDX-License-Identifier: Apache-2.0
"""Which changes static cost says are promising."""

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
        stop: at which.
        alternative: of that stop.
        choice: taken instead of the present one.
        change_s: what that changes by itself, by static cost, in seconds.
    """

    stop: int
    alternative: int
    choice: int
    change_s: float


class GainScore:
    """Static costs of single choices, kept for the captures seen last."""

    def __init__(self, game: Game, *, kept: int = 64) -> None:
        self._game = game
        self._kept = kept
        self._costs: dict[int, tuple[Alternatives, Int64Array, Float64Array]] = {}

    def costs(self, alternatives: Alternatives) -> tuple[Int64Array, Float64Array]:
        """[A] first choice of each alternative, and [X] seconds of all choices."""
        known = self._costs.get(id(alternatives))
        if known is None:
            if len(alternatives):
                effects = ChoiceDeltas(alternatives, node_seconds)
                known = (alternatives, effects.first, effects.change)
            else:
                known = (alternatives, np.zeros(0, np.int64), np.zeros(0))
            self._costs[id(alternatives)] = known
            if len(self._costs) > self._kept:
                del self._costs[next(iter(self._costs))]
        return known[1], known[2]

    def flips(self, decided: Prefix) -> list[Flip]:
        """Every single decision that matters changed, the most promising first."""
        found = []
        for stop, matter in enumerate(relevant(self._game, decided)):
            alternatives = self._game.alternatives(decided[:stop])
            first, change = self.costs(alternatives)
            for index in matter.tolist():
                now = int(decided[stop][index])
                base = int(first[index])
                present = max(now, 0)  # what is left to XLA is as it was
                for choice in range(int(alternatives.num_choices[index])):
                    if choice != now:
                        change_s = float(change[base + choice] - change[base + present])
                        found.append(Flip(stop, index, choice, change_s))
        return sorted(found, key=lambda flip: flip.change_s)

    def weights(self, alternatives: Alternatives) -> Float64Array:
        """[A] the largest change in seconds, either way, that each may make."""
        first, change = self.costs(alternatives)
        if first.size == 0:
            return np.zeros(0)
        return np.maximum.reduceat(np.abs(change), first)
