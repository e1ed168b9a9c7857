# SPDX-License-Identifier: Apache-2.0
"""Evolution: a population of candidates that exchange decisions."""

from __future__ import annotations

from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import small_flip, take_region, take_some


class Evolve(Search):
    """Keeps a population; children of its better members replace its worst.

    Crossover takes the better parent with decisions of the other: on a region of the
    module, or each with probability 1/2. Mutation, after or instead of it, changes a
    few decisions.

    Args:
        game: the game to decide.
        seed: of the random draws.
        size: of the population.
        methods: tournament size, the members of which the fastest becomes a parent.
    """

    def __init__(
        self, game: Game, *, seed: int = 0, size: int = 16, methods: int = 3
    ) -> None:
        self._size = size
        self._methods = methods
        super().__init__(game, seed=seed)

    def _proposals(self) -> Proposals:
        # Sorted by time.
        population: list[tuple[float, Prefix]] = []
        for start in starting_points(self.game):
            population.append(((yield start), start))
        population.sort(key=lambda member: member[0])
        keys = {self._key(member) for _, member in population}
        while True:
            child = self._child(population)
            seconds = yield child
            key = self._key(child)
            if key not in keys:
                population.append((seconds, child))
                population.sort(key=lambda member: member[0])
                del population[self._size :]
                keys = {self._key(member) for _, member in population}

    def _child(self, population: list[tuple[float, Prefix]]) -> Prefix:
        first, second = self._parent(population), self._parent(population)
        better, other = min(first, second), max(first, second)
        child = population[better][1]
        crossed = child
        if better != other and self._rng.random() < 0.6:
            take = take_region if self._rng.random() < 0.7 else take_some
            crossed = take(self.game, child, population[other][1], self._rng)
        if crossed is child or self._rng.random() < 0.4:
            return small_flip(self.game, crossed, self._rng)
        return crossed

    def _parent(self, population: list[tuple[float, Prefix]]) -> int:
        """Tournament selection; the position of the winner."""
        count = min(self._methods, len(population))
        return int(self._rng.choice(len(population), count, replace=False).min())


register_search(
    "evolve",
    "evolution: the better members of a population exchange decisions by region",
    Evolve,
)
