# SPDX-License-Identifier: Apache-2.0
"""The figures of a leaderboard: by entry point, with intervals by repository.

Modules of one program are correlated, and so are programs of one project. An entry
point (its loss, gradient and training step, at all sizes) is therefore one unit, and
the interval is a clustered bootstrap: over repositories, and over the entry points of
each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..measurement.statistics import NORMAL_QUANTILE, student_quantile
from .rows import Row

_SAMPLES = 2000
# Classes of the baseline's duration: name, and upper end in ns.
DURATIONS = (
    ("below 10 us", 1e4),
    ("10 to 100 us", 1e5),
    ("0.1 to 1 ms", 1e6),
    ("above 1 ms", math.inf),
)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Headline:
    """The speed-up of a method.

    Attributes:
        mean: geometric mean over entry points of the speed-up.
        low: lower end of its 95 % interval; NaN with a single repository.
        high: upper end.
        modules: number of modules.
        entry_points: number of their entry points.
        repositories: number of the repositories of these.
    """

    mean: float
    low: float
    high: float
    modules: int
    entry_points: int
    repositories: int


def headline(rows: Iterable[Row]) -> Headline:
    """The headline of one method's rows; an error counts as 1."""
    units = unit_logs(rows)
    values = [log for points in units.values() for log in points.values()]
    if not values:
        return Headline(math.nan, math.nan, math.nan, 0, 0, 0)
    low, high = clustered_interval(
        [np.array(list(points.values())) for points in units.values()]
    )
    return Headline(
        math.exp(np.mean(values)),
        low,
        high,
        len({row.module for row in rows}),
        len(values),
        len(units),
    )


def unit_logs(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Log of the speed-up of each entry point, by repository.

    Averages seeds within a module, and modules within an entry point.
    """
    found: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        repository, point = row.unit
        found[repository][point][row.module].append(log_speedup(row))
    return {
        repository: {
            point: float(np.mean([np.mean(seeds) for seeds in modules.values()]))
            for point, modules in points.items()
        }
        for repository, points in found.items()
    }


def log_speedup(row: Row) -> float:
    """Log of the speed-up; 0 for an error, where XLA's default is used."""
    return math.log(row.speedup) if row.is_ok else 0.0


def clustered_interval(clusters: Sequence[Floats]) -> tuple[float, float]:
    """95 % clustered bootstrap interval of the geometric mean.

    Few clusters underestimate the spread between clusters; the interval is widened by
    the quantile of Student's t.

    Args:
        clusters: the logs of the entry points' speed-ups, for each repository.
    """
    count = len(clusters)
    if count < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    means = np.empty(_SAMPLES)
    for sample in range(_SAMPLES):
        drawn = [
            cluster[rng.integers(0, len(cluster), len(cluster))]
            for cluster in (clusters[i] for i in rng.integers(0, count, count))
        ]
        means[sample] = np.concatenate(drawn).mean()
    center = np.concatenate(clusters).mean()
    low, high = np.percentile(means, (2.5, 97.5))
    wider = (
        student_quantile(count - 1) / NORMAL_QUANTILE * math.sqrt(count / (count - 1))
    )
    below, above = max(center - low, 0.0), max(high - center, 0.0)
    return math.exp(center - wider * below), math.exp(center + wider * above)


def baselines_ns(rows: Iterable[Row]) -> dict[str, float]:
    """Run time of each module with XLA's default, if any method was timed on it.

    If only jax.jit was, the time is that of a call from Python.
    """
    times: dict[str, list[float]] = defaultdict(list)
    from_python: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not math.isnan(row.baseline_ns):
            is_called = row.method == "baseline/jax.jit"
            (from_python if is_called else times)[row.module].append(row.baseline_ns)
    return {
        module: float(np.median(each))
        for module, each in {**from_python, **times}.items()
    }


def total_speedup(rows: Iterable[Row], times_ns: dict[str, float]) -> float:
    """XLA's time for all modules over the method's.

    Args:
        rows: of one method. An error counts as XLA's time.
        times_ns: XLA's time of each module; modules without a time are omitted.
    """
    logs: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.module in times_ns:
            logs[row.module].append(log_speedup(row))
    before = math.fsum(times_ns[module] for module in logs)
    after = math.fsum(
        times_ns[module] / math.exp(np.mean(each)) for module, each in logs.items()
    )
    return before / after if after else math.nan


def duration_class(time_ns: float | None) -> str:
    """The name in `DURATIONS`, or "not timed"."""
    if time_ns is None:
        return "not timed"
    return next(name for name, end in DURATIONS if time_ns < end)


def by_duration(rows: Sequence[Row], times_ns: dict[str, float]) -> dict[str, Headline]:
    """The headline of one method's rows in each class of durations."""
    classes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        classes[duration_class(times_ns.get(row.module))].append(row)
    return {name: headline(each) for name, each in classes.items()}
