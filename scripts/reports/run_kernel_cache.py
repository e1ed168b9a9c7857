# SPDX-License-Identifier: Apache-2.0
"""Measures the kernel cache: speed of a search, and rank correlation.

    python scripts/reports/run_kernel_cache.py [--doc FILE] [MODULE ...]

For each module, as `hloenv show` takes it (by default the examples' GPT-2 training step
and ResNet forward):

* a random search over fusion decisions, made after layout assignment, and one over
  algebraic simplification, made before it: candidates per minute with the kernel cache,
  compared with compiling and timing each full module;
* Spearman rank correlation of the estimates of the cache and the roofline with measured
  times, over versions from no fusion to all fusions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.cli.load import load_module
from hloenv.cost.kernel_cache import KernelCache
from hloenv.cost.roofline import Roofline
from hloenv.runtime.executable import time_runs
from reporting import head, parser_of, write_page

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DEFAULTS = [f"{EXAMPLES / name}.py:module" for name in ("resnet", "gpt2")]
# Copies of the code, and rounds of each, for measured times.
COPIES, ROUNDS = 12, 4
# Versions in memory at a time.
GROUP = 10


@dataclass
class Search:
    """A random search with the cache, and the time to compile full modules instead.

    Attributes:
        candidates: number of candidates.
        cached_s: seconds for each candidate.
        first_s: seconds for the first, which fills the cache.
        full_s: seconds for each full module that was compiled and timed.
        kernels: number of timed kernels.
    """

    candidates: int
    cached_s: float
    first_s: float
    full_s: float
    kernels: int

    @property
    def ratio(self) -> float:
        """Candidates with the cache per compiled full module."""
        return self.full_s / self.cached_s


@dataclass
class Ranks:
    """Rank correlations with real times over differently decided versions."""

    versions: int
    spread: float
    repeatability: float
    cache: float
    roofline: float


def versions(
    module: hloenv.HloModule, place: str | None, passes: list[str], count: int
) -> Iterator[hloenv.HloModule]:
    """Yields versions with random decisions, from few accepted to all."""
    env = hloenv.HloEnv(module)
    if place is not None:
        env.run_until(place)
    alternatives = env.get_alternatives(*passes)
    start = env.snapshot()
    rng = np.random.default_rng(0)
    for index in range(count):
        env.restore(start)
        share = index / max(count - 1, 1)
        accepted = rng.random(len(alternatives)) < share
        choices = rng.integers(0, alternatives.num_choices)
        yield env.apply_alternatives(np.where(accepted, choices, 0), alternatives)


def compile_and_time(module: hloenv.HloModule, inputs: list[Any]) -> None:
    """Evaluates a candidate without the cache."""
    hloenv.compile(module, isolate=False).run(10, inputs=inputs, warmup=2)


def search(
    module: hloenv.HloModule, place: str | None, passes: list[str], steps: int
) -> Search:
    """Runs a random search of `steps` candidates with the cache, a few also without."""
    with KernelCache() as cache:
        times = []
        started = time.perf_counter()
        for each in versions(module, place, passes, steps):
            estimate = cache.estimate(each)
            if not estimate.is_ok:
                raise SystemExit(estimate.error)
            times.append(time.perf_counter() - started)
            started = time.perf_counter()
        kernels = cache.num_timed
    inputs = hloenv.random_inputs(module)
    full = []
    for each in versions(module, place, passes, 4):
        started = time.perf_counter()
        compile_and_time(each, inputs)
        full.append(time.perf_counter() - started)
    return Search(
        steps, statistics.fmean(times), times[0], statistics.fmean(full), kernels
    )


def ranks(module: hloenv.HloModule, count: int) -> Ranks:
    """Compares estimates of differently fused versions with their measured times."""
    import scipy.stats

    def spearman(a: Any, b: Any) -> float:
        return float(scipy.stats.spearmanr(a, b)[0])

    candidates = list(versions(module, "fusion", ["general-fusion"], count))
    with KernelCache() as cache:
        cached = [each.seconds for each in cache.estimate_many(candidates)]
    static = [each.seconds for each in Roofline().estimate_many(candidates)]
    relative = np.concatenate(
        [
            _relative_times(module, candidates[start : start + GROUP])
            for start in range(0, count, GROUP)
        ],
        axis=1,
    )
    real = np.median(relative, axis=0)
    halves = np.median(relative[::2], axis=0), np.median(relative[1::2], axis=0)
    return Ranks(
        count,
        float(real.max() / real.min()),
        spearman(*halves),
        spearman(cached, real),
        spearman(static, real),
    )


def _relative_times(
    module: hloenv.HloModule, candidates: list[hloenv.HloModule]
) -> np.ndarray:
    """[COPIES, candidates] median times over that of `module` in the same rounds.

    The ratio cancels temporary disturbances of the machine.
    """
    inputs = hloenv.random_inputs(module)
    executables = [
        hloenv.compile(each, isolate=False) for each in (module, *candidates)
    ]
    rows = []
    for copy in range(COPIES):
        copies = [each.copy() for each in executables]
        times = time_runs(
            copies, [inputs] * len(copies), repeats=ROUNDS, warmup=1, seed=copy
        )
        medians = np.array([np.median(each) for each in times])
        rows.append(medians[1:] / medians[0])
        # Code uses memory maps, whose number per process is limited.
        del copies
    return np.array(rows)


def report(
    rows: list[tuple[str, Search, Search, Ranks]], args: argparse.Namespace
) -> list[str]:
    """The page."""
    searches = [
        (
            *(name, what, f"{60 / each.cached_s:.0f}", f"{each.ratio:.1f}"),
            *(each.kernels, f"{each.first_s:.1f} s"),
        )
        for name, after, before, _ in rows
        for what, each in (
            ("fusion, after layouts", after),
            ("algsimp, before", before),
        )
    ]
    columns = "module", "decisions", "candidates per minute", "ratio", "kernels timed"
    correlations = [
        (
            *(name, f"{each.spread:.2f}", f"{each.repeatability:.2f}"),
            *(f"{each.cache:.2f}", f"{each.roofline:.2f}"),
        )
        for name, _, _, each in rows
    ]
    return [
        *head("The kernel cache"),
        "* one thread; all seeds 0",
        "",
        f"A random search of {args.steps} steps; each step accepts a larger random "
        "share of the rewrites. `ratio`: candidates with the cache in the time to "
        "compile one full module and run it ten times.",
        "",
        *table((*columns, "first"), searches, "llrrrr"),
        "",
        "Rank correlation (Spearman) of estimates with measured times, "
        f"{args.versions} versions from no fusions to all fusions. `repeated`: "
        "correlation of one half of the runs with the other; its square root is the "
        "upper bound for any estimate. `spread`: slowest over fastest version.",
        "",
        *table(
            ("module", "spread", "repeated", "kernel cache", "roofline"), correlations
        ),
    ]


def main() -> None:
    """Runs all of it."""
    parser = parser_of(__doc__)
    parser.add_argument("modules", nargs="*", default=DEFAULTS, metavar="MODULE")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--versions", type=int, default=40)
    args = parser.parse_args()
    rows = []
    for source in args.modules:
        module = load_module(source)
        name = Path(source).name.partition(".")[0]
        print(f"{name}: searching", file=sys.stderr, flush=True)
        after = search(module, "fusion", ["general-fusion"], args.steps)
        before = search(module, None, ["algsimp", "cse"], args.steps)
        print(f"{name}: timing versions", file=sys.stderr, flush=True)
        rows.append((name, after, before, ranks(module, args.versions)))
        write_page(report(rows, args), args.doc)


if __name__ == "__main__":
    # On one core, like the timed modules.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    main()
