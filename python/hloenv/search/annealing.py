# SPDX-License-Identifier: Apache-2.0
"""Hill climbing and simulated annealing."""

from __future__ import annotations

import math

from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import step


class Anneal(Search):
    """Simulated annealing from the fastest initial point.

    A candidate that is slower by a share s of the initial time is accepted with
    probability exp(-s / temperature). The temperature falls geometrically for `steps`
    candidates.

    Args:
        game: the game to decide.
        seed: of the random draws.
        steps: candidates until the final temperature.
        hot: initial temperature.
        cold: final temperature; if it or `hot` is 0, slower candidates are rejected.
    """

    def __init__(
        self,
        game: Game,
        *,
        seed: int = 0,
        steps: int = 200,
        hot: float = 0.02,
        cold: float = 0.0005,
    ) -> None:
        self._steps = steps
        self._hot = hot
        self._cold = cold
        super().__init__(game, seed=seed)

    def _proposals(self) -> Proposals:
        starts = starting_points(self.game)
        current: Prefix | None = None
        current_s = math.inf
        for start in starts:
            seconds = yield start
            if current is None or seconds < current_s:
                current, current_s = start, seconds
        assert current is not None
        scale = current_s if 0 < current_s < math.inf else 1.0
        count = 0
        while True:
            changed = step(self.game, current, starts, self._rng)
            seconds = yield changed
            if self._is_accepted((seconds - current_s) / scale, count):
                current, current_s = changed, seconds
            count += 1

    def _is_accepted(self, worse: float, count: int) -> bool:
        if not worse > 0:  # NaN too: both failed
            return True
        if self._hot <= 0 or self._cold <= 0 or math.isinf(worse):
            return False
        progress = min(1.0, count / self._steps)
        temperature = self._hot * (self._cold / self._hot) ** progress
        return bool(self._rng.random() < math.exp(-worse / temperature))


class HillClimb(Anneal):
    """Hill climbing from the fastest initial point; rejects slower candidates.

    Args:
        game: the game to decide.
        seed: of the random draws.
    """

    def __init__(self, game: Game, *, seed: int = 0) -> None:
        super().__init__(game, seed=seed, hot=0.0, cold=0.0)


register_search(
    "hill-climb",
    "small random changes of the best starting point; accepts no worse candidate",
    HillClimb,
)
register_search(
    "anneal",
    "simulated annealing: accepts worse candidates while the temperature is high",
    Anneal,
)
