# SPDX-License-Identifier: Apache-2.0
"""Results of searches and benchmarks, as the page shows them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bench.rows import Row, geometric_mean, read_parquet
from ..errors import ArgumentError
from .schema import MethodRow, ResultRow, Results

_MAX_ROWS = 5000


def no_results() -> Results:
    """The results of a target that has none."""
    return {"kind": "none", "title": "", "note": "", "methods": [], "rows": []}


def read_results(path: Path, data: Any = None) -> Results:
    """Reads the output of `hloenv bench` (.parquet) or of `hloenv search --json`.

    Args:
        path: of the file.
        data: its content, if it is JSON.

    Raises:
        ArgumentError: it is neither.
    """
    if path.suffix == ".parquet":
        return of_bench(path.name, _rows_of(path))
    if data is None:
        data = json.loads(path.read_text(encoding="utf-8"))
    if is_search(data):
        return of_search(path.name, data)
    raise ArgumentError(
        f"{path} is not a result that can be explored; use the .parquet of hloenv "
        "bench, the output of hloenv search --json, or a trace"
    )


def is_search(data: Any) -> bool:
    """Whether this is the output of `hloenv search --json`."""
    return isinstance(data, dict) and {"evaluated", "measured", "best"} <= set(data)


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
    return {
        "kind": "bench",
        "title": title,
        "note": note,
        "methods": table,
        "rows": [_bench_row(each) for each in best[:_MAX_ROWS]],
    }


def of_search(title: str, data: Mapping[str, Any]) -> Results:
    """The measured candidates of a search, in the order of their estimates.

    Raises:
        ArgumentError: a candidate is not as `SearchResult.to_json` writes it.
    """
    rows: list[ResultRow] = []
    curve: list[list[float]] = []
    best = 0.0
    try:
        for number, each in enumerate(data["measured"], start=1):
            low, high = each["speedup_interval"]
            speedup = _number(each["speedup"])
            if speedup is not None:
                best = max(best, speedup)
                curve.append([number, best])
            rows.append(
                {
                    "module": f"candidate {number}",
                    "method": str(data.get("search", "search")),
                    "speedup": speedup,
                    "low": _number(low),
                    "high": _number(high),
                    "estimate_s": _number(each["estimate_s"]),
                    "accepted": sum(
                        int(choice) > 0
                        for decisions in each["decisions"]
                        for choice in decisions
                    ),
                    "changes": {},
                    "curve": [],
                    "error": str(each["error"] or ""),
                }
            )
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{title} is not the output of hloenv search --json: {error!r}"
        ) from None
    if rows:
        rows[0]["curve"] = curve
    return {
        "kind": "search",
        "title": f"{title}: {data.get('module', '')}",
        "note": f"{data['evaluated']} candidates estimated, {len(rows)} measured",
        "methods": [],
        "rows": rows,
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
    }


def _rows_of(path: Path) -> list[Row]:
    try:
        return read_parquet(path)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ArgumentError(
            f"{path} is not a result file of hloenv bench: {error}"
        ) from None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any) -> float | None:
    """A number of JSON; null and infinities are unknown."""
    return None if value is None else _known(float(value))
