# SPDX-License-Identifier: Apache-2.0
"""Policies that need neither search nor learning: fixed rules and greedy ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..cost.roofline import Rates, node_seconds
from ..rewrite.choice_deltas import byte_weights, count_weights
from .base import register_policy
from .greedy import Greedy

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives


class AcceptAll:
    """Takes choice 1 everywhere: where passes compete, the first captured one wins.

    For one captured pass this is exactly what the pass itself would make, choices that
    `Alternatives.duplicates_compared` marks included.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] ones."""
        return np.ones(len(alternatives), np.int64)


class KeepOriginal:
    """Keeps every original."""

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] zeros."""
        return np.zeros(len(alternatives), np.int64)


class RandomChoice:
    """Takes each choice of an alternative, the original too, equally often.

    Args:
        seed: the decisions of the first call, of the second and so on follow from it.
        duplicate_compared: also take choices that `Alternatives.duplicates_compared`
            marks.
    """

    def __init__(self, seed: int = 0, *, duplicate_compared: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._duplicate_compared = duplicate_compared

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] in the range of each alternative's choices."""
        counts = alternatives.num_choices
        if len(counts) == 0:
            return np.zeros(0, np.int64)
        first = np.cumsum(counts) - counts
        is_usual = np.ones(int(counts.sum()), np.bool_)
        if not self._duplicate_compared:
            is_usual = ~alternatives.duplicates_compared
        # Of the choices that are left at each alternative, the drawn one.
        usual = np.flatnonzero(is_usual)
        usual_counts = np.add.reduceat(is_usual, first, dtype=np.int64)
        drawn = self._rng.integers(0, usual_counts, dtype=np.int64)
        return usual[np.cumsum(usual_counts) - usual_counts + drawn] - first


class FirstOnly:
    """Takes choice 1 of the first alternative that matters and rejects the rest.

    One rewrite at a time: asked again after each, it goes through what the passes
    would make step by step, but for what `Alternatives.duplicates_compared` marks.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] with a single 1, or none."""
        decisions = np.zeros(len(alternatives), np.int64)
        if len(alternatives) == 0:
            return decisions
        first = np.cumsum(alternatives.num_choices) - alternatives.num_choices
        is_usual = ~alternatives.duplicates_compared[first + 1]
        candidates = np.flatnonzero(alternatives.relevant(decisions) & is_usual)
        if candidates.size:
            decisions[candidates[0]] = 1
        return decisions


class FewestOps(Greedy):
    """Takes, at each alternative, the choice that leaves the fewest instructions.

    A choice costs the instructions that it adds and gains the originals that it alone
    makes dead; the original wins a tie, then the lower choice. A call counts its share
    of what it calls, but a fusion counts as one, whatever is inside.

    Greedy: the choice that gains most goes first, and those that would spoil a gain
    already counted are left out, so the result is never worse than the original.
    """

    def __init__(self) -> None:
        super().__init__(count_weights)


class LeastBytes(Greedy):
    """Takes, at each alternative, the choice that moves the fewest bytes.

    The bytes are those that XLA's cost analysis says an instruction reads and writes;
    where it does not know (custom calls), the sizes of operands and output. A loop's
    body counts once. Greedy as `FewestOps` is, with the same ties.
    """

    def __init__(self) -> None:
        super().__init__(byte_weights)


class GreedyRoofline(Greedy):
    """Takes, at each alternative, the choice that a roofline says is fastest.

    What an instruction computes and moves, as XLA's cost analysis has it, at the rates
    of a machine, and the time to start a kernel. A loop's body counts once. Greedy as
    `FewestOps` is, with the same ties.

    Args:
        rates: of the machine; those of one core of a server by default.
    """

    def __init__(self, rates: Rates | None = None) -> None:
        super().__init__(lambda graph: node_seconds(graph, rates))


register_policy(
    "accept-all",
    "take choice 1 everywhere: the rewrite of the first captured pass",
    lambda _: AcceptAll(),
)
register_policy(
    "keep-original",
    "keep every original",
    lambda _: KeepOriginal(),
    alias="reject-all",
)
register_policy("random", "uniformly random choices", RandomChoice, is_random=True)
register_policy("first", "take only the first relevant rewrite", lambda _: FirstOnly())
register_policy(
    "fewest-ops",
    "greedily take the choice that leaves the fewest instructions",
    lambda _: FewestOps(),
)
register_policy(
    "least-bytes",
    "greedily take the choice that moves the fewest bytes",
    lambda _: LeastBytes(),
)
register_policy(
    "greedy-roofline",
    "greedily take the choice that a roofline estimates to be fastest",
    lambda _: GreedyRoofline(),
)
