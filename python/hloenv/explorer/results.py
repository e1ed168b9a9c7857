# SPDX-License-Identifier: Apache-2.0
"""Results of searches, tunings, trainings and benchmarks, as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._charts import Chart
from ..bench.plots import curves_chart
from ..bench.rows import Row, geometric_mean
from ..errors import ArgumentError
from .charts import number, search_charts, training_charts, tune_charts
from .schema import ChartData, MethodRow, ResultRow, Results

if TYPE_CHECKING:
    from ..jax.artefact import Artefact, Tuned
    from ..tune.journal import Result

_MAX_ROWS = 5000


def no_results() -> Results:
    """The results of a target that has none."""
    return _results("none")


def of_bench(title: str, rows: Sequence[Row]) -> Results:
    """The leaderboard of a benchmark and its rows, the largest gains first."""
    methods: dict[str, list[Row]] = {}
    for row in rows:
        methods.setdefault(row.method, []).append(row)
    table: list[MethodRow] = []
    for method, group in methods.items():
        good = [each.speedup for each in group if each.is_ok and each.speedup > 0]
        table.append(
            {
                "method": method,
                "modules": len(group),
                "mean_speedup": _known(geometric_mean(good)),
                "failures": sum(not each.is_ok for each in group),
            }
        )
    table.sort(key=lambda each: -(each["mean_speedup"] or 0.0))
    best = sorted(rows, key=lambda each: -(each.speedup if each.is_ok else -1.0))
    note = "" if len(rows) <= _MAX_ROWS else f"{len(rows) - _MAX_ROWS} rows left out"
    searched = [each for each in rows if each.is_ok and each.curve]
    return _results(
        "bench",
        title,
        note,
        charts=[curves_chart(searched)] if searched else [],
        methods=table,
        rows=[_bench_row(each) for each in best[:_MAX_ROWS]],
    )


def of_search(title: str, data: Mapping[str, Any]) -> Results:
    """The measured candidates of a search, in the order of their estimates.

    Raises:
        ArgumentError: a candidate is not as `SearchResult.to_json` writes it.
    """
    rows: list[ResultRow] = []
    try:
        for count, each in enumerate(data["measured"], start=1):
            low, high = each["speedup_interval"]
            rows.append(
                _row(
                    f"candidate {count}",
                    str(data.get("search", "search")),
                    (_number(each["speedup"]), _number(low), _number(high)),
                    estimate_s=_number(each["estimate_s"]),
                    accepted=sum(
                        int(choice) > 0
                        for decisions in each["decisions"]
                        for choice in decisions
                    ),
                    error=str(each["error"] or ""),
                    has_trace=each.get("trace") is not None,
                )
            )
        charts = search_charts(data)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{title} is not the output of hloenv search --json: {error!r}"
        ) from None
    return _results(
        "search",
        f"{title}: {data.get('module', '')}",
        f"{data['evaluated']} candidates estimated, {len(rows)} measured",
        charts=charts,
        rows=rows,
    )


def of_tuning(title: str, results: Sequence[Result]) -> Results:
    """The measured configurations of a tuning, in their order."""
    rows = [
        _row(
            each.configuration.text,
            each.arm,
            (each.speedup, *each.interval) if each.is_ok else (None,) * 3,
            accepted=len(each.configuration.choices),
            error=each.error,
        )
        for each in results
    ]
    good = sum(each.is_ok for each in results)
    note = f"{len(results)} configurations measured, {len(results) - good} failed"
    return _results("tune", title, note, charts=tune_charts(results), rows=rows)


def of_artefact(title: str, artefact: Artefact) -> Results:
    """What `hloenv tune` has found for each program."""
    rows = [_tuned_row(each) for each in artefact.entries]
    note = (
        "compared afresh at the end; the measurements of a tuning are in its .journal, "
        "which hloenv tune names"
    )
    return _results("tune", title, note, rows=rows)


def of_training(
    title: str, rows: Sequence[Mapping[str, str]], report: Any = None
) -> Results:
    """The curves of a run, and what its best model is compared with.

    Args:
        title: of the run.
        rows: of its curve.csv.
        report: of its report.json; runs of `rewrite` and `substitution` have one.
    """
    report = report if isinstance(report, dict) else {}
    compared = report.get("policies") or report.get("methods") or {}
    modules = len(report.get("modules") or ())
    methods: list[MethodRow] = [
        {
            "method": str(name),
            "modules": modules,
            "mean_speedup": _known(number(each.get("speedup"))),
            "failures": 0,
        }
        for name, each in compared.items()
    ]
    methods.sort(key=lambda each: -(each["mean_speedup"] or 0.0))
    last = rows[-1] if rows else {}
    note = f"{last.get('step', 0)} steps, {number(last.get('seconds', 0)):.0f} seconds"
    charts = training_charts(rows)
    return _results("train", title, note, charts=charts, methods=methods)


def _tuned_row(entry: Tuned) -> ResultRow:
    decided = [each for each in entry.stages if each.get("decided", "xla") != "xla"]
    return _row(
        entry.name,
        entry.label or f"as {entry.baseline} has it: {entry.reason}",
        (entry.speedup, *entry.interval),
        accepted=len(decided),
        changes={f"{each['stage']}: {each['decided']}": 1 for each in decided},
        has_trace=entry.recipe.trace is not None,
        facts=_facts(entry),
    )


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g} ms"


def _facts(entry: Tuned) -> dict[str, str]:
    """What the last check of a tuning has found, and where it holds."""
    found = {
        "compared with": entry.baseline,
        f"time of {entry.baseline}": _milliseconds(entry.baseline_s),
        "time to compile": _milliseconds(entry.compile_s),
        "outputs": "bitwise equal"
        if entry.is_bitwise
        else f"within {entry.excess:.2g} of the tolerance; largest error "
        f"{entry.error:.3g}",
        "numerical class": entry.numerics,
    }
    if entry.is_identity:
        found = {f"time of {entry.baseline}": _milliseconds(entry.baseline_s)}
    where = entry.environment
    return {
        **found,
        "stages tried": ", ".join(str(each.get("stage", "")) for each in entry.stages),
        "date": entry.date,
        "processor": f"{where.get('cpu', '')}, {where.get('cores', '?')} cores",
        "versions": ", ".join(
            f"{name} {where[name]}"
            for name in ("hloenv", "jaxlib", "tensorflow")
            if where.get(name)
        ),
    }


def _results(
    kind: str,
    title: str = "",
    note: str = "",
    *,
    charts: Sequence[Chart] = (),
    methods: Sequence[MethodRow] = (),
    rows: Sequence[ResultRow] = (),
) -> Results:
    shown: list[ChartData] = [
        _chart_data(each) for each in charts if any(one.points for one in each.lines)
    ]
    return {
        "kind": kind,
        "title": title,
        "note": note,
        "charts": shown,
        "methods": list(methods),
        "rows": list(rows),
    }


def _chart_data(chart: Chart) -> ChartData:
    return {
        "title": chart.title,
        "x": chart.x,
        "y": chart.y,
        "lines": [
            {
                "name": each.name,
                "points": [list(point) for point in each.points],
                "kind": each.kind,
            }
            for each in chart.lines
            if each.points
        ],
        "reference": chart.reference,
    }


def _row(
    module: str,
    method: str,
    speedups: Sequence[float | None],
    *,
    estimate_s: float | None = None,
    accepted: int = 0,
    changes: Mapping[str, int] | None = None,
    error: str = "",
    has_trace: bool = False,
    facts: Mapping[str, str] | None = None,
) -> ResultRow:
    """A row; `speedups` are the speed-up and the ends of its interval."""
    speedup, low, high = (_number(each) for each in speedups)
    return {
        "module": module,
        "method": method,
        "speedup": speedup,
        "low": low,
        "high": high,
        "estimate_s": estimate_s,
        "accepted": accepted,
        "changes": dict(changes or {}),
        "curve": [],
        "error": error,
        "has_trace": has_trace,
        "facts": dict(facts or {}),
    }


def _bench_row(row: Row) -> ResultRow:
    return {
        "module": row.module,
        "method": row.method,
        "speedup": _known(row.speedup),
        "low": _known(row.low),
        "high": _known(row.high),
        "estimate_s": None,
        "accepted": row.accepted,
        "changes": dict(row.changes),
        "curve": [[float(x), float(y)] for x, y in row.curve],
        "error": row.error,
        "has_trace": False,
        "facts": {},
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any) -> float | None:
    """A number of JSON; null and infinities are unknown."""
    return None if value is None else _known(float(value))
