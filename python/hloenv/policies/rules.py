# SPDX-License-Identifier: Apache-2.0
"""Fixed rules and greedy policies."""

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
    """Takes choice 1 everywhere, the choice of the first captured pass.

    For one captured pass this is exactly the result of the pass, including choices that
    `Alternatives.duplicates_compared` marks.
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
    """Takes each choice of an alternative, also the original, with equal probability.

    Args:
        seed: determines the decisions of all calls, in order.
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
        usual = np.flatnonzero(is_usual)
        usual_counts = np.add.reduceat(is_usual, first, dtype=np.int64)
        drawn = self._rng.integers(0, usual_counts, dtype=np.int64)
        return usual[np.cumsum(usual_counts) - usual_counts + drawn] - first


class FirstOnly:
    """Takes choice 1 of the first relevant alternative and rejects the rest.

    Repeated calls apply the rewrites of the passes one at a time, except choices that
    `Alternatives.duplicates_compared` marks.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] zeros, with at most one 1."""
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

    A choice adds its new instructions and removes the originals that only it makes
    dead; ties go to the original, then to the lower choice. A call counts its share of
    the callee; a fusion counts as one instruction.

    Greedy: the choices with the largest gains are taken first, and conflicting ones are
    omitted, so the result is never worse than the original.
    """

    def __init__(self) -> None:
        super().__init__(count_weights)


class LeastBytes(Greedy):
    """Takes, at each alternative, the choice that moves the fewest bytes.

    Bytes are those read and written by XLA's cost analysis; for custom calls, the sizes
    of operands and output. A loop's body counts once. Greedy, with ties as in
    `FewestOps`.
    """

    def __init__(self) -> None:
        super().__init__(byte_weights)


class GreedyRoofline(Greedy):
    """Takes, at each alternative, the choice that a roofline estimates to be fastest.

    The estimate is the operations and bytes of XLA's cost analysis at the rates of a
    machine, plus the overhead of a kernel. A loop's body counts once. Greedy, with ties
    as in `FewestOps`.

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
