# SPDX-License-Identifier: Apache-2.0
"""Where searches start: XLA's own decisions, and what fixed rules decide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import HloEnvError
from ..game import Game, Prefix
from ..policies import get_policy
from ..rewrite import as_decisions

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
    """Complete prefixes that differ.

    XLA's own first. Where there are several stops, each rule at the last one, after
    every rewrite was taken at those before. Then each rule at every stop, and, where
    there are several, each rule at one of them and XLA's own decisions at the others. A
    rule that XLA's later passes cannot follow is left out.
    """
    points = [game.complete()]
    seen = {_key(game, points[0])}
    for prefix in _by_rules(game, points[0]):
        try:
            key = _key(game, prefix)
        except HloEnvError:
            continue
        if key not in seen:
            seen.add(key)
            points.append(prefix)
    return points


def _by_rules(game: Game, default: Prefix) -> Iterator[Prefix]:
    if len(game.stops) > 1:
        yield from _at_last(game)
    for name in _RULES:
        with contextlib.suppress(HloEnvError):
            yield game.follow_policy(get_policy(name))
    if len(game.stops) == 1:
        return
    for stop in range(len(game.stops)):
        for name in _RULES:
            with contextlib.suppress(HloEnvError):
                decisions = get_policy(name)(game.alternatives(default[:stop]))
                yield game.complete((*default[:stop], as_decisions(decisions)))


def _at_last(game: Game) -> Iterator[Prefix]:
    accepted: Prefix = ()
    try:
        for _ in game.stops[1:]:
            decisions = get_policy("accept-all")(game.alternatives(accepted))
            accepted = (*accepted, as_decisions(decisions))
        yield game.complete(accepted)
        alternatives = game.alternatives(accepted)
    except HloEnvError:
        return
    for name in _RULES:
        with contextlib.suppress(HloEnvError):
            yield (*accepted, as_decisions(get_policy(name)(alternatives)))


def _key(game: Game, prefix: Prefix) -> tuple[bytes, ...]:
    return tuple(each.tobytes() for each in game.essence(prefix))
