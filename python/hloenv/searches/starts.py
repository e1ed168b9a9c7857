# SPDX-License-Identifier: Apache-2.0
"""Where searches start: XLA's own decisions, and what fixed rules decide."""

from __future__ import annotations

from ..errors import HloEnvError
from ..game import Game, Prefix
from ..policies import get_policy

# In order of how often they are the best.
_RULES = (
    "keep-original",
    "accept-all",
    "fewest-ops",
    "least-bytes",
    "greedy-roofline",
    "fuse-by-bytes",
    "fuse-all-legal",
)


def starting_points(game: Game) -> list[Prefix]:
    """Complete prefixes that differ: XLA's own first, then each rule at every stop.

    A rule that XLA's later passes cannot follow is left out.
    """
    points = [game.complete()]
    seen = {_key(game, points[0])}
    for name in _RULES:
        try:
            prefix = game.follow_policy(get_policy(name))
            key = _key(game, prefix)
        except HloEnvError:
            continue
        if key not in seen:
            seen.add(key)
            points.append(prefix)
    return points


def _key(game: Game, prefix: Prefix) -> tuple[bytes, ...]:
    return tuple(each.tobytes() for each in game.essence(prefix))
