# SPDX-License-Identifier: Apache-2.0
"""Initial points of searches: XLA's own decisions, and those of fixed rules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from ..errors import HloEnvError
from ..hlo.passes import as_pipeline, pass_names
from ..policies import get_policy
from ..policies.known_forms import FORM_PASSES
from ..rewrite.game import Game, Prefix

# Ordered by how often they are the best.
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
    """Distinct complete prefixes, XLA's own decisions first.

    The next are XLA's own decisions without the rewrites that are known to cost, if
    there are any (`hloenv.policies.AvoidCostly`), and, with forms among the passes, the
    known faster ones. With one decision point: each rule. With several: each rule at
    the main decision point (the first with a default pass of XLA, or the last), with
    every rewrite accepted at points without a default; each rule at all points; and
    each rule at one point, with XLA's own decisions at the others. Rules for which a
    later pass fails are omitted.
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
    with contextlib.suppress(HloEnvError):
        yield from _without_costly(game)
    yield from _by_known_forms(game, default)
    if len(game.stops) > 1:
        yield from _at_main_point(game)
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


def _by_known_forms(game: Game, default: Prefix) -> Iterator[Prefix]:
    """Known faster forms where forms are decided, and else XLA's own decisions."""
    for stop, point in enumerate(game.stops):
        if set(FORM_PASSES).isdisjoint(
            pass_names([as_pipeline(each) for each in point.passes])
        ):
            continue
        with contextlib.suppress(HloEnvError):
            known = game.ask_policy(get_policy("known-forms"), default[:stop])
            yield game.complete((*default[:stop], np.maximum(known, 0)))


def _without_costly(game: Game) -> Iterator[Prefix]:
    """XLA's own decisions, but without the rewrites that are known to cost."""
    policy = get_policy("avoid-costly")
    prefix: Prefix = ()
    is_other = False
    while len(prefix) < len(game.stops):
        decisions = game.default(prefix).copy()
        is_rejected = game.ask_policy(policy, prefix) == 0
        is_other |= bool((is_rejected & (decisions != 0)).any())
        decisions[is_rejected] = 0
        prefix = (*prefix, decisions)
    if is_other:
        yield prefix


def _at_main_point(game: Game) -> Iterator[Prefix]:
    """XLA's decisions, then each rule's, at the main decision point.

    Accepts every rewrite at decision points without a default.
    """
    has_default = [bool(stop.default) for stop in game.stops]
    main = has_default.index(True) if any(has_default) else len(has_default) - 1

    def others(prefix: Prefix, end: int) -> Prefix:
        """`prefix`, completed up to decision point `end`."""
        while len(prefix) < end:
            if has_default[len(prefix)]:
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
