#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the leaderboards would say if XLA's default were timed alone.

A method's module and XLA's default are timed in turns, in one process. The baselines of
the same report have XLA's default in a process of its own, where nothing else runs
between its calls. This compares the two, from the results of `hloenv bench`, and times
one module after other work of its thread. Needs a quiet core.

    python scripts/reports/run_alone.py docs/leaderboard/*.parquet \
        --doc docs/leaderboard/alone.md
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import hloenv
from hloenv._markdown import table
from hloenv.policies import get_policy
from hloenv.runtime.executable import Executable, time_runs
from hloenv.search.spaces import SPACES, decide
from reporting import (
    Row,
    head,
    interval_text,
    mean_by_entry_point,
    parser_of,
    write_page,
)

# Timed by the wheel's XLA without Python; its default is their `baseline_ns`.
_BASELINES = ("baseline/xla", "baseline/best-flags")
# A module of many small kernels, which XLA's default runs as a dataflow graph.
_EXAMPLE = "pennylane", "pennylane/classifier[layers=basic,size=4x2]/loss"
# Microseconds of other work before each call.
_WORK_US = (0, 20, 100, 1000)
_CALLS = 400
_METHODS = ("forms-to-fusion/best-rule", "runtime/accept-all", "forms/known-forms")


def compare(rows: list[Row], method: str) -> list[str] | None:
    """Cells of one method: its means and total times, in turns and alone."""
    alone: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        is_baseline = row["method"].startswith(_BASELINES) and not row["error"]
        if is_baseline and not math.isnan(row["baseline_ns"]):
            alone[row["module"]].append(row["baseline_ns"])
    pairs: dict[str, list[tuple[str, str, float]]] = {"turns": [], "alone": []}
    totals: dict[str, float] = defaultdict(float)
    ratios = []
    for row in rows:
        if row["method"] != method or row["module"] not in alone:
            continue
        default = statistics.median(alone[row["module"]])
        unit = row["repository"], row["entry_point"]
        is_changed = not row["error"] and not row["same"]
        in_turns = row["speedup"] if is_changed else 1.0
        by_itself = default / row["median_ns"] if is_changed else 1.0
        if is_changed:
            ratios.append(row["baseline_ns"] / default)
        pairs["turns"].append((*unit, in_turns))
        pairs["alone"].append((*unit, by_itself))
        totals["default"] += default
        totals["turns"] += default / in_turns
        totals["alone"] += default / by_itself
    if not ratios:
        return None
    means = {name: mean_by_entry_point(each)[:3] for name, each in pairs.items()}
    return [
        method,
        str(len(pairs["turns"])),
        f"{statistics.median(ratios):.2f}",
        f"{sum(each > 1.15 for each in ratios)} of {len(ratios)}",
        *(
            cell
            for name in ("turns", "alone")
            for mean, low, high in [means[name]]
            for cell in (
                f"{mean:.3f} ({interval_text(low, high)})",
                f"{totals['default'] / totals[name]:.3f}",
            )
        ),
    ]


def page(reports: dict[str, list[Row]]) -> list[str]:
    """The page: a table for each report."""
    lines: list[Any] = [
        *head("XLA's default in turns and alone"),
        "",
        "In *turns*: XLA's default is called beside the decided module, in one",
        "process, as in the leaderboards. *Alone*: its time in a process of its own,",
        "from the baselines of the same report, over that of the decided module in",
        "turns; the two are of different moments. *Default*: the median of the first",
        "time over the second, and in how many modules it is more than 1.15. Means by",
        "entry point (95 %, by repository) and total times; failures and unchanged",
        "modules count as 1.",
        "",
    ]
    columns = ["method", "modules", "default", "above 1.15"]
    for name in ("in turns", "alone"):
        columns += [f"speed-up, {name}", "total time"]
    for name, rows in reports.items():
        cells = [each for m in _METHODS if (each := compare(rows, m))]
        if cells:
            lines += [f"## {name}", "", *table(columns, cells), ""]
    return lines


def after_other_work() -> list[str]:
    """A table: one module's time when its thread has done other work before."""
    source, name = _EXAMPLE
    records = hloenv.dataset.load("unseen").select(source=source)
    (record,) = [each for each in records if each.name == name]
    module, inputs = record.module, record.inputs()
    decided = decide(module, SPACES["runtime"], get_policy("accept-all", seed=0))
    default = hloenv.compile(module)
    ordered = hloenv.compile(decided.module, finish="none")

    def median_us(executable: Executable, work_us: int) -> str:
        durations = []
        for _ in range(_CALLS):
            end = time.perf_counter_ns() + work_us * 1000
            while time.perf_counter_ns() < end:
                pass
            (found,) = time_runs([executable], [inputs], repeats=1, warmup=0)
            durations.append(found[0])
        return f"{statistics.median(durations[_CALLS // 8 :]) / 1e3:.1f}"

    def in_rounds(*executables: Executable) -> list[str]:
        found = time_runs(
            executables, [inputs] * len(executables), repeats=_CALLS, warmup=50
        )
        return [f"{statistics.median(each) / 1e3:.1f}" for each in found]

    cells = [
        ("back to back", *in_rounds(default), *in_rounds(ordered)),
        ("in turns", *in_rounds(default, ordered)),
    ]
    cells += [
        (f"after {us} us of Python", median_us(default, us), median_us(ordered, us))
        for us in _WORK_US
    ]
    cores = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
    return [
        "## After other work",
        "",
        f"`{source}/{name}`, microseconds a call, on core {cores}: XLA's default, a",
        "dataflow graph whose steps go to a thread of a pool, and the same module with",
        "small products and the order of its steps decided (`runtime/accept-all`),",
        "which runs on the caller's thread.",
        "",
        *table(("calls", "XLA's default", "decided"), cells),
        "",
    ]


def main() -> int:
    """Reads the results and writes the page."""
    parser = parser_of(__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="of `hloenv bench`")
    args = parser.parse_args()
    reports = {
        path.stem: pq.read_table(path).to_pylist() for path in sorted(args.results)
    }
    write_page([*page(reports), *after_other_work()], args.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
