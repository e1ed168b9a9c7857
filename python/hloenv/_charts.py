# SPDX-License-Identifier: Apache-2.0
"""Charts as data, and their pictures; the explorer's page draws the same data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ._files import replacing
from ._optional import needed_by
from .errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["line", "step", "points"]

SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, without yellow. Dashes and markers tell lines apart as well.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_MAX_MARKERS = 12
_MAX_LEGEND_INSIDE = 4
_DPI = 120


@dataclass(frozen=True)
class Line:
    """One series of a chart.

    Attributes:
        name: for the legend.
        points: [x, y] or [x, y, low, high], which is an interval of y.
        kind: "line", "step" (y holds until the next x), or "points".
    """

    name: str
    points: tuple[tuple[float, ...], ...]
    kind: Kind = "line"


@dataclass(frozen=True)
class Chart:
    """One pair of axes.

    Attributes:
        title: of the chart.
        x: label of the axis, with its unit.
        y: the same.
        lines: what is shown; without points that are not finite.
        reference: a y to compare with, such as 1 for a speed-up; None for none.
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    reference: float | None = None


def line(name: str, points: Iterable[Sequence[float]], kind: Kind = "line") -> Line:
    """A line of the points whose numbers are all finite.

    Of a point with an interval that is not known, x and y are kept.
    """
    kept = []
    for point in points:
        if all(map(math.isfinite, point)):
            kept.append(tuple(map(float, point)))
        elif all(map(math.isfinite, point[:2])):
            kept.append(tuple(map(float, point[:2])))
    return Line(name, tuple(kept), kind)


def best_so_far(values: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """[x, the largest y up to there] of the points, from the first finite y on."""
    best, found = -math.inf, []
    for x, y in values:
        if math.isfinite(y):
            best = max(best, y)
        if math.isfinite(best):
            found.append((x, best))
    return found


def check_path(path: str | os.PathLike[str], option: str) -> None:
    """Checks, before the work, that `draw` can write a picture.

    Args:
        path: of the picture.
        option: that names it, for the message.

    Raises:
        ArgumentError: the file has another suffix.
        ImportError: matplotlib is missing.
    """
    if Path(path).suffix not in SUFFIXES:
        raise ArgumentError(
            f"{option} draws {', '.join(SUFFIXES)}, got {Path(path).name!r}"
        )
    with needed_by(option, "matplotlib", "bench"):
        import matplotlib.figure  # noqa: F401


def draw(
    charts: Sequence[Chart], path: str | os.PathLike[str], *, title: str = ""
) -> bool:
    """Draws charts side by side into one picture; those without points are left out.

    Args:
        charts: what to draw.
        path: of the picture, .png, .svg or .pdf.
        title: of the whole picture.

    Returns:
        Whether the file was written: not if no chart has a point.

    Raises:
        ImportError: matplotlib is missing.
    """
    with needed_by("a chart", "matplotlib", "bench"):
        from matplotlib.figure import Figure

    shown = [each for each in charts if any(one.points for one in each.lines)]
    if not shown:
        return False
    columns = min(len(shown), 3)
    rows = math.ceil(len(shown) / columns)
    size = (max(4.8 * columns, 6.4), 4.0 * rows + 0.4 * bool(title))
    figure = Figure(figsize=size, layout="constrained")
    for number, chart in enumerate(shown, start=1):
        paint(figure.add_subplot(rows, columns, number), chart)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    path = Path(path)
    with replacing(path) as draft:
        figure.savefig(
            os.fspath(draft),
            dpi=_DPI,
            format=path.suffix[1:],
            metadata={"Software": None} if path.suffix == ".png" else None,
        )
    return True


def paint(axes: Axes, chart: Chart) -> None:
    """Draws a chart into axes of matplotlib."""
    from matplotlib.ticker import MaxNLocator

    lines = [each for each in chart.lines if each.points]
    for number, each in enumerate(lines):
        _paint_line(axes, each, number, has_markers=len(lines) > len(_DASHES))
    _limit(axes, lines, chart.reference)
    if chart.reference is not None:
        axes.axhline(chart.reference, color="gray", linewidth=0.8, zorder=0)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_title(chart.title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    # Numbers as they are, without a common offset.
    axes.ticklabel_format(useOffset=False)
    xs = [point[0] for each in lines for point in each.points]
    if all(x == int(x) for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(lines) > _MAX_LEGEND_INSIDE:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 1))
    elif len(lines) > 1:
        axes.legend(frameon=False, fontsize=8)


def _limit(axes: Axes, lines: Sequence[Line], reference: float | None) -> None:
    """Cuts intervals off that would make everything else small."""
    ys = [point[1] for each in lines for point in each.points]
    if reference is not None:
        ys.append(reference)
    ends = [y for each in lines for point in each.points for y in point[2:]]
    low, high = min(ys), max(ys)
    room = (high - low) or 0.1 * abs(high) or 1.0
    low = min([low, *(max(each, low - room) for each in ends)])
    high = max([high, *(min(each, high + room) for each in ends)])
    margin = 0.05 * ((high - low) or room)
    axes.set_ylim(low - margin, high + margin)


def _paint_line(axes: Axes, line: Line, number: int, *, has_markers: bool) -> None:
    color = _COLORS[number % len(_COLORS)]
    marker = _MARKERS[number % len(_MARKERS)]
    xs = [point[0] for point in line.points]
    ys = [point[1] for point in line.points]
    if line.kind == "points":
        axes.plot(
            xs,
            ys,
            marker,
            color=color,
            label=line.name,
            markersize=5,
            markerfacecolor="white",
            zorder=3,
        )
        known = [point for point in line.points if len(point) == 4]
        axes.vlines(
            [point[0] for point in known],
            [point[2] for point in known],
            [point[3] for point in known],
            color=color,
            linewidth=1,
        )
        return
    every = max(1, len(xs) // _MAX_MARKERS)
    axes.plot(
        xs,
        ys,
        color=color,
        linestyle=_DASHES[number % len(_DASHES)],
        marker=marker,
        markersize=4,
        # Of a step at least the end, which may be all that there is.
        markevery=every if has_markers or line.kind == "line" else [len(xs) - 1],
        drawstyle="steps-post" if line.kind == "step" else "default",
        label=line.name,
    )
