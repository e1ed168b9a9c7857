# SPDX-License-Identifier: Apache-2.0
"""Searches: one ask/tell interface over the decisions of a `Game`.

    passes = ("fusion", "general-fusion")
    game = Game(module, [DecisionPoint(passes, where="fusion", default="fusion")])
    search = get_search("evolve", game, seed=0)
    while (prefix := search.ask()) is not None and len(search.history) < 200:
        search.tell(prefix, seconds_of(game.play(prefix)))

`hloenv.search.run_search` does this with estimates, and measures the best of them.
"""

from __future__ import annotations

from .annealing import Anneal, HillClimb
from .base import (
    Search,
    UnknownSearchError,
    describe_search,
    get_search,
    list_searches,
    register_search,
)
from .beam import Beam
from .evolution import Evolve
from .guided import PolicySearch
from .initial import starting_points
from .mcts import TreeSearch
from .optuna import OptunaSearch
from .random import RandomSearch
from .spaces import SPACES

__all__ = [
    "SPACES",
    "Anneal",
    "Beam",
    "Evolve",
    "HillClimb",
    "OptunaSearch",
    "PolicySearch",
    "RandomSearch",
    "Search",
    "TreeSearch",
    "UnknownSearchError",
    "describe_search",
    "get_search",
    "list_searches",
    "register_search",
    "starting_points",
]
