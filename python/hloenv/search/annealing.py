# SPDX-License-Identifier: Apache-2.0
"""Hill climbing and simulated annealing: one candidate that moves in small steps."""

from __future__ import annotations

import math

from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import step


class Anneal(Search):
    """Moves in small steps; a step to what is slower is taken by chance.

    Starts at the fastest of the starting points. A step that costs a share s of the
    time of the start is taken with probability exp(-s / temperature), and the
    temperature falls geometrically; after `steps` it is at its end.

    Args:
        game: what is decided.
        seed: of the steps.
        steps: until the temperature is at its end.
        hot: temperature at the start.
        cold: temperature at the end; 0, with `hot`, never takes what is slower.
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
        now: Prefix | None = None
        now_s = math.inf
        for start in starts:
            seconds = yield start
            if now is None or seconds < now_s:
                now, now_s = start, seconds
        assert now is not None
        scale = now_s if 0 < now_s < math.inf else 1.0
        tried = 0
        while True:
            changed = step(self.game, now, starts, self._rng)
            seconds = yield changed
            if self._is_taken((seconds - now_s) / scale, tried):
                now, now_s = changed, seconds
            tried += 1

    def _is_taken(self, worse: float, tried: int) -> bool:
        if not worse > 0:  # NaN too: both failed
            return True
        if self._hot <= 0 or self._cold <= 0 or math.isinf(worse):
            return False
        progress = min(1.0, tried / self._steps)
        temperature = self._hot * (self._cold / self._hot) ** progress
        return bool(self._rng.random() < math.exp(-worse / temperature))


class HillClimb(Anneal):
    """Moves in small steps, never to what is slower.

    Args:
        game: what is decided.
        seed: of the steps.
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
