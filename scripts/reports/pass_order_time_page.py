# SPDX-License-Identifier: Apache-2.0
"""Run times and rates on the page of `run_pass_order.py`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pass_order_results import Results, is_timed, mean_and_interval, table
from reporting import count_of


def time_table(results: Results, variants: Sequence[str]) -> str:
    """Speed-ups over XLA's own order, by the length of the program."""
    path = results.runs / "times.json"
    if not path.exists():
        return "Not measured."
    every = json.loads(path.read_text())
    times = {uri: each for uri, each in every.items() if "error" not in each}
    kinds: dict[str, Callable[[float], bool]] = {
        "all": lambda _: True,
        "below 100 us": lambda s: s < 1e-4,
        "100 us and more": lambda s: s >= 1e-4,
    }
    rows = []
    for variant in ("default", *variants):
        timed: dict[str, Any] = next(iter(times.values()), {})
        names = [each for each in timed if each.rpartition("-")[0] == variant]
        names = [name for name in names if is_timed(results.runs, name)]
        names = [variant] if variant == "default" else names
        if not names:
            continue
        for kind, holds in kinds.items():
            found = {
                u: e for u, e in times.items() if holds(e["default"]["baseline_s"])
            }
            if not found:
                continue
            right = [
                e[name] for e in found.values() for name in names if _is_ok(e[name])
            ]
            faster = sum(each["interval"][0] > 1 for each in right)
            slower = sum(each["interval"][1] < 1 for each in right)
            number = len(found) * len(names)
            default = {uri: _log_speedup(e["default"]) for uri, e in found.items()}
            logs = {
                uri: float(np.mean([_log_speedup(e[name]) for name in names]))
                for uri, e in found.items()
            }
            row = [f"{variant}, {kind}", str(len(found)), str(len(names))]
            row += mean_and_interval(logs)
            row.append(f"{faster} / {slower} / {number - len(right)}")
            if variant == "default":
                row += ["", ""]
            else:
                row += mean_and_interval({u: v - default[u] for u, v in logs.items()})
            rows.append(row)
    columns = (
        *("order, programs", "number", "seeds", "speed-up", "interval"),
        *("faster / slower / failed", "over default", "interval"),
    )
    text = table(columns, rows) if rows else "Not measured."
    if dropped := len(every) - len(times):
        modules = count_of(dropped, "module")
        text += f"\n\nLeft out: {modules} that could not be measured at all."
    return text


def rate_table(results: Results) -> str:
    """Steps a second of the environment."""
    path = results.runs / "rates.json"
    if not path.exists():
        return "Not measured."
    rows = [
        [
            f"`{name}`",
            f"{each['instructions']:,.0f}",
            f"{each['new']:,.0f}",
            f"{each['known']:,.0f}",
        ]
        for name, each in json.loads(path.read_text()).items()
    ]
    return table(("observation", "instructions", "new results", "known results"), rows)


def _is_ok(timed: Mapping[str, Any]) -> bool:
    return not timed["error"]


def _log_speedup(timed: Mapping[str, Any]) -> float:
    """Of one module; a failure counts as 1."""
    return math.log(timed["speedup"]) if _is_ok(timed) else 0.0
