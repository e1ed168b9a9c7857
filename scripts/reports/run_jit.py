#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares hloenv.jit with jax.jit on programs of the dataset, from the caller's side.

Each program becomes a jax function in its own process. Both versions are called once,
which includes the decision of hloenv.jit, and then timed interleaved. Rows are appended
to a JSONL file; a repeated run continues.

    python scripts/reports/run_jit.py --split validation --extent real
    python scripts/reports/run_jit.py --split test --extent real \
        --doc docs/leaderboard/jit.md
    python scripts/reports/run_jit.py --split test --extent small --modules 150 \
        --outputs numpy --doc docs/leaderboard/jit_numpy.md
    python scripts/reports/run_jit.py --split test --extent real --budget 0 \
        --doc docs/leaderboard/jit_unmeasured.md
    python scripts/reports/run_jit.py --split train --match resnet18x64
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.entries import sample
from hloenv.bench.rows import geometric_mean
from hloenv.bench.statistics import DURATIONS, duration_class
from hloenv.dataset.reader import Record
from hloenv.measurement.statistics import speedup_interval, speedup_of
from reporting import (
    Row,
    Rows,
    add_dataset,
    add_timing,
    count_of,
    head,
    interval_text,
    mean_by_entry_point,
    parser_of,
    rows_of_programs,
    version_of_rows,
    write_page,
)

_TIMEOUT_S = 900.0
_ROUNDS = 5, 2000  # minimum, maximum
_MAX_REASON = 90  # letters
_BATCH_NS = 100_000
_MEASURED = (
    "By default, `@hloenv.jit` decides by fixed rules (forms of operations, small "
    "loops, what jaxlib gives to its library, loops and short functions by the wheel's "
    "compiler), and uses the result where it is measured to be significantly faster."
)
_UNMEASURED = (
    "With `@hloenv.jit(budget=0)` nothing is timed or compared: the fixed rules' "
    "decisions are used as they are. First calls have no measurements, and no other "
    "versions are compiled."
)


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    add_dataset(parser, "validation")
    add_timing(parser, 3.0, "build/jit.jsonl")
    parser.add_argument("--modules", type=int, help="size of a random sample")
    parser.add_argument(
        "--outputs",
        choices=("jax", "numpy"),
        default="jax",
        help="of hloenv.jit: numpy arrays come and go without jax's dispatch; jax.jit "
        "gets and returns its own",
    )
    parser.add_argument(
        "--budget",
        type=float,
        help="of hloenv.jit, in seconds, in place of its default: with 0 it decides "
        "without a comparison",
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(record: Record, seconds: float, outputs: str, budget: float | None) -> Row:
    """Measures one program in this process."""
    jax: Any = importlib.import_module("jax")

    from hloenv.jax.compare import take_turns
    from hloenv.jax.outputs import difference
    from hloenv.jax.wrapping import moved_arguments
    from hloenv.runtime.jaxlib.stablehlo import program_of

    # Of jax.jit its own, which it takes and gives fastest.
    inputs: list[Any] = [jax.device_put(each) for each in record.inputs()]
    own = inputs if outputs == "jax" else record.inputs()
    program = program_of(record.module)
    plain = jax.jit(lambda *arrays: tuple(program(*arrays)), keep_unused=True)
    inner = jax.jit(lambda *arrays: tuple(program(*arrays)), keep_unused=True)
    ours: Any = hloenv.jit(
        lambda *arrays: inner(*arrays),
        keep_unused=True,
        outputs=outputs,
        **({} if budget is None else {"budget": budget}),
        **({"remember": False} if outputs == "jax" else {}),
    )
    begin = time.perf_counter()
    jax.block_until_ready(plain(*inputs))
    middle = time.perf_counter()
    jax.block_until_ready(ours(*own))
    end = time.perf_counter()
    calls = (lambda: plain(*inputs)), (lambda: ours(*own))
    # Short ones are timed together, as the clock is read between the calls.
    single = min(take_turns(*calls, rounds=(5, 5), seconds=0)[0])
    count = max(1, round(_BATCH_NS / single))
    durations = take_turns(*calls, rounds=_ROUNDS, seconds=seconds, calls=count)
    low, high = speedup_interval(*durations)
    # As it is decided.
    is_equal = not difference(
        *(jax.device_put(call()) for call in calls),
        moved=lambda draw: plain(*moved_arguments(jax, inputs, draw)),
    )
    # The version that is used, or else the last that was tried.
    versions = sorted(ours.considered, key=lambda each: each.is_used)
    considered = versions[-1] if versions else None
    return {
        "jax_ns": float(np.median(durations[0])) / count,
        "speedup": speedup_of(*durations),
        "low": low,
        "high": high,
        "is_equal": is_equal,
        "is_used": any(each.is_used for each in ours.considered),
        "reason": "" if considered is None else considered.reason,
        "first_jax_s": middle - begin,
        "first_s": end - middle,
    }


def counted(row: Row) -> float:
    """The speed-up of a program; 1 if it failed or has other outputs."""
    return float(row["speedup"]) if row.get("is_equal") else 1.0


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    mean, low, high, count = mean_by_entry_point(
        (row["repository"], row["entry_point"], counted(row)) for row in rows
    )
    repositories = {row["repository"] for row in rows}
    done = [row for row in rows if "speedup" in row]
    total = sum(row["jax_ns"] for row in done) / sum(
        row["jax_ns"] / counted(row) for row in done
    )
    slower = [row for row in done if row["is_equal"] and row["high"] < 1]
    return [
        *head("hloenv.jit against jax.jit", rows),
        f"* {len(rows)} programs, {count} entry points, {len(repositories)} "
        f"repositories; speed-up, on {count_of(arguments.cores, 'core')}: jax.jit's "
        "median time over hloenv.jit's, both called alternately from Python, after the "
        "decision, with its 95 % interval; failures and unequal outputs count as 1",
        *(
            [
                '* `outputs="numpy"`: hloenv.jit gets and returns numpy arrays, and '
                "jax.jit its own"
            ]
            if arguments.outputs == "numpy"
            else []
        ),
        "",
        _UNMEASURED if arguments.budget == 0 else _MEASURED,
        "",
        f"**Geometric mean by entry point {mean:.3f}** (95 %, by "
        f"repository: {interval_text(low, high)}); total time of those that ran "
        f"{total:.3f}; worst {min(map(counted, done)):.3f}; slower beyond the "
        f"interval: {len(slower)} of {len(done)}; decided modules used in "
        f"{sum(row['is_used'] for row in done)} programs.",
        "",
        *duration_table(done),
        "",
        *program_table(rows),
    ]


def duration_table(rows: list[Row]) -> list[str]:
    """Speed-ups by the time that jax.jit takes, means by entry point."""
    cells = []
    for name, _ in DURATIONS:
        found = [row for row in rows if duration_class(row["jax_ns"]) == name]
        if not found:
            continue
        speedups = [counted(row) for row in found]
        points = defaultdict(list)
        for row, speedup in zip(found, speedups, strict=True):
            points[row["entry_point"]].append(speedup)
        mean = geometric_mean([geometric_mean(each) for each in points.values()])
        figures = (f"{each:.3f}" for each in (mean, min(speedups), max(speedups)))
        cells.append((name, len(found), len(points), *figures))
    columns = "jax.jit takes", "programs", "entry points", "mean", "worst", "best"
    return table(columns, cells)


def program_table(rows: list[Row]) -> list[str]:
    """A line for each program, the largest speed-up first."""
    cells = []
    for row in sorted(rows, key=lambda row: -row.get("speedup", 0)):
        if "error" in row or not row["is_equal"]:
            reason = row.get("error", "outputs differ")
            cells.append((row["name"], "", "1", "", reason, "", ""))
            continue
        times = f"{row['first_jax_s']:.1f} s", f"{row['first_s']:.1f} s"
        used = "yes" if row["is_used"] else row["reason"][:_MAX_REASON]
        jax_ms = f"{row['jax_ns'] / 1e6:.3f} ms"
        interval = f"{row['low']:.2f} to {row['high']:.2f}"
        speedup = f"{row['speedup']:.3f}"
        cells.append((row["name"], jax_ms, speedup, interval, used, *times))
    columns = "program", "jax.jit", "speed-up", "interval", "used, or why not"
    first = "first call, jax.jit", "hloenv.jit"
    return table((*columns, *first), cells, "lrrllrr")


def main() -> int:
    """Measures missing programs and writes the page."""
    arguments = parse_arguments()
    dataset = hloenv.dataset.load(arguments.split, extent=arguments.extent)
    if arguments.one:
        record = dataset.find(arguments.one)
        row = measure(record, arguments.seconds, arguments.outputs, arguments.budget)
        print(json.dumps(row))
        return 0
    records = [each for each in dataset if arguments.match in each.name]
    if not records:
        raise SystemExit(f"no program of {arguments.split} has {arguments.match!r}")
    if arguments.modules is not None:
        records = sample(records, arguments.modules, arguments.seed)
    words = ["--split", arguments.split, "--extent", arguments.extent]
    words += ["--seconds", str(arguments.seconds)]
    words += ["--outputs", arguments.outputs]
    if arguments.budget is not None:
        words += ["--budget", str(arguments.budget)]
    rows = rows_of_programs(
        records,
        Rows(arguments.rows, "fingerprint", "version", "cores", "outputs", "budget"),
        words,
        timeout_s=_TIMEOUT_S,
        version=version_of_rows(seconds=arguments.seconds),
        cores=arguments.cores,
        columns={"outputs": arguments.outputs, "budget": arguments.budget},
    )
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
