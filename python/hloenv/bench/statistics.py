# SPDX-License-Identifier: Apache-2.0
"""The figures of a leaderboard: by entry point, with intervals by repository.

Modules of one program resemble each other, and so do programs of one project. So an
entry point (its loss, gradient and training step, at all sizes) is one unit, and the
interval comes from drawing repositories anew, and entry points in each.
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
# By the duration of the baseline, in ns: a name, and where it ends.
DURATIONS = (
    ("below 10 us", 1e4),
    ("10 to 100 us", 1e5),
    ("0.1 to 1 ms", 1e6),
    ("above 1 ms", math.inf),
)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Headline:
    """How much faster a method is.

    Attributes:
        mean: geometric mean over entry points of the speed-up.
        low: lower end of its 95 % interval; NaN with a single repository.
        high: upper end.
        modules: so many were played.
        entry_points: so many they are of.
        repositories: so many these are from.
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

    Seeds are averaged in a module, and modules in an entry point.
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
    """0 for an error: XLA's default is then what is left."""
    return math.log(row.speedup) if row.is_ok else 0.0


def clustered_interval(clusters: Sequence[Floats]) -> tuple[float, float]:
    """95 % bootstrap interval of the geometric mean, clusters drawn before members.

    Few clusters show less than the whole spread between clusters: the interval is
    upcast_to_float64 as Student's t asks for.

    Args:
        clusters: for each repository the logs of its entry points' speed-ups.
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
    """How long XLA's default takes of each module, where a method was timed.

    Where only jax.jit was, the time is that of a call from Python.
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
    """All modules one after the other: XLA's time over the method's.

    Args:
        rows: of one method. An error counts as XLA's time.
        times_ns: XLA's time of each module; those of unknown time are left out.
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
    """Of `DURATIONS`, or "not timed"."""
    if time_ns is None:
        return "not timed"
    return next(name for name, end in DURATIONS if time_ns < end)


def by_duration(rows: Sequence[Row], times_ns: dict[str, float]) -> dict[str, Headline]:
    """The headline of one method's rows in each class of durations."""
    classes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        classes[duration_class(times_ns.get(row.module))].append(row)
    return {name: headline(each) for name, each in classes.items()}
