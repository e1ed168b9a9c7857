# SPDX-License-Identifier: Apache-2.0
"""Times two things in turns in one process, so that their ratio means something."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture


@dataclass(frozen=True)
class Ratio:
    """Medians of both, in nanoseconds, and how many rounds."""

    ours_ns: float
    theirs_ns: float
    rounds: int

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours_ns / self.theirs_ns


def compare(
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    seconds: float = 0.5,
    min_rounds: int = 5,
    max_rounds: int = 400,
) -> Ratio:
    """Runs both A B A B ... after one warm-up each; frees results untimed."""
    samples: tuple[list[int], list[int]] = ([], [])
    ours()
    theirs()
    end = time.perf_counter() + seconds
    gc.collect()
    gc.disable()
    try:
        while len(samples[0]) < min_rounds or (
            time.perf_counter() < end and len(samples[0]) < max_rounds
        ):
            for function, durations in zip((ours, theirs), samples, strict=True):
                start = time.perf_counter_ns()
                result = function()
                durations.append(time.perf_counter_ns() - start)
                del result
    finally:
        gc.enable()
    return Ratio(
        float(np.median(samples[0])), float(np.median(samples[1])), len(samples[0])
    )


def geometric_mean(values: list[float]) -> float:
    """Of positive values."""
    return float(np.exp(np.mean(np.log(values))))


def report(benchmark: BenchmarkFixture, what: str, goal: str, got: str) -> None:
    """Adds a row to the table that `scripts/bench.sh` writes into docs/results."""
    benchmark.extra_info.setdefault("rows", []).append([what, goal, got])
