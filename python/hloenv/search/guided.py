# SPDX-License-Identifier: Apache-2.0
"""Search near the decisions of a policy."""

from __future__ import annotations

from typing import Any

from ..policies import get_policy
from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .neighborhood import flip_some, relevant


class PolicySearch(Search):
    """XLA's own decisions, a policy's, and then variations of the policy's.

    Policies with `sample(alternatives, rng)`, such as "gnn", draw the variations from
    their own probabilities; those of the others change some of their decisions.

    Args:
        game: the game to decide.
        seed: of the random draws.
        spec: the policy's name.
    """

    # A policy that is sure of its decisions draws the same ones again and again.
    max_repeats = 50

    def __init__(self, game: Game, *, seed: int = 0, spec: str) -> None:
        self._policy: Any = get_policy(spec, seed=seed)
        super().__init__(game, seed=seed)

    def _proposals(self) -> Proposals:
        yield self.game.complete()
        own = self.game.follow_policy(self._policy)
        yield own
        while True:
            yield self._drawn() if hasattr(self._policy, "sample") else self._near(own)

    def _drawn(self) -> Prefix:
        def draw(alternatives: Any, /) -> Any:
            return self._policy.sample(alternatives, self._rng)

        return self.game.follow_policy(draw)

    def _near(self, own: Prefix) -> Prefix:
        size = sum(each.size for each in relevant(self.game, own))
        count = max(1, round(float(max(1, size) ** self._rng.random())))
        return flip_some(self.game, own, count, self._rng)


register_search(
    "policy:NAME",
    "XLA's decisions, a policy's, and then variations of the policy's",
    PolicySearch,
)
