# SPDX-License-Identifier: Apache-2.0
"""Modules, alternatives and comparisons in notebooks: a small table, a picture.

The HTML loads nothing and has no program. Colours are those of the page, and words or
signs say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..errors import HloEnvError
from ..hlo.diff import ModuleDiff
from ..hlo.module import HloModule
from ..measurement.record import Measurement
from ..rewrite.alternatives import Alternatives
from .alternative_data import alternative_detail, alternative_rows
from .changes import Changes
from .graph_data import HAS_BOX, graph_data
from .schema import BeforeAfter, GraphData

_MAX_ROWS = 10
_MAX_DRAWN = 150
_MAX_COUNTED = 20_000  # static estimates of larger captures take seconds
_UNIT = 9.0  # pixels
_FILLS = {"removed": "#fbd9d6", "added": "#d3ecd6", "changed": "#fbe7c6"}
_SIGNS = {"removed": "\u2212 ", "added": "+ ", "changed": "~ "}


def module_html(module: HloModule) -> str:
    """A module: its size and cost, its opcodes, and a picture if it is small."""
    counts = sorted(module.opcode_counts().items(), key=lambda item: -item[1])
    rows: list[tuple[object, object]] = [
        ("instructions", module.instruction_count),
        ("computations", module.computation_count),
        (
            "opcodes",
            ", ".join(f"{name} {count}" for name, count in counts[:_MAX_ROWS]),
        ),
    ]
    picture = ""
    try:
        cost = module.cost()
        rows.append(("operations", f"{cost.flops:,.0f}"))
        rows.append(("bytes moved", f"{cost.bytes:,.0f}"))
        if module.instruction_count <= _MAX_DRAWN:
            picture = svg_of(graph_data(module))
    except HloEnvError as error:
        rows.append(("error", str(error)))
    if module.position is not None:
        rows.append(("position", str(module.position)))
    return _titled(f"HloModule {module.name}", _table((), rows) + picture)


def alternatives_html(alternatives: Alternatives) -> str:
    """Alternatives: those that gain most by the static estimate, the first drawn."""
    number = len(alternatives)
    plural = "" if number == 1 else "s"
    title = f"{number} alternative{plural} of {', '.join(alternatives.pass_names)}"
    if not number or number > _MAX_COUNTED:
        return _titled(title, "")
    pairs = [
        (each["static_s"], row["index"], taken, row, each)
        for row in alternative_rows(alternatives)
        for taken, each in enumerate(row["choices"])
        if taken > 0
    ]
    pairs.sort(key=lambda pair: pair[:3])
    rows = [
        (
            f"{row['index']}: {taken}",
            row["original"],
            f"{row['opcode']} \u2192 {each['opcode']}",
            ", ".join(each["passes"]),
            f"{each['bytes']:+,.0f}",
            _microseconds(seconds),
        )
        for seconds, _, taken, row, each in pairs[:_MAX_ROWS]
    ]
    columns = ("decision", "instruction", "rewrite", "passes", "bytes", "static")
    _, index, choice, _, _ = pairs[0]
    return _titled(
        title,
        _table(columns, rows)
        + _left_out(len(pairs))
        + _before_and_after(alternatives, index, choice),
    )


def diff_html(diff: ModuleDiff) -> str:
    """The differences of two modules."""
    changes = [
        (
            _SIGNS[change.kind].strip(),
            change.kind,
            change.after or change.before,
            change.opcode,
            "; ".join((change.shape, *change.details)),
        )
        for computation in diff.computations
        for change in computation.changes
    ]
    counts = ", ".join(
        f"{diff.count(kind)} {kind}" for kind in ("removed", "changed", "added")
    )
    title = "equal modules" if diff.is_same else f"{counts}, {diff.num_same} the same"
    columns = ("", "kind", "instruction", "opcode", "what")
    body = ""
    if changes:
        body = _table(columns, changes[:_MAX_ROWS]) + _left_out(len(changes))
        body += "<p>The first change</p>" + _sides(Changes(diff).around(0))
    return _titled(title, body)


def measurement_html(measurement: Measurement) -> str:
    """A measurement: both times and the interval of the speed-up, as bars."""
    if measurement.error is not None:
        return _titled("not measured", f"<p>{escape(str(measurement.error))}</p>")
    low, high = measurement.speedup_interval
    times = {
        "baseline": measurement.baseline_median_ns,
        "module": measurement.median_ns,
    }
    rows = [(name, f"{ns / 1e3:,.2f} \u00b5s") for name, ns in times.items()]
    rows.append(
        ("speed-up", f"{measurement.speedup:.3f} (95 %: {low:.3f} to {high:.3f})")
    )
    return _titled("measurement", _table((), rows) + _bars(times))


def svg_of(graph: GraphData, changed: Mapping[str, str] | None = None) -> str:
    """A graph as SVG; the first letters of names are cut to their boxes.

    Args:
        graph: with coordinates.
        changed: kind of change by name.
    """
    changed = changed or {}
    width, height = graph["width"] * _UNIT, graph["height"] * _UNIT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="-4 -4 {width + 8:.0f} {height + 8:.0f}" '
        'style="max-width:100%;height:auto;background:#fff">'
    ]
    nodes = range(len(graph["names"]))
    groups = [node for node in nodes if graph["flags"][node] & HAS_BOX]
    # Outer groups are larger than those inside them.
    groups.sort(key=lambda node: -graph["w"][node] * graph["h"][node])
    parts += [_svg_node(graph, node, changed) for node in groups]
    for source, target in zip(
        graph["edge_sources"], graph["edge_targets"], strict=True
    ):
        x0, x1 = graph["x"][source] * _UNIT, graph["x"][target] * _UNIT
        y0 = (graph["y"][source] + graph["h"][source] / 2) * _UNIT
        y1 = (graph["y"][target] - graph["h"][target] / 2) * _UNIT
        middle = (y0 + y1) / 2
        parts.append(
            f'<path d="M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} '
            f'{x1:.1f} {y1:.1f}" fill="none" stroke="#5a6880"/>'
        )
    grouped = frozenset(groups)
    parts += [_svg_node(graph, node, changed) for node in nodes if node not in grouped]
    return "".join([*parts, "</svg>"])


def _svg_node(graph: GraphData, node: int, changed: Mapping[str, str]) -> str:
    name, opcode = graph["names"][node], graph["opcodes"][graph["opcode"][node]]
    kind = changed.get(name, "")
    left = (graph["x"][node] - graph["w"][node] / 2) * _UNIT
    top = (graph["y"][node] - graph["h"][node] / 2) * _UNIT
    width, height = graph["w"][node] * _UNIT, graph["h"][node] * _UNIT
    fill = _FILLS.get(kind, "#eef0f3")
    dashes = ' stroke-dasharray="4 3"' if kind == "removed" else ""
    text = f"{_SIGNS.get(kind, '')}{opcode}"
    letters = max(1, int(width / 6.2))
    return (
        f"<g><title>{escape(name)} {escape(graph['shapes'][graph['shape'][node]])}"
        f'</title><rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="4" fill="{fill}" stroke="#8a96a8"{dashes}/>'
        f'<text x="{left + 5:.1f}" y="{top + 15:.1f}" font-size="10" '
        f'font-family="monospace" fill="#1b2330">{escape(text[:letters])}</text></g>'
    )


def _before_and_after(alternatives: Alternatives, index: int, choice: int) -> str:
    module = HloModule._wrap(
        alternatives._capture.module(), position=alternatives._place
    )
    try:
        detail = alternative_detail(alternatives, module, index, choice)
    except HloEnvError as error:
        return f"<p>{escape(str(error))}</p>"
    return f"<p>Decision {index}: {choice}</p>" + _sides(detail)


def _sides(found: BeforeAfter) -> str:
    sides = "".join(
        f'<figure style="margin:0 12px 0 0;flex:1;min-width:0"><figcaption>{side}'
        f"</figcaption>{svg_of(graph, found['changed'])}</figure>"
        for side, graph in (("before", found["before"]), ("after", found["after"]))
        if len(graph["names"]) <= _MAX_DRAWN
    )
    return f'<div style="display:flex;align-items:flex-start">{sides}</div>'


def _bars(times: Mapping[str, float]) -> str:
    most = max(times.values(), default=0.0)
    if not np.isfinite(most) or most <= 0:
        return ""
    bars = "".join(
        f'<rect x="70" y="{4 + 22 * row}" width="{240 * ns / most:.1f}" height="16" '
        f'fill="{color}"/><text x="64" y="{16 + 22 * row}" text-anchor="end" '
        f'font-size="12">{name}</text>'
        for row, ((name, ns), color) in enumerate(
            zip(times.items(), ("#aeb8c8", "#1f5fd6"), strict=True)
        )
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="320" height="48" '
        f'style="background:#fff">{bars}</svg>'
    )


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:+,.2f} \u00b5s"


def _left_out(number: int) -> str:
    return f"<p>{number - _MAX_ROWS} more</p>" if number > _MAX_ROWS else ""


def _titled(title: str, body: str) -> str:
    return f"<div><b>{escape(title)}</b>{body}</div>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f"<table>{top}<tbody>{lines}</tbody></table>"
