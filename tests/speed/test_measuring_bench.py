# SPDX-License-Identifier: Apache-2.0
"""Overhead of a measurement over its compile and runs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import hloenv
from hloenv.measurement.config import Settings

from .ratio import geometric_mean, report

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

# Every 20th real module; those that run so long that each run has a duration.
_EVERY = 20
_SHORTEST_S = 50e-6
_CANDIDATES = 3


def _candidates(module: hloenv.HloModule) -> list[hloenv.HloModule]:
    """Differently fused versions."""
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    alternatives = env.get_alternatives("fusion")
    rng = np.random.default_rng(0)
    return [
        alternatives.apply(rng.integers(0, alternatives.num_choices))
        for _ in range(_CANDIDATES)
    ]


def test_measuring_adds_little_to_compiling_and_running(
    benchmark: BenchmarkFixture, real_module_paths: list[Path]
) -> None:
    """A warm worker's measurement over its compile and all of its runs."""
    ratios = []
    for path in real_module_paths[::_EVERY]:
        module = hloenv.HloModule.from_file(path)
        inputs = hloenv.random_inputs(module)
        try:
            default = hloenv.compile(module, isolate=False)
        except hloenv.CompileError:
            continue  # lowered for another target
        if np.median(default.run(5, inputs=inputs)) * 1e-9 < _SHORTEST_S:
            continue
        with hloenv.Measurer(Settings()) as measurer:
            measurer.measure([module], baseline=module)
            for candidate in _candidates(module):
                started = time.perf_counter()
                hloenv.compile(candidate, isolate=False)
                compile_s = time.perf_counter() - started
                started = time.perf_counter()
                (result,) = measurer.measure([candidate], baseline=module)
                measured_s = time.perf_counter() - started
                result.check()
                run_ns = sum(result.durations_ns) + sum(result.baseline_ns)
                ratios.append(measured_s / (compile_s + run_ns * 1e-9))
    report(
        benchmark,
        f"a measurement, worker warm, over its compile and runs, {len(ratios)} "
        "candidates: geometric mean",
        "at most 1.05",
        f"{geometric_mean(ratios):.2f}",
    )
    benchmark.pedantic(lambda: None, rounds=1)
