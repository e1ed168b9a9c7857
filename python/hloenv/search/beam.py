# SPDX-License-Identifier: Apache-2.0
"""Beam search: keeps the best candidates and expands each by gain score."""

from __future__ import annotations

from .._typing import Int64Array
from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import step, vary
from .scores import Flip, GainScore


class Beam(Search):
    """Beam search.

    A member is expanded by the single changes with the highest gain scores, each once,
    by several of them together, and by small random changes.

    Args:
        game: the game to decide.
        seed: of the random draws.
        width: number of members.
        children: number of children of each member in a round.
    """

    def __init__(
        self, game: Game, *, seed: int = 0, width: int = 4, children: int = 6
    ) -> None:
        self._width = width
        self._children = children
        super().__init__(game, seed=seed)

    def _proposals(self) -> Proposals:
        starts = starting_points(self.game)
        gain_score = GainScore(self.game)
        # Sorted by time, each with its changes that are not evaluated yet.
        beam: list[tuple[float, Prefix, list[Flip]]] = []
        for start in starts:
            beam.append(((yield start), start, gain_score.flips(start)))
        beam.sort(key=lambda member: member[0])
        del beam[self._width :]
        while True:
            found = list(beam)
            keys = {self._key(member) for _, member, _ in found}
            for _, member, flips in beam:
                for child in self._expand(member, flips, starts):
                    seconds = yield child
                    # Changes may give a member that is there already.
                    if self._key(child) in keys:
                        continue
                    if len(found) < self._width or seconds < found[-1][0]:
                        found.append((seconds, child, gain_score.flips(child)))
                        found.sort(key=lambda each: each[0])
                        del found[self._width :]
                        keys = {self._key(member) for _, member, _ in found}
            beam = found

    def _expand(
        self, member: Prefix, flips: list[Flip], starts: list[Prefix]
    ) -> list[Prefix]:
        num_single = min(len(flips), self._children // 3)
        children = [self._flip(member, [flips.pop(0)]) for _ in range(num_single)]
        if len(flips) > 1:
            # About half of the best.
            first = flips[: 2 * self._children]
            taken = [each for each in first if self._rng.random() < 0.5]
            children.append(self._flip(member, taken))
        while len(children) < self._children:
            children.append(step(self.game, member, starts, self._rng))
        return children

    def _flip(self, member: Prefix, flips: list[Flip]) -> Prefix:
        """Applies changes at the first of their decision points.

        The alternatives at later decision points differ, so changes there are ignored.
        Of two changes of one decision, the first counts.
        """
        if not flips:
            return member
        stop = min(each.stop for each in flips)

        def change(prefix: Prefix, now: Int64Array) -> Int64Array:
            if len(prefix) == stop:
                now = now.copy()
                for each in reversed(flips):
                    if each.stop == stop:
                        now[each.alternative] = each.choice
            return now

        return vary(self.game, member, change)


register_search(
    "beam",
    "beam search: keep the best few, expand each by static gain score",
    Beam,
)
