# SPDX-License-Identifier: Apache-2.0
"""Times two processes alternately on the same cores, until the interval is narrow."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field

import numpy as np

from ..measurement.config import Settings
from ..measurement.statistics import speedup_interval, speedup_of
from ..measurement.timing import MIN_DURATION_NS
from ..process.cpu_affinity import turn_to_time
from .sides import Loaded, Side

# Approximate run time of one side before the other runs.
_TURN_NS = 4_000_000
_MAX_ROUNDS = 64
_TURNS = 4
_MIN_COPIES, _MAX_COPIES = 3, 8


@dataclass
class PairTiming:
    """Durations of two sides in the same rounds.

    Attributes:
        baseline_ns: one call of the baseline in each round.
        durations_ns: one call of the other side in each round.
        copies: number of rounds of each copy of the code.
    """

    baseline_ns: list[int] = field(default_factory=list)
    durations_ns: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """As `Measurement.speedup`."""
        return speedup_of(self.baseline_ns, self.durations_ns, self.copies)

    @property
    def interval(self) -> tuple[float, float]:
        """As `Measurement.speedup_interval`."""
        return speedup_interval(self.baseline_ns, self.durations_ns, self.copies)

    @property
    def medians_ns(self) -> tuple[float, float]:
        """Medians of the baseline and of the other side."""
        return float(np.median(self.baseline_ns)), float(np.median(self.durations_ns))


def time_pair(
    baseline: Side,
    other: Side,
    loaded: tuple[Loaded, Loaded],
    settings: Settings,
    *,
    is_quick: bool = False,
) -> PairTiming:
    """Times two sides alternately, as several copies of their code.

    For jaxlib, a new copy is another compile; if compiling takes too long, the copies
    share their code.

    Args:
        baseline: the reference side.
        other: the side to compare with it.
        loaded: results of `Side.load` of both.
        settings: precision and time limit.
        is_quick: time only one copy.
    """
    limit_s = settings.seconds * 2
    calls, rounds, turns = _sizes(loaded, limit_s)
    timing = PairTiming()
    started = time.monotonic()
    renewing_s = 0.0
    max_copies = _MAX_COPIES
    if is_quick or settings.repeats is not None:
        max_copies = 1 if is_quick else max((settings.repeats or 0) // _TURNS, 1)
    for copy in range(min(max_copies, _MAX_COPIES)):
        # Predicts the time of this renewal from the earlier ones.
        if copy and renewing_s * (copy + 1) / copy <= limit_s:
            renewing_s += baseline.renew() + other.renew()
        with turn_to_time(sorted(os.sched_getaffinity(0))):
            _time_copy(baseline, other, calls, rounds, turns, timing)
        if copy + 1 < _MIN_COPIES:
            continue
        low, high = timing.interval
        is_precise = high - low < settings.precision * (low + high)
        if is_precise or time.monotonic() - started - renewing_s > limit_s:
            break
    return timing


def _sizes(loaded: tuple[Loaded, Loaded], limit_s: float) -> tuple[int, int, int]:
    """Calls per round, rounds per turn, and turns per copy."""
    run_ns = max(min(each.run_ns for each in loaded), 1)
    calls = max(1, math.ceil(MIN_DURATION_NS / run_ns))
    round_ns = max(each.run_ns for each in loaded) * calls
    rounds = int(np.clip(_TURN_NS / round_ns, 1, _MAX_ROUNDS))
    copy_ns = limit_s * 1e9 / _MIN_COPIES
    turns = int(np.clip(copy_ns / (2 * rounds * round_ns), 1, _TURNS))
    return calls, rounds, turns


def _time_copy(
    baseline: Side, other: Side, calls: int, rounds: int, turns: int, timing: PairTiming
) -> None:
    for turn in range(turns):
        # Alternates which side runs first.
        first, second = (baseline, other) if turn % 2 == 0 else (other, baseline)
        durations = {id(first): first.time(calls, rounds)}
        durations[id(second)] = second.time(calls, rounds)
        timing.baseline_ns += durations[id(baseline)]
        timing.durations_ns += durations[id(other)]
    timing.copies.append(turns * rounds)
