# SPDX-License-Identifier: Apache-2.0
"""How fast the modules are that a policy decides, by estimate."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from ..cost.base import Estimator, estimate_of
from ..dataset.benchmarks import find_benchmarks
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from ..policies import Policy
from ..rewrite.game import Game
from ..search.spaces import get_space
from .run_setup import halves


@dataclass(frozen=True)
class PolicyScore:
    """A policy on several modules.

    Attributes:
        speedups: of each module over XLA's default, by estimate; 1 where the policy
            fails, because XLA's default runs then.
        failures: how many modules the policy fails on, or has no estimate for.
    """

    speedups: tuple[float, ...]
    failures: int

    @property
    def mean(self) -> float:
        """Geometric mean of the speed-ups."""
        return geometric_mean(self.speedups)


class Validation:
    """Modules whose captures and default times are kept from one policy to the next."""

    def __init__(self, uris: Sequence[str], space: str, estimator: Estimator) -> None:
        """Estimates XLA's default; leaves out modules for which that fails.

        Raises:
            ArgumentError: it fails for all of them.
        """
        self._estimator = estimator
        self._stops = get_space(space).stops
        self._games: list[tuple[str, Game, float]] = []
        for uri in uris:
            module = find_benchmarks(uri)[0].load()
            seconds = self._seconds(module)
            if math.isfinite(seconds) and seconds > 0:
                self._games.append((uri, Game(module, self._stops), seconds))
        if not self._games:
            raise ArgumentError(
                f"none of the {len(uris)} validation modules can be estimated; give "
                "others, or another estimator"
            )

    @property
    def uris(self) -> list[str]:
        """Of the modules that are used."""
        return [uri for uri, _, _ in self._games]

    def halves(self) -> tuple[Validation, Validation]:
        """As `run_setup.halves`, with what is known of the modules."""
        twins = copy.copy(self), copy.copy(self)
        for twin, games in zip(twins, halves(self._games), strict=True):
            twin._games = games
        return twins

    def score(self, policy: Policy) -> PolicyScore:
        """Decides each module by the policy, at all decision points."""
        speedups, failures = [], 0
        for _, game, default_s in self._games:
            try:
                seconds = self._seconds(game.play(game.follow_policy(policy)))
            except HloEnvError:
                seconds = math.nan
            is_known = math.isfinite(seconds) and seconds > 0
            failures += not is_known
            speedups.append(default_s / seconds if is_known else 1.0)
        return PolicyScore(tuple(speedups), failures)

    def _seconds(self, module: HloModule) -> float:
        estimate = estimate_of(self._estimator, module)
        return float(estimate.seconds) if estimate.is_ok else math.nan
