# SPDX-License-Identifier: Apache-2.0
"""Where searches start: XLA's own decisions, and what fixed rules decide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import HloEnvError
from ..policies import get_policy
from ..rewrite.game import Game, Prefix

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

    XLA's own first. Where there are several stops, each rule at the first where XLA has
    decisions of its own, or at the last, and every rewrite taken at the others where it
    has none. Then each rule at every stop, and, where there are several, each rule at
    one of them and XLA's own decisions at the others. A rule that XLA's later passes
    cannot follow is left out.
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
        yield from _beside_accepted(game)
    for name in _RULES:
        with contextlib.suppress(HloEnvError):
            yield game.follow_policy(get_policy(name))
    if len(game.stops) == 1:
        return
    for stop in range(len(game.stops)):
        for name in _RULES:
            with contextlib.suppress(HloEnvError):
                decisions = game.ask_policy(get_policy(name), default[:stop])
                yield game.complete((*default[:stop], decisions))


def _beside_accepted(game: Game) -> Iterator[Prefix]:
    """What rules decide at the main stop, everything accepted where XLA does nothing.

    XLA's own decisions come before the rules'.
    """
    owned = [bool(stop.default) for stop in game.stops]
    main = owned.index(True) if any(owned) else len(owned) - 1

    def others(prefix: Prefix, end: int) -> Prefix:
        """`prefix`, and what the other stops before `end` take."""
        while len(prefix) < end:
            if owned[len(prefix)]:
                prefix = (*prefix, game.default(prefix))
            else:
                taken = game.ask_policy(get_policy("accept-all"), prefix)
                prefix = (*prefix, taken)
        return prefix

    try:
        before = others((), main)
    except HloEnvError:
        return
    with contextlib.suppress(HloEnvError):
        yield others((*before, game.default(before)), len(game.stops))
    for name in _RULES:
        with contextlib.suppress(HloEnvError):
            chosen = game.ask_policy(get_policy(name), before)
            yield others((*before, chosen), len(game.stops))


def _key(game: Game, prefix: Prefix) -> tuple[bytes, ...]:
    return tuple(each.tobytes() for each in game.canonical(prefix))
