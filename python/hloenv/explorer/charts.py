# SPDX-License-Identifier: Apache-2.0
"""The charts of results, for the page and for `--plot`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._charts import Chart, best_so_far, line

if TYPE_CHECKING:
    from ..search.driver import SearchResult
    from ..tune.journal import Result

_SPEEDUP = "speed-up over XLA's default (1 = equal)"
# Columns of a run's curve: title, label of y, columns with their names.
_COLUMNS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("return", "mean return of an episode", {"episode_return": "return"}),
    ("entropy", "entropy of a decision, nats", {"entropy": "entropy"}),
    ("validation modules", "", {"score": "latest", "best_score": "best so far"}),
    ("loss", "loss", {"loss": "loss"}),
    (
        "validation modules",
        "rank correlation within a module",
        {"kendall": "Kendall's tau", "spearman": "Spearman's"},
    ),
    (
        "the variant that is estimated best",
        "its time over that of the best one",
        {"slowdown": "slowdown"},
    ),
)


def search_charts(data: Mapping[str, Any]) -> list[Chart]:
    """Estimates and measurements of a search, by number of candidates.

    Args:
        data: as `SearchResult.to_json` writes it; without `curve` and `default_s`, as
            earlier versions did, only the measurements.
    """
    charts = []
    default_s = number(data.get("default_s"))
    curve = [number(each) for each in data.get("curve") or ()]
    if curve and default_s > 0:
        points = [(i, default_s / each) for i, each in enumerate(curve, start=1)]
        charts.append(
            Chart(
                "best estimate so far",
                "estimated candidates",
                f"estimated {_SPEEDUP}",
                (line("best so far", points, "step"),),
                1.0,
            )
        )
    speedups = [
        (number(each["speedup"]), *map(number, each["speedup_interval"]))
        if not each["error"]
        else (math.nan,) * 3
        for each in data["measured"]
    ]
    charts.append(
        _measured_chart(
            "measured candidates, best estimate first", _SPEEDUP, speedups, "candidate"
        )
    )
    return charts


def search_seconds(found: SearchResult) -> Chart:
    """The best of a search by the seconds since its start."""
    default_s = found.default_s
    estimated = [
        (seconds, default_s / best if best > 0 else math.nan)
        for seconds, best in found.estimate_curve
    ]
    return Chart(
        "best so far by time",
        "seconds since the start",
        _SPEEDUP,
        (
            line("estimated", estimated, "step"),
            # Nothing was measured right before the first positive speed-up.
            line(
                "measured",
                [each for each in found.measurement_curve if each[1] > 0],
                "step",
            ),
        ),
        1.0,
    )


def tune_charts(
    results: Iterable[Result], name: str = "", baseline: str = "the baseline"
) -> list[Chart]:
    """Measurements of a tuning, by their number and by the seconds that they took.

    Args:
        results: in the order in which they were measured.
        name: of what is tuned, for the titles.
        baseline: what it is compared with.
    """
    results = list(results)
    label = f"speed-up over {baseline} (1 = equal)"
    speedups = [
        (each.speedup, *each.interval) if each.is_ok else (math.nan,) * 3
        for each in results
    ]
    seconds, timed = 0.0, []
    for each in results:
        seconds += each.seconds
        timed.append((seconds, each.speedup if each.is_ok else math.nan))
    prefix = f"{name}: " if name else ""
    return [
        _measured_chart(
            "measured configurations", label, speedups, "configuration", prefix
        ),
        Chart(
            f"{prefix}best so far by time",
            "seconds of compiling and measuring",
            label,
            (line("best so far", best_so_far(timed), "step"),),
            1.0,
        ),
    ]


def training_charts(rows: Sequence[Mapping[str, str]]) -> list[Chart]:
    """Return, entropy, loss and validation of a training run, by step.

    Args:
        rows: of the run's curve.csv.
    """
    charts = []
    for title, label, columns in _COLUMNS:
        lines = [
            line(name, [(number(row["step"]), number(row[key])) for row in rows])
            for key, name in columns.items()
            if rows and key in rows[0]
        ]
        if any(each.points for each in lines):
            charts.append(Chart(title, "step", label or _score(rows[0]), tuple(lines)))
    return charts


def _score(row: Mapping[str, str]) -> str:
    """The label of a run's score: only agents of passes have `steps` beside it."""
    if "steps" in row:
        return "share left of what the reward decreases (less is better)"
    return "estimated speed-up, geometric mean (more is better)"


def number(value: Any) -> float:
    """A number of JSON or CSV; what is missing or no number is nan."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _measured_chart(
    title: str,
    label: str,
    speedups: Sequence[Sequence[float]],
    what: str,
    prefix: str = "",
) -> Chart:
    """Each measurement with its interval, and the best so far."""
    numbered = list(enumerate(speedups, start=1))
    best = best_so_far([(i, each[0]) for i, each in numbered])
    return Chart(
        prefix + title,
        f"number of the measured {what}",
        label,
        (
            line("best so far", best, "step"),
            line(
                f"{what}, with 95 % interval",
                [(i, *each) for i, each in numbered],
                "points",
            ),
        ),
        1.0,
    )
