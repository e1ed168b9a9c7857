# SPDX-License-Identifier: Apache-2.0
"""Neighbourhood of the decisions of a game."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..errors import HloEnvError
from ..rewrite.game import Game, Prefix

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives

# Maximum share of the relevant decisions that a small change affects.
LARGEST_CHANGE = 0.05
# From the prefix before a decision point and the decisions there to new decisions.
Change = Callable[[Prefix, Int64Array], Int64Array]


def vary(game: Game, decided: Prefix, change: Change) -> Prefix:
    """`decided` with `change` applied at each decision point; carries the rest over.

    Reverts changes after which a pass fails, or that are not `Game.admissible`.
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
    """Indices of the relevant alternatives at each decision point."""
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
    """[A] the decisions, with at most `count` relevant ones changed."""
    indices = np.flatnonzero(alternatives.relevant(decisions))
    count = min(count, indices.size)
    if count == 0:
        return decisions
    where = rng.choice(indices, count, replace=False)
    changed = decisions.copy()
    changed[where] = other_choices(
        decisions[where], alternatives.num_choices[where], rng
    )
    return changed


def other_choices(
    present: Int64Array, num_choices: Int64Array, rng: np.random.Generator
) -> Int64Array:
    """[N] uniformly random choices other than the present ones (-1: none)."""
    is_open = present < 0
    others = rng.integers(np.where(is_open, 0, 1), num_choices)
    return np.where(is_open, others, (present + others) % num_choices)


def flip_some(
    game: Game, decided: Prefix, count: int, rng: np.random.Generator
) -> Prefix:
    """`decided` with `count` relevant decisions changed, at any decision points."""
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
    """A few decisions that indices changed: one most often, two half as often, ..."""
    size = sum(each.size for each in relevant(game, decided))
    largest = max(2, int(LARGEST_CHANGE * size))
    return flip_some(game, decided, min(int(rng.geometric(0.5)), largest), rng)


def take_some(
    game: Game, decided: Prefix, other: Prefix, rng: np.random.Generator
) -> Prefix:
    """`decided` with each decision of `other` with probability 1/2."""

    def take(prefix: Prefix, now: Int64Array) -> Int64Array:
        theirs = game.follow(other, prefix)
        return np.where(rng.random(now.size) < 0.5, theirs, now)

    return vary(game, decided, take)


def take_region(
    game: Game, decided: Prefix, other: Prefix, rng: np.random.Generator
) -> Prefix:
    """`decided` with the decisions of `other` on a region of one decision point.

    A region is an interval of alternatives in module order, of log-uniform length, at a
    decision point where the two differ.
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
        differences = np.flatnonzero(theirs != now)
        if differences.size == 0:
            return now
        length = max(1, round(float(now.size ** rng.random())))
        begin = int(rng.choice(differences)) - int(rng.integers(0, length))
        begin, end = max(0, begin), begin + length
        changed = now.copy()
        changed[begin:end] = theirs[begin:end]
        return changed

    return vary(game, decided, take)


def step(
    game: Game, decided: Prefix, others: list[Prefix], rng: np.random.Generator
) -> Prefix:
    """A small change: a few flips, or a region of another candidate's decisions.

    Undoing a fusion of twenty instructions, for example, requires twenty consistent
    decisions, which a region of another candidate may contain.
    """
    if others and rng.random() < 0.5:
        other = others[int(rng.integers(len(others)))]
        return take_region(game, decided, other, rng)
    return small_flip(game, decided, rng)
