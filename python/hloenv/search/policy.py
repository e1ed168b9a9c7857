# SPDX-License-Identifier: Apache-2.0
"""Policies that estimate their decisions: searches, and greedy blocks."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..cost.base import estimate_of
from ..cost.roofline import node_seconds
from ..measurement.optional_store import optional_store
from ..policies.base import UnknownPolicyError
from ..policies.estimated import STEPS
from ..rewrite.choice_deltas import ChoiceDeltas

if TYPE_CHECKING:
    from ..cost.base import Estimator
    from ..rewrite.alternatives import Alternatives


class EstimatingPolicy:
    """Common part of the policies that estimate.

    Attributes:
        estimator: estimates run times; None until the first estimate stands for a
            `KernelCache` for one thread, with the default store.
    """

    def __init__(self, estimator: Estimator | None, steps: int) -> None:
        self.estimator = estimator
        self._steps = steps

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        raise NotImplementedError

    def _seconds(self, alternatives: Alternatives, decisions: Int64Array) -> float:
        """Estimate; infinite if the module cannot be compiled."""
        if self.estimator is None:
            from ..cost.kernel_cache import KernelCache

            store = optional_store()
            cache = KernelCache(store=store)
            # Ends the process that times kernels with the policy.
            if store is not None:
                weakref.finalize(self, store.close)
            weakref.finalize(self, cache.close)
            self.estimator = cache
        estimate = estimate_of(self.estimator, alternatives.apply(decisions))
        return estimate.seconds if estimate.is_ok else math.inf


class Searched(EstimatingPolicy):
    """Decides as the best candidate of a search.

    The search starts from XLA's own decisions, every original, every rewrite, and the
    fixed rules; its result is never estimated to be slower than any of these.

    Args:
        seed: of the search.
        search: its name.
        steps: estimates, in addition to those of the initial points.
        estimator: estimates run times; by default a `KernelCache` for one thread, with
            the default store.
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
        # Avoids a circular import: searches start from policies.
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
    """`Searched` by hill climbing."""


class GreedyKernels(EstimatingPolicy):
    """Accepts blocks of decisions that are estimated to run faster, by gain score.

    Starts from the fastest of XLA's own decisions and those of the rules. The other
    choices are changed in blocks, ordered by gain score; a block that is not faster is
    halved, while estimates remain. Omits choices that
    `Alternatives.duplicates_compared` marks.

    Args:
        steps: estimates, including those of the initial points.
        block: initial size of a block.
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
        deltas = ChoiceDeltas(alternatives, node_seconds)
        blocks = self._blocks(alternatives, deltas, decisions)
        while blocks and left > 0:
            block = blocks.popleft()
            changed = decisions.copy()
            for index, choice in block:
                changed[index] = choice
            # Skips changes of irrelevant decisions only.
            is_relevant = alternatives.relevant(changed) | alternatives.relevant(
                decisions
            )
            if not (is_relevant & (changed != decisions)).any():
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
        self, alternatives: Alternatives, deltas: ChoiceDeltas, decisions: Int64Array
    ) -> deque[list[tuple[int, int]]]:
        """Blocks of (alternative, choice), ordered by gain score."""
        now = deltas.change[deltas.first + decisions]
        owner = np.repeat(np.arange(len(alternatives)), alternatives.num_choices)
        choice = np.arange(len(owner)) - deltas.first[owner]
        change = deltas.change - now[owner]
        # Currently relevant alternatives come first.
        is_later = ~alternatives.relevant(decisions)[owner]
        order = np.lexsort((change, is_later))
        order = order[choice[order] != decisions[owner[order]]]
        order = order[~alternatives.duplicates_compared[order]]
        flips = list(zip(owner[order].tolist(), choice[order].tolist(), strict=True))
        size = self._block
        return deque(flips[i : i + size] for i in range(0, len(flips), size))


def make_searched(spec: str, seed: int) -> Searched:
    """The policy for the search `spec`."""
    from . import UnknownSearchError, describe_search

    try:
        describe_search(spec)
    except UnknownSearchError as error:
        raise UnknownPolicyError(f"search:{spec}: {error}") from None
    return Searched(seed, search=spec)


def make_greedy_kernels(_: int) -> GreedyKernels:
    """The policy for any seed."""
    return GreedyKernels()
