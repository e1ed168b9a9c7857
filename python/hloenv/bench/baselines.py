# SPDX-License-Identifier: Apache-2.0
"""Methods without decisions: other compilers, and other XLA flags.

They are part of every leaderboard, for comparison with what a user has without hloenv.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import ArgumentError, HloEnvError, OutputMismatchError
from ..measurement.config import Settings
from ..process.cpu_affinity import CoreLease
from ..process.forkserver import note
from ..runtime.compare import OutputComparison
from .flags import EIGEN_ON_ONE_CORE, NO_FAST_MIN_MAX, SETTINGS, joined
from .rows import Row
from .side_timing import PairTiming, time_pair
from .sides import Compiler, Loaded, Outputs, Side
from .task import Task, noted


@dataclass(frozen=True)
class Baseline:
    """Another way to compile a module.

    Attributes:
        name: on the command line and in reports, after "baseline/".
        summary: one sentence.
        compiler: the wheel's XLA, or jax.jit.
        settings: flags in addition to the benchmark's. With several settings, the
            result of a module is the fastest of these and the benchmark's own.
    """

    name: str
    summary: str
    compiler: Compiler
    settings: tuple[str, ...] = ("",)

    @property
    def definition(self) -> str:
        """What its results depend on in addition to the code."""
        return f"{self.summary}: {', or '.join(self.settings) or 'its own flags'}"

    @property
    def chooses(self) -> bool:
        """Whether it selects the fastest of several settings."""
        return len(self.settings) > 1


BASELINES = {
    each.name: each
    for each in (
        Baseline(
            "jax.jit",
            "jax.jit: jaxlib compiles the same module; both are called from Python "
            "with arrays on the device",
            "jax.jit",
        ),
        Baseline(
            "xla",
            "the wheel's XLA with the benchmark's own flags, in another process; "
            "differences from 1 are noise",
            "xla",
        ),
        Baseline(
            "xla-eigen-on-one-core",
            f"the wheel's XLA with {EIGEN_ON_ONE_CORE}",
            "xla",
            (EIGEN_ON_ONE_CORE,),
        ),
        Baseline(
            "xla-no-fast-min-max",
            f"the wheel's XLA with {NO_FAST_MIN_MAX}, as in hloenv.compile",
            "xla",
            (NO_FAST_MIN_MAX,),
        ),
        Baseline(
            "best-flags",
            f"the fastest of {len(SETTINGS)} settings of the wheel's XLA and its "
            "default, selected for each module by one measurement and reported by "
            "another",
            "xla",
            SETTINGS,
        ),
    )
}


def get_baseline(name: str) -> Baseline:
    """The baseline of this name.

    Raises:
        ArgumentError: no baseline has this name.
    """
    if name not in BASELINES:
        raise ArgumentError(
            f"no baseline is named {name!r}; use one of {', '.join(BASELINES)}"
        )
    return BASELINES[name]


def play_baselines(task: Task) -> Iterator[Row]:
    """The row of each baseline of a module; does not use XLA in this process."""
    lease = CoreLease(task.settings.threads)
    try:
        # Forked processes inherit these cores.
        os.sched_setaffinity(0, lease.cores)
        for name, seed in task.methods:
            note(noted(name, seed))
            baseline = get_baseline(name.partition("/")[2])
            row = replace(
                task.row,
                method=name,
                seed=seed,
                definition=baseline.definition,
                measured_at=time.time(),
            )
            try:
                yield _play(task, baseline, row)
            except HloEnvError as error:
                yield replace(row, error=f"{type(error).__name__}: {error}")
    finally:
        lease.release()


def _play(task: Task, baseline: Baseline, row: Row) -> Row:
    started = time.perf_counter()
    extra = baseline.settings[0]
    if baseline.chooses:
        extra = _best_setting(task, baseline.settings)
        row = replace(row, decide_s=time.perf_counter() - started)
        if not extra:
            return replace(row, same=True, speedup=1.0, low=1.0, high=1.0)
        row = replace(row, changes={extra: 1})
    result = _timed(task, baseline.compiler, extra)
    low, high = result.timing.interval
    baseline_ns, median_ns = result.timing.medians_ns
    return replace(
        row,
        speedup=result.timing.speedup,
        low=low,
        high=high,
        baseline_ns=baseline_ns,
        median_ns=median_ns,
        compile_ns=result.loaded.compile_ns,
        worst_error=result.outputs.excess,
        decide_s=0.0 if math.isnan(row.decide_s) else row.decide_s,
    )


@dataclass(frozen=True)
class _Result:
    timing: PairTiming
    loaded: Loaded
    outputs: OutputComparison


def _timed(task: Task, compiler: Compiler, extra: str) -> _Result:
    """Times a compiler against the benchmark's own, in new processes.

    Raises:
        HloEnvError: one of them fails, or their outputs differ.
    """
    from_python = compiler == "jax.jit"
    with _Reference(task, from_python=from_python) as reference:
        return reference.time(compiler, joined(task.flags, extra))


def _best_setting(task: Task, settings: Sequence[str]) -> str:
    """The fastest of the settings by a short measurement; "" if none is faster.

    Ignores settings for which XLA fails or the outputs differ.
    """
    best, best_speedup = "", 1.0
    known = set()
    with _Reference(task, from_python=False) as reference:
        for setting in settings:
            flags = joined(task.flags, setting)
            if flags in known:
                continue
            known.add(flags)
            try:
                result = reference.time("xla", flags, is_quick=True)
            except HloEnvError:
                if not reference.is_open:
                    raise
                continue
            if result.timing.speedup > best_speedup:
                best, best_speedup = setting, result.timing.speedup
    return best


class _Reference:
    """The benchmark's own compiler, the reference of the timings."""

    def __init__(self, task: Task, *, from_python: bool):
        self._task = task
        self._from_python = from_python
        settings = task.settings
        self._seeds = list(range(settings.seed, settings.seed + settings.input_sets))
        self._side = Side("xla", task.flags, timeout_s=settings.timeout_s)
        try:
            self._loaded = self._load(self._side)
        except HloEnvError:
            self._side.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether it can time other compilers still."""
        return self._side.is_open

    def _load(self, side: Side) -> Loaded:
        task = self._task
        return side.load(
            task.text, task.record, self._seeds, from_python=self._from_python
        )

    def time(
        self, compiler: Compiler, flags: str, *, is_quick: bool = False
    ) -> _Result:
        settings: Settings = self._task.settings
        with Side(compiler, flags, timeout_s=settings.timeout_s) as side:
            loaded = self._load(side)
            worst = self._compared(
                [side.outputs(index) for index in range(len(self._seeds))]
            )
            timing = time_pair(
                self._side, side, (self._loaded, loaded), settings, is_quick=is_quick
            )
        return _Result(timing, loaded, worst)

    def _compared(self, outputs: Sequence[Outputs]) -> OutputComparison:
        """The worst comparison.

        Raises:
            OutputMismatchError: the outputs differ from the reference.
        """
        found = [self._side.compare(index, each) for index, each in enumerate(outputs)]
        worst = max(found, key=lambda each: (not each.is_equal, each.excess))
        if not worst.is_equal:
            raise OutputMismatchError(str(worst))
        return worst

    def __enter__(self) -> _Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self._side.close()


__all__ = ["BASELINES", "Baseline", "get_baseline", "play_baselines"]
