# SPDX-License-Identifier: Apache-2.0
"""The choices that lower a sum of weights without spoiling each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..effects import Effects, Int64Array, Weights

if TYPE_CHECKING:
    from ..rewrite import Alternatives


def cheapest_choices(alternatives: Alternatives, weights: Weights) -> Int64Array:
    """[A] choices that lower the sum of weights, best first, none spoiling another.

    A choice is taken if it gains, and no better one makes dead what it makes dead (the
    gain would count twice) or what it reads (which would have to stay), nor reads what
    it makes dead. So the gains add up, and the result is no worse than the original.
    Where a pass can only be taken as a whole, it is taken if that alone gains more than
    all others together.
    """
    decisions = np.zeros(len(alternatives), np.int64)
    if len(alternatives) == 0:
        return decisions
    effects = Effects(alternatives, weights)
    owner = np.repeat(np.arange(len(alternatives)), alternatives.num_choices)
    is_candidate = (effects.change < 0) & ~effects.is_whole[owner]
    candidates = np.flatnonzero(is_candidate)
    candidates = candidates[np.argsort(effects.change[candidates], kind="stable")]
    dead, reads = effects.dead(), effects.reads()
    all_dead: set[int] = set()
    all_reads: set[int] = set()
    gain = 0.0
    for choice in candidates.tolist():
        index = owner[choice]
        is_free = all_dead.isdisjoint(dead[choice]) and not decisions[index]
        if (
            is_free
            and all_dead.isdisjoint(reads[choice])
            and all_reads.isdisjoint(dead[choice])
        ):
            decisions[index] = choice - effects.first[index]
            all_dead |= dead[choice]
            all_reads |= reads[choice]
            gain += effects.change[choice]
    whole = np.where(effects.is_whole[owner], effects.change, np.inf)
    best = int(np.argmin(whole))
    if whole[best] < gain:
        decisions[:] = 0
        decisions[owner[best]] = best - effects.first[owner[best]]
    return decisions
