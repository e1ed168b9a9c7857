# SPDX-License-Identifier: Apache-2.0
"""Validates confidence intervals: measures modules against themselves.

Both sides of a comparison are the same module, compiled twice, so the true speed-up is
1. The share of 95 % intervals that miss 1 is the error rate on this machine in its
current state; the width of the intervals is the resolution.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..hlo.module import HloModule, as_module
from ..process.child import PYTHON, child_environment
from .config import Settings
from .measurer import Measurer
from .record import Measurement

# Maximum miss rate. (With nominal intervals, one of 40 sets of 200 comparisons exceeds
# it.)
MAX_MISSES = 0.08
_NOMINAL = 0.05

_ELEMENTWISE = """HloModule elementwise
ENTRY entry {
  x = f32[131072] parameter(0)
  y = f32[131072] parameter(1)
  exponentials = f32[131072] exponential(x)
  tangents = f32[131072] tanh(y)
  products = f32[131072] multiply(exponentials, tangents)
  sums = f32[131072] add(products, x)
  ROOT result = f32[131072] divide(sums, exponentials)
}
"""
_TRANSPOSE = """HloModule transpose
ENTRY entry {
  x = f32[512,512] parameter(0)
  turned = f32[512,512] transpose(x), dimensions={1,0}
  copied = f32[512,512] copy(turned)
  ROOT result = f32[512,512] add(copied, x)
}
"""
_REDUCTION = """HloModule reduction
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b) }
ENTRY entry {
  x = f32[256,512] parameter(0)
  zero = f32[] constant(0)
  rows = f32[256] reduce(x, zero), dimensions={1}, to_apply=add
  columns = f32[512] reduce(x, zero), dimensions={0}, to_apply=add
  ROOT result = (f32[256], f32[512]) tuple(rows, columns)
}
"""
_LOOP = """HloModule loop
condition { state = (s32[], f32[16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(500)
  ROOT is_less = pred[] compare(i, n), direction=LT }
body { state = (s32[], f32[16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[16] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[16] cosine(x)
  ROOT result = (s32[], f32[16]) tuple(next, y) }
ENTRY entry { x = f32[16] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[16]) tuple(zero, x)
  end = (s32[], f32[16]) while(start), condition=condition, body=body
  ROOT result = f32[16] get-tuple-element(end), index=1 }
"""


def _dots(name: str, size: int, count: int) -> str:
    """A chain of matrix products."""
    shape = f"f32[{size},{size}]"
    lines = [
        f"  {'ROOT ' * (i == count)}x{i} = {shape} dot(x{i - 1}, weights), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        for i in range(1, count + 1)
    ]
    return "\n".join(
        [
            f"HloModule {name}",
            "ENTRY entry {",
            f"  x0 = {shape} parameter(0)",
            f"  weights = {shape} parameter(1)",
            *lines,
            "}",
        ]
    )


# Kinds of modules, from 5 us to 2 ms.
MODULES: Mapping[str, str] = {
    "elementwise": _ELEMENTWISE,
    "transpose": _TRANSPOSE,
    "reduction": _REDUCTION,
    "loop": _LOOP,
    "small dots": _dots("small_dots", 64, 3),
    "large dots": _dots("large_dots", 384, 2),
    "tiny kernels": _dots("tiny_kernels", 8, 40),
}


@dataclass(frozen=True)
class Comparison:
    """One module measured against itself.

    Attributes:
        kind: of the module, as in `MODULES`.
        speedup: the measured one; the true one is 1.
        low: lower end of its 95 % interval.
        high: the upper end.
        median_ns: of one run.
        copies: number of copies of the code.
        rounds: number of rounds of both sides.
        stopped: as in `Measurement`.
    """

    kind: str
    speedup: float
    low: float
    high: float
    median_ns: float
    copies: int
    rounds: int
    stopped: str

    @property
    def is_miss(self) -> bool:
        """Whether the interval does not contain 1."""
        return not self.low <= 1 <= self.high

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Summary:
    """Statistics of several comparisons.

    Attributes:
        comparisons: number of comparisons.
        misses: number of intervals that miss 1.
        miss_rate: share of these intervals.
        miss_rate_low: lower end of the 95 % interval of the true share (Clopper and
            Pearson).
        miss_rate_high: the upper end.
        half_width: median half-width of the intervals.
        resolution: the smallest difference that can be resolved: the 90 % quantile of
            the half-widths.
        median_ns: of one run, the median of all.
    """

    comparisons: int
    misses: int
    miss_rate: float
    miss_rate_low: float
    miss_rate_high: float
    half_width: float
    resolution: float
    median_ns: float

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> Summary:
        """The statistics of at least one comparison."""
        count = len(comparisons)
        misses = sum(each.is_miss for each in comparisons)
        low, high = binomial_interval(misses, count)
        widths = [each.half_width for each in comparisons]
        return cls(
            comparisons=count,
            misses=misses,
            miss_rate=misses / count,
            miss_rate_low=low,
            miss_rate_high=high,
            half_width=float(np.median(widths)),
            resolution=float(np.quantile(widths, 0.9)),
            median_ns=float(np.median([each.median_ns for each in comparisons])),
        )


@dataclass(frozen=True)
class SelfTest:
    """Result of a self-test.

    Attributes:
        settings: of the measurements.
        is_busy: whether the other cores were kept busy.
        seconds: duration of the self-test.
        machine: the machine, from `Machine.to_json`.
        comparisons: in the order in which they were made.
    """

    settings: Settings
    is_busy: bool
    seconds: float
    machine: Mapping[str, Any]
    comparisons: tuple[Comparison, ...]

    @property
    def total(self) -> Summary:
        """All comparisons together."""
        return Summary.of(self.comparisons)

    @property
    def by_kind(self) -> dict[str, Summary]:
        """The same for each kind of module."""
        kinds = dict.fromkeys(each.kind for each in self.comparisons)
        return {
            kind: Summary.of([each for each in self.comparisons if each.kind == kind])
            for kind in kinds
        }

    @property
    def is_honest(self) -> bool:
        """False if the intervals miss significantly more often than `MAX_MISSES`."""
        return self.total.miss_rate_low <= MAX_MISSES

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "settings": asdict(self.settings),
            "is_busy": self.is_busy,
            "seconds": self.seconds,
            "machine": dict(self.machine),
            "is_honest": self.is_honest,
            "total": asdict(self.total),
            "by_kind": {kind: asdict(each) for kind, each in self.by_kind.items()},
            "comparisons": [asdict(each) for each in self.comparisons],
        }


def self_test(
    comparisons: int = 200,
    *,
    settings: Settings | None = None,
    is_busy: bool = False,
    modules: Mapping[str, HloModule | str] = MODULES,
    progress: Callable[[], None] | None = None,
) -> SelfTest:
    """Measures modules against themselves, all kinds in turn.

    Each comparison compiles both sides again, with other inputs and another order of
    runs.

    Args:
        comparisons: number of comparisons.
        settings: of the measurements; the seed is that of the first.
        is_busy: keep all other cores busy meanwhile.
        modules: modules, HLO text or paths, by kind.
        progress: called after each comparison.

    Raises:
        ArgumentError: `comparisons` is below 1.
        HloEnvError: a module cannot be measured.
    """
    if comparisons < 1:
        raise ArgumentError(f"comparisons must be an integer >= 1, got {comparisons}")
    settings = settings or Settings()
    parsed = [(kind, as_module(module)) for kind, module in modules.items()]
    found = []
    started = time.perf_counter()
    with Measurer(settings) as measurer, contextlib.ExitStack() as stack:
        if is_busy:
            stack.enter_context(busy_cores(measurer.cores))
        for number in range(comparisons):
            kind, module = parsed[number % len(parsed)]
            # With another seed, the baseline is compiled again.
            measurer.settings = replace(settings, seed=settings.seed + number)
            (result,) = measurer.measure([module], baseline=module)
            found.append(_comparison(kind, result.check()))
            if progress is not None:
                progress()
    return SelfTest(
        settings=settings,
        is_busy=is_busy,
        seconds=time.perf_counter() - started,
        machine=result.machine,
        comparisons=tuple(found),
    )


def _comparison(kind: str, result: Measurement) -> Comparison:
    low, high = result.speedup_interval
    return Comparison(
        kind=kind,
        speedup=result.speedup,
        low=low,
        high=high,
        median_ns=result.median_ns,
        copies=len(result.copies),
        rounds=len(result.durations_ns),
        stopped=result.stopped,
    )


# Accesses more memory than the caches hold, and ends with its parent.
_BUSY = """
import os, numpy
os.sched_setaffinity(0, [{core}])
a, b = numpy.ones((2, 1 << 23))
while os.getppid() == {parent}:
    numpy.copyto(a, b)
    numpy.cos(a[: 1 << 16], out=b[: 1 << 16])
"""


@contextlib.contextmanager
def busy_cores(spared: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Keeps all cores but `spared` busy, each with a process that computes and copies.

    Yields:
        The busy cores.

    Raises:
        ArgumentError: there are no other cores.
    """
    cores = tuple(sorted(os.sched_getaffinity(0) - set(spared)))
    if not cores:
        raise ArgumentError(
            "no other core is available to keep busy; measure with fewer threads"
        )
    processes = []
    try:
        for core in cores:
            code = _BUSY.format(core=core, parent=os.getpid())
            processes.append(
                subprocess.Popen([*PYTHON, "-c", code], env=child_environment())
            )
        yield cores
    finally:
        for process in processes:
            process.kill()
            process.wait()


def binomial_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a probability, from independent trials (Clopper and Pearson).

    Args:
        successes: from 0 to `trials`.
        trials: at least 1.
    """
    tail = _NOMINAL / 2
    low, high = 0.0, 1.0
    if successes > 0:
        low = _root(lambda p: 1 - _at_most(successes - 1, trials, p) - tail)
    if successes < trials:
        high = _root(lambda p: tail - _at_most(successes, trials, p))
    return low, high


def _at_most(successes: int, trials: int, p: float) -> float:
    """Probability of at most `successes`."""
    if p in (0.0, 1.0):
        return 1.0 - p
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(p)
        + (trials - k) * math.log1p(-p)
        for k in range(successes + 1)
    )
    return math.fsum(math.exp(each) for each in logs)


def _root(function: Callable[[float], float]) -> float:
    """The root in [0, 1] of an increasing function."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
