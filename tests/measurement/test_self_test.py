# SPDX-License-Identifier: Apache-2.0
"""Coverage of intervals on simulated durations and on this machine."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv.measurement import timing
from hloenv.measurement.config import Settings
from hloenv.measurement.self_test import (
    Summary,
    binomial_interval,
    busy_cores,
    self_test,
)
from hloenv.measurement.statistics import speedup_interval, speedup_of
from hloenv.measurement.timing import Copies, Plan, time_against

ADD = """HloModule add
ENTRY entry {
  x = f32[64] parameter(0)
  ROOT y = f32[64] add(x, x)
}
"""


def test_binomial_intervals():
    assert binomial_interval(0, 20) == pytest.approx((0, 0.16843), abs=1e-5)
    assert binomial_interval(8, 100) == pytest.approx((0.03517, 0.15156), abs=1e-5)
    assert binomial_interval(20, 20) == pytest.approx((0.83157, 1), abs=1e-5)
    low, high = binomial_interval(150, 3000)
    assert 0.042 < low < 0.05 < high < 0.06


def grouped(
    rng: np.random.Generator, *, copies: int, rounds: int, between: float, within: float
) -> tuple[Any, Any, list[int]]:
    """Durations of two equal programs, with noise that each copy has for itself."""

    def side() -> Any:
        places = np.repeat(between * rng.standard_t(4, copies), rounds)
        noise = within * rng.standard_t(3, copies * rounds)
        return (1e6 * np.exp(places + noise)).astype(int)

    return side(), side(), [rounds] * copies


@pytest.mark.parametrize("copies", [4, 6, 9])
def test_intervals_of_copies_miss_as_often_as_they_may(copies):
    rng = np.random.default_rng(copies)
    misses = 0
    for _ in range(400):
        durations = grouped(rng, copies=copies, rounds=8, between=0.02, within=0.03)
        low, high = speedup_interval(*durations)
        misses += not low <= 1 <= high
    assert 0.02 < misses / 400 < 0.08


def test_rounds_of_one_copy_are_no_sample_of_all():
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(60):
        above, below, _ = grouped(rng, copies=1, rounds=20, between=0.02, within=0.01)
        low, high = speedup_interval(above, below)
        misses += not low <= 1 <= high
    # Which is why timings come from several.
    assert misses > 30


def test_no_interval_is_narrower_than_what_compiles_differ_by():
    low, high = speedup_interval([1000] * 40, [500] * 40, [10] * 4)
    assert low == pytest.approx(2 * math.exp(-0.00588), rel=1e-4)
    assert high == pytest.approx(2 * math.exp(0.00588), rel=1e-4)
    assert speedup_of([1000] * 40, [500] * 40, [10] * 4) == pytest.approx(2)


def test_one_round_says_nothing_about_its_error():
    assert speedup_interval([1000], [500]) == (0, math.inf)
    assert speedup_of([1000], [500]) == pytest.approx(2)


def test_a_round_that_slows_both_changes_nothing():
    rng = np.random.default_rng(1)
    slow = 10.0 ** rng.uniform(0, 1, 40)
    above = (1e6 * slow).astype(int)
    below = (0.5e6 * slow).astype(int)
    low, high = speedup_interval(above, below, [10] * 4)
    assert high - low < 0.03


class Simulated:
    """What `timing` needs of an executable; each copy has a speed of its own."""

    compile_ns = 0

    def __init__(self, noise: Noise, run_ns: float):
        self._noise = noise
        self._run_ns = run_ns
        self.place_ns = run_ns * math.exp(noise.between * noise.rng.standard_t(4))
        self._core = self

    temp_bytes = 1000

    def copy(self) -> Simulated:
        return Simulated(self._noise, self._run_ns)


class Noise:
    """Takes the place of `time_runs`."""

    def __init__(self, seed: int, *, between: float, within: float):
        self.rng = np.random.default_rng(seed)
        self.between = between
        self.within = within
        self.runs = 0

    def time_runs(
        self, executables: list[Simulated], inputs: Any, *, repeats: int, **_: Any
    ) -> list[Any]:
        assert len(inputs) == len(executables)
        self.runs += repeats * len(executables)
        factors = np.exp(
            self.within * self.rng.standard_t(3, (len(executables), repeats))
        )
        return [
            (each.place_ns * factor).astype(np.int64)
            for each, factor in zip(executables, factors, strict=True)
        ]


def simulate(
    monkeypatch, seed: int, plan: Plan, *, ratio: float = 1.0, **noise: float
) -> timing.Timing:
    """Times a simulated program that takes `ratio` times as long as its baseline."""
    source = Noise(seed, **noise)
    monkeypatch.setattr(timing, "time_runs", source.time_runs)
    baseline: Any = Simulated(source, 1e6)
    module: Any = Simulated(source, 1e6 * ratio)
    (found,) = time_against(Copies(baseline), [module], [], plan)
    return found


@pytest.mark.parametrize(
    ("between", "fewest", "most"), [(0.001, 3, 5), (0.005, 5, 15), (0.02, 15, 30)]
)
def test_stopping_early_costs_little_of_the_confidence(
    monkeypatch, between, fewest, most
):
    misses, copies = 0, []
    for seed in range(100):
        found = simulate(
            monkeypatch, seed, Plan(seconds=1e6), between=between, within=0.003
        )
        low, high = speedup_interval(
            found.baseline_ns, found.durations_ns, found.copies
        )
        misses += not low <= 1 <= high
        copies.append(len(found.copies))
        assert found.stopped in ("precise", "rounds")
    assert misses <= 10
    assert fewest <= np.mean(copies) <= most


def test_a_ratio_of_two_is_found_early(monkeypatch):
    for seed in range(50):
        found = simulate(monkeypatch, seed, Plan(), ratio=2.0, between=0.03, within=0.2)
        assert found.stopped == "slower"
        assert len(found.copies) <= 6


def test_a_given_number_of_rounds_is_kept(monkeypatch):
    found = simulate(monkeypatch, 0, Plan(repeats=50), between=0.01, within=0.01)
    assert sum(found.copies) == len(found.durations_ns) == 50
    assert found.stopped == "rounds"


def test_time_runs_out(monkeypatch):
    found = simulate(monkeypatch, 0, Plan(seconds=0), between=0.1, within=0.01)
    assert found.stopped == "time"
    assert len(found.copies) == 3


def test_large_copies_of_the_baseline_are_not_kept():
    noise = Noise(0, between=0.1, within=0.1)
    executable: Any = Simulated(noise, 1e6)
    copies = Copies(executable)
    assert copies.get(0) is executable
    assert copies.get(3) is not copies.get(2)
    assert copies.get(1) is copies.get(1)
    executable.temp_bytes = 2**29
    copies = Copies(executable)
    assert copies.get(0) is executable
    assert copies.get(1) is not copies.get(1)


@pytest.mark.compile
def test_a_small_self_test():
    steps = []
    result = self_test(
        3,
        settings=Settings(repeats=8, seed=5),
        modules={"add": ADD, "text": hloenv.HloModule.from_text(ADD)},
        progress=lambda: steps.append(1),
    )
    assert len(steps) == 3
    assert [each.kind for each in result.comparisons] == ["add", "text", "add"]
    assert result.by_kind["add"].comparisons == 2
    assert result.total.comparisons == 3
    assert all(each.low <= each.speedup <= each.high for each in result.comparisons)
    assert all(each.rounds == 8 for each in result.comparisons)
    assert result.to_json()["total"]["misses"] == result.total.misses
    with pytest.raises(hloenv.ArgumentError, match=r"comparisons must be .* got 0"):
        self_test(0)


@pytest.mark.compile
def test_intervals_that_miss_too_often_are_found_out():
    result = self_test(1, settings=Settings(repeats=4), modules={"add": ADD})
    hit = replace(result.comparisons[0], low=0.9, high=1.1)
    miss = replace(hit, low=1.05)
    assert (hit.is_miss, miss.is_miss) == (False, True)
    honest = replace(result, comparisons=(hit,) * 184 + (miss,) * 16)
    assert honest.total.miss_rate == 0.08
    assert honest.is_honest
    assert not replace(honest, comparisons=(hit,) * 170 + (miss,) * 30).is_honest
    assert Summary.of([hit, miss]).half_width == pytest.approx(0.0625)


def test_one_core_is_left_to_measure_on():
    cores = sorted(os.sched_getaffinity(0))
    with pytest.raises(hloenv.ArgumentError, match="no other core"), busy_cores(cores):
        pass


@pytest.mark.two_cores
def test_busy_cores_are_busy():
    cores = sorted(os.sched_getaffinity(0))

    def busy_ns(core: int) -> int:
        lines = Path("/proc/stat").read_text().splitlines()
        fields = next(line for line in lines if line.startswith(f"cpu{core} "))
        user, nice = (int(each) for each in fields.split()[1:3])
        return (user + nice) * 10_000_000

    with busy_cores(cores[1:]) as busy:
        assert busy == (cores[0],)
        before, deadline = busy_ns(cores[0]), time.monotonic() + 30
        while busy_ns(cores[0]) - before < 200_000_000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
