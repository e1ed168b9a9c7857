# SPDX-License-Identifier: Apache-2.0
"""What a tuning knows while it runs, and how results compare."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .journal import Result
from .measuring import Control
from .program import Program
from .space import Configuration


@dataclass
class State:
    """What a tuning knows; passed to `on_change` after each change.

    Attributes:
        program: what is tuned.
        stage: the arm or the phase that works now.
        best: the fastest result; None if nothing is faster.
        results: of all configurations, by configuration.
        num_measured: configurations that were measured now.
        num_known: results of earlier tunings.
        seconds_left: of the budget.
        control: the baseline against itself.
        messages: what the user should know.
        journal: file of the measurements; None if they are not all kept.
        is_interrupted: whether Ctrl-C has ended the search.
        is_kept: whether other processes find what makes the program faster.
    """

    program: Program
    stage: str = "control"
    best: Result | None = None
    results: dict[Configuration, Result] = field(default_factory=dict)
    num_measured: int = 0
    num_known: int = 0
    seconds_left: float = 0.0
    control: Control | None = None
    messages: list[str] = field(default_factory=list)
    journal: Path | None = None
    is_interrupted: bool = False
    is_kept: bool = False

    def take(self, result: Result) -> None:
        """Adds a result, or replaces that of the same configuration."""
        before = self.results.get(result.configuration)
        self.results[result.configuration] = result
        if before is not None and before is self.best:  # measured again
            self.best = max(self.results.values(), key=score)
        elif score(result) > score(self.best):
            self.best = result
        if score(self.best) <= 0:
            self.best = None


OnChange = Callable[[State], None]


def score(result: Result | None) -> float:
    """Merit of a result; 0 for the plain program.

    The log of the speed-up, halfway to the lower end of its interval: what is uncertain
    is worth less, but a search on a noisy machine still moves. The last check decides.
    """
    if result is None:
        return 0.0
    if not result.is_ok:
        return -math.inf
    low = max(result.interval[0], 1e-6)
    return 0.5 * (math.log(max(result.speedup, 1e-6)) + math.log(low))
