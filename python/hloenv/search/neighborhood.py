# SPDX-License-Identifier: Apache-2.0
"""Steps from some decisions of a game to others near them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..errors import HloEnvError
from ..rewrite.game import Game, Prefix

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives

# Of all decisions that matter, changed at most in one small step.
LARGEST_CHANGE = 0.05
# From what is decided before a stop, and the decisions there so far, to new ones.
Change = Callable[[Prefix, Int64Array], Int64Array]


def vary(game: Game, decided: Prefix, change: Change) -> Prefix:
    """`decided`, changed stop by stop, with what is left as it is carried over.

    A change that a later stop cannot follow, because a pass fails there, is undone, and
    so is one that is not `Game.admissible`.
    """
    prefix: Prefix = ()
    try:
        while len(prefix) < len(game.stops):
            changed = change(prefix, game.follow(decided, prefix))
            prefix = (*prefix, game.admissible(prefix, changed))
    except HloEnvError:
        return decided
    return prefix


def relevant(game: Game, decided: Prefix) -> list[Int64Array]:
    """For each stop, the alternatives that make a difference."""
    return [
        np.flatnonzero(game.alternatives(decided[:stop]).relevant(each))
        for stop, each in enumerate(decided)
    ]


def flip(
    alternatives: Alternatives,
    decisions: Int64Array,
    count: int,
    rng: np.random.Generator,
) -> Int64Array:
    """[A] the decisions with at most `count` of those changed that matter."""
    matter = np.flatnonzero(alternatives.relevant(decisions))
    count = min(count, matter.size)
    if count == 0:
        return decisions
    where = rng.choice(matter, count, replace=False)
    changed = decisions.copy()
    changed[where] = other_choices(
        decisions[where], alternatives.num_choices[where], rng
    )
    return changed


def other_choices(
    present: Int64Array, num_choices: Int64Array, rng: np.random.Generator
) -> Int64Array:
    """[N] another choice than each present one (-1: none), all equally likely."""
    is_open = present < 0
    others = rng.integers(np.where(is_open, 0, 1), num_choices)
    return np.where(is_open, others, (present + others) % num_choices)


def flip_some(
    game: Game, decided: Prefix, count: int, rng: np.random.Generator
) -> Prefix:
    """`count` decisions that matter changed, at any of the stops."""
    sizes = np.array([each.size for each in relevant(game, decided)])
    if sizes.sum() == 0:
        return decided
    counts = rng.multinomial(count, sizes / sizes.sum())
    return vary(
        game,
        decided,
        lambda prefix, now: flip(
            game.alternatives(prefix), now, int(counts[len(prefix)]), rng
        ),
    )


def small_flip(game: Game, decided: Prefix, rng: np.random.Generator) -> Prefix:
    """A few decisions that matter changed: one most often, two half as often, ..."""
    size = sum(each.size for each in relevant(game, decided))
    largest = max(2, int(LARGEST_CHANGE * size))
    return flip_some(game, decided, min(int(rng.geometric(0.5)), largest), rng)


def take_some(
    game: Game, decided: Prefix, other: Prefix, rng: np.random.Generator
) -> Prefix:
    """`decided`, with each decision of `other` as likely as not."""

    def take(prefix: Prefix, now: Int64Array) -> Int64Array:
        theirs = game.follow(other, prefix)
        return np.where(rng.random(now.size) < 0.5, theirs, now)

    return vary(game, decided, take)


def take_region(
    game: Game, decided: Prefix, other: Prefix, rng: np.random.Generator
) -> Prefix:
    """`decided`, with the decisions of `other` on a region of one stop.

    A region is what lies together in the order of the module. The stop is one where the
    two differ; any length is equally likely on a logarithmic scale.
    """
    differ = [
        stop
        for stop, (ours, theirs) in enumerate(zip(decided, other, strict=True))
        if not np.array_equal(ours, theirs)
    ]
    if not differ:
        return decided
    where = int(rng.choice(differ))

    def take(prefix: Prefix, now: Int64Array) -> Int64Array:
        if len(prefix) != where or now.size == 0:
            return now
        theirs = game.follow(other, prefix)
        # Around a place where they differ, if there is one.
        places = np.flatnonzero(theirs != now)
        if places.size == 0:
            return now
        length = max(1, round(float(now.size ** rng.random())))
        begin = int(rng.choice(places)) - int(rng.integers(0, length))
        begin, end = max(0, begin), begin + length
        changed = now.copy()
        changed[begin:end] = theirs[begin:end]
        return changed

    return vary(game, decided, take)


def step(
    game: Game, decided: Prefix, others: list[Prefix], rng: np.random.Generator
) -> Prefix:
    """A small step: a few flips, or a region of another candidate's decisions.

    Where XLA fuses twenty instructions into one, what becomes of each when that fusion
    is left undone takes twenty decisions, which another candidate may have made.
    """
    if others and rng.random() < 0.5:
        other = others[int(rng.integers(len(others)))]
        return take_region(game, decided, other, rng)
    return small_flip(game, decided, rng)
