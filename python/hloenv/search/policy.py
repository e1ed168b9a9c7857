# SPDX-License-Identifier: Apache-2.0
"""Policies that estimate their decisions: a search, or greedy blocks."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..cost.roofline import node_seconds
from ..measurement.store import Store
from ..policies.base import UnknownPolicyError
from ..policies.estimated import STEPS
from ..rewrite.choice_deltas import ChoiceDeltas

if TYPE_CHECKING:
    from ..cost.base import Estimator
    from ..rewrite.alternatives import Alternatives


class _Estimated:
    """Common part of the policies that estimate."""

    def __init__(self, estimator: Estimator | None, steps: int) -> None:
        self._estimator = estimator
        self._steps = steps

    def _seconds(self, alternatives: Alternatives, decisions: Int64Array) -> float:
        """Estimate; infinite if the module cannot be compiled."""
        if self._estimator is None:
            from ..cost.kernel_cache import KernelCache

            store = Store()
            cache = KernelCache(store=store)
            # Ends the process that times kernels with the policy.
            weakref.finalize(self, store.close)
            weakref.finalize(self, cache.close)
            self._estimator = cache
        (estimate,) = self._estimator.estimate_many([alternatives.apply(decisions)])
        return estimate.seconds if estimate.is_ok else math.inf


class Searched(_Estimated):
    """Decides as the best candidate of a search.

    A search starts from XLA's own decisions, keeping every original, taking every
    rewrite, and the rules; what it gives is never estimated to be slower than these.

    Args:
        seed: of the search.
        search: its name.
        steps: changes that are tried, beside the starting points.
        estimator: says how long a module runs; by default a `KernelCache` for one
            thread, which keeps what it measures in the store.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        search: str = "hill-climb",
        steps: int = STEPS,
        estimator: Estimator | None = None,
    ) -> None:
        super().__init__(estimator, steps)
        self._seed = seed
        self._search = search

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        # Searches start from policies.
        from ..rewrite.game import Game
        from . import get_search, starting_points

        if len(alternatives) == 0:
            return np.zeros(0, np.int64)
        game = Game.of(alternatives)
        search = get_search(self._search, game, seed=self._seed)
        budget = len(starting_points(game)) + self._steps
        while len(search.history) < budget and (prefix := search.ask()) is not None:
            search.tell(prefix, self._seconds(alternatives, prefix[0]))
        return game.default() if search.best is None else search.best[0][0]


class HillClimb(Searched):
    """`Searched` by hill climbing: small steps that are estimated to be faster."""


class GreedyKernels(_Estimated):
    """Takes blocks of decisions that are estimated to run faster, largest gains first.

    Starts from the better of XLA's own decisions and those of the rules. The other
    choices that static cost prefers are taken in blocks, the promising first; a block
    that does not help is halved, as long as there are estimates left. Choices that
    `Alternatives.duplicates_compared` marks are not among them.

    Args:
        steps: estimates, starting points included.
        block: decisions that are tried together at first.
        estimator: as for `Searched`.
    """

    def __init__(
        self,
        *,
        steps: int = STEPS,
        block: int = 8,
        estimator: Estimator | None = None,
    ) -> None:
        super().__init__(estimator, steps)
        self._block = block

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        from ..rewrite.game import Game
        from . import starting_points

        if len(alternatives) == 0:
            return np.zeros(0, np.int64)
        starts = [each[0] for each in starting_points(Game.of(alternatives))]
        times = [self._seconds(alternatives, each) for each in starts[: self._steps]]
        left = self._steps - len(times)
        best = int(np.argmin(times))
        decisions, seconds = starts[best], times[best]
        effects = ChoiceDeltas(alternatives, node_seconds)
        blocks = self._blocks(alternatives, effects, decisions)
        while blocks and left > 0:
            block = blocks.popleft()
            changed = decisions.copy()
            for index, choice in block:
                changed[index] = choice
            # What nothing live can reach now costs no estimate.
            matters = alternatives.relevant(changed) | alternatives.relevant(decisions)
            if not (matters & (changed != decisions)).any():
                continue
            changed_s = self._seconds(alternatives, changed)
            left -= 1
            if changed_s < seconds:
                decisions, seconds = changed, changed_s
            elif len(block) > 1:
                middle = len(block) // 2
                blocks.extendleft((block[middle:], block[:middle]))
        return decisions

    def _blocks(
        self, alternatives: Alternatives, effects: ChoiceDeltas, decisions: Int64Array
    ) -> deque[list[tuple[int, int]]]:
        """(alternative, choice) by what static cost says it changes, in blocks."""
        now = effects.change[effects.first + decisions]
        owner = np.repeat(np.arange(len(alternatives)), alternatives.num_choices)
        choice = np.arange(len(owner)) - effects.first[owner]
        change = effects.change - now[owner]
        # What matters as things stand comes first.
        is_later = ~alternatives.relevant(decisions)[owner]
        order = np.lexsort((change, is_later))
        order = order[choice[order] != decisions[owner[order]]]
        order = order[~alternatives.duplicates_compared[order]]
        flips = list(zip(owner[order].tolist(), choice[order].tolist(), strict=True))
        size = self._block
        return deque(flips[i : i + size] for i in range(0, len(flips), size))


def make_searched(spec: str, seed: int) -> Searched:
    """The policy that searches as `spec` says."""
    from . import UnknownSearchError, describe_search

    try:
        describe_search(spec)
    except UnknownSearchError as error:
        raise UnknownPolicyError(f"search:{spec}: {error}") from None
    return Searched(seed, search=spec)


def make_greedy_kernels(_: int) -> GreedyKernels:
    """The policy for any seed."""
    return GreedyKernels()
