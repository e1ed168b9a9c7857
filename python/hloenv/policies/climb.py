# SPDX-License-Identifier: Apache-2.0
"""Searches for decisions by what they make of the running time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..effects import Int64Array, byte_weights, count_weights
from ..store import Store
from .base import register_policy
from .cheapest import cheapest_choices

if TYPE_CHECKING:
    from ..estimates import Estimator
    from ..rewrite import Alternatives

_STEPS = 100
# Of all decisions, changed at most in one step.
_LARGEST_CHANGE = 0.05


class HillClimb:
    """Changes a few decisions at a time, and keeps what is estimated to run faster.

    Starts from the best of keeping every original, taking every rewrite, and the
    heuristics for operations and bytes; the decisions it gives are never estimated to
    be slower than any of these.

    Args:
        seed: of the changes.
        steps: changes that are tried.
        estimator: says how long a module runs; by default a `KernelCache` for one
            thread, which keeps what it measures in the store.
    """

    def __init__(
        self, seed: int = 0, *, steps: int = _STEPS, estimator: Estimator | None = None
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._steps = steps
        self._estimator = estimator

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        if len(alternatives) == 0:
            return np.zeros(0, np.int64)
        starts = starting_points(alternatives)
        times = [self._seconds(alternatives, each) for each in starts]
        best = int(np.argmin(times))
        decisions, seconds = starts[best], times[best]
        for _ in range(self._steps):
            changed = change_some(alternatives, decisions, self._rng)
            changed_s = self._seconds(alternatives, changed)
            if changed_s < seconds:
                decisions, seconds = changed, changed_s
        return decisions

    def _seconds(self, alternatives: Alternatives, decisions: Int64Array) -> float:
        """Estimate; infinite for what cannot be compiled."""
        if self._estimator is None:
            from ..kernels import KernelCache

            self._estimator = KernelCache(store=Store())
        (estimate,) = self._estimator.estimate_many([alternatives.apply(decisions)])
        return estimate.seconds if estimate.is_ok else float("inf")


def starting_points(alternatives: Alternatives) -> list[Int64Array]:
    """Decisions to start a search from: [A] choices each."""
    return [
        np.zeros(len(alternatives), np.int64),
        np.ones(len(alternatives), np.int64),
        cheapest_choices(alternatives, count_weights),
        cheapest_choices(alternatives, byte_weights),
    ]


def change_some(
    alternatives: Alternatives, decisions: Int64Array, rng: np.random.Generator
) -> Int64Array:
    """[A] the decisions with a few of those changed that matter."""
    relevant = np.flatnonzero(alternatives.relevant(decisions))
    if relevant.size == 0:
        return decisions
    largest = max(1, int(_LARGEST_CHANGE * relevant.size))
    count = int(rng.integers(1, largest, endpoint=True))
    where = rng.choice(relevant, count, replace=False)
    changed = decisions.copy()
    # Another choice than the present one, each equally likely.
    others = rng.integers(1, alternatives.num_choices[where])
    changed[where] = (decisions[where] + others) % alternatives.num_choices[where]
    return changed


register_policy(
    "hill-climb",
    f"change some decisions at a time, {_STEPS} times, and keep what the kernel cache "
    "says is faster",
    HillClimb,
    is_random=True,
)
