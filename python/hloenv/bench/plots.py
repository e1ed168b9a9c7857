# SPDX-License-Identifier: Apache-2.0
"""Plots of a benchmark's rows; needs matplotlib."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._charts import Chart, line, paint
from .rows import Row
from .tables import Standing, module_logs, standings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_METHODS = 14
_DPI = 120
_TICKS = (0.01, 0.03, 0.1, 0.25, 0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
_WIDE_TICKS = (0.001, 0.01, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1e3, 1e4)
# Largest over smallest speed-up from which the ticks are further apart.
_WIDE = 50.0


def write_plots(rows: Sequence[Row], folder: Path) -> list[str]:
    """Draws the plots that the rows allow; returns the names of the files.

    Raises:
        ImportError: matplotlib is missing.
    """
    right = [row for row in rows if row.is_ok]
    searched = [row for row in right if row.curve]
    names = []
    if _ranked(rows):
        names += [
            _draw(folder / "speedups.png", lambda axes: _speedups(axes, rows)),
            _draw(folder / "families.png", lambda axes: _families(axes, rows)),
        ]
    if searched:
        chart = curves_chart(searched)
        names.append(_draw(folder / "curves.png", lambda axes: paint(axes, chart)))
    return names


def _ranked(rows: Sequence[Row]) -> list[Standing]:
    """Policies and searches, ranked separately and merged, the best first."""
    searches = [row for row in rows if row.is_search]
    policies = [row for row in rows if not row.is_search]
    ranked = [*standings(policies), *standings(searches)]
    return sorted(ranked, key=lambda each: -each.mean)


def _draw(path: Path, paint: Any) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    paint(axes)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(os.fspath(path), dpi=_DPI, metadata={"Software": None})
    return path.name


def _speedups(axes: Axes, rows: Sequence[Row]) -> None:
    """Distribution of the speed-ups over modules, the best methods on top."""
    ranked = _ranked(rows)[:_MAX_METHODS][::-1]
    values = [
        np.exp(module_logs(row for row in rows if row.method == each.method))
        for each in ranked
    ]
    axes.boxplot(
        values,
        orientation="horizontal",
        tick_labels=[each.method for each in ranked],
        widths=0.6,
        whis=(5, 95),
        flierprops={"markersize": 3, "alpha": 0.5},
    )
    axes.axvline(1.0, color="gray", linewidth=0.8)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = _TICKS if high < _WIDE * low else _WIDE_TICKS
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("speed-up over XLA's default (boxes: quartiles, lines: 90 %)")


def _families(axes: Axes, rows: Sequence[Row]) -> None:
    """Mean of the best method of each family of modules."""
    best: dict[str, Any] = {}
    for family in sorted({row.family or "unknown" for row in rows}):
        of_family = [
            row
            for row in rows
            if (row.family or "unknown") == family and not row.is_baseline
        ]
        if ranked := _ranked(of_family):
            best[family] = ranked[0]
    names = sorted(best, key=lambda name: best[name].mean)
    means = np.array([best[name].mean for name in names])
    axes.barh(names, means - 1, left=1, height=0.6)
    for position, name in enumerate(names):
        axes.annotate(
            f"{best[name].mean:.2f}  {best[name].method}",
            (max(means[position], 1), position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(1.0, color="gray", linewidth=0.8)
    axes.margins(x=0.35)
    axes.set_xlabel("speed-up over XLA's default, geometric mean of the best method")


def curves_chart(rows: Sequence[Row]) -> Chart:
    """Best estimated speed-up so far by number of estimates, mean over modules.

    Args:
        rows: of searches, without failures.
    """
    lines = []
    by_method: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_method[row.method].append(row)
    for name, each in sorted(by_method.items()):
        length = max(max(row.estimates for row in each), 1)
        logs = np.zeros((len(each), length))
        for index, row in enumerate(each):
            for count, speedup in row.curve:
                logs[index, count - 1 :] = np.log(speedup)
        means = np.exp(logs.mean(axis=0))
        is_kept = np.diff(means, prepend=0.0) != 0
        is_kept[-1] = True
        points = [(i + 1, means[i]) for i in np.flatnonzero(is_kept).tolist()]
        lines.append(line(name, points, "step"))
    return Chart(
        "best so far, by method",
        "estimates",
        "estimated speed-up of the best, geometric mean",
        tuple(lines),
        1.0,
    )
