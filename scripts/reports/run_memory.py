#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what programs gain in memory that the process keeps (`hloenv.keep_memory`).

Each function and program runs under plain jax.jit in processes of its own: twice as jax
has it, twice after `hloenv.keep_memory()`, in turns. Rows are appended to a JSONL file;
a repeated run continues.

    python scripts/reports/run_memory.py
    python scripts/reports/run_memory.py --doc docs/results/memory.md
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.entries import entry_point
from hloenv.runtime.memory import fresh_bytes
from reporting import (
    Row,
    Rows,
    add_dataset,
    add_timing,
    count_of,
    drawn_by_entry_point,
    head,
    interval_text,
    mean_by_entry_point,
    parser_of,
    run_again,
    version_of_rows,
    write_page,
)

# Elements of the arrays of functions, which are of float32.
_SIZES = {"4 MiB": 1 << 20, "16 MiB": 4 << 20, "64 MiB": 16 << 20, "256 MiB": 64 << 20}
_PARTS = 128  # rows of a matrix
_WARM_UPS, _MIN_RUNS = 5, 10
_REPEATS = 2
_TIMEOUT_S = 300.0


def functions() -> dict[str, Callable[..., Any]]:
    """Functions of one array, by name."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def adam(x: Any) -> Any:
        mean, square = 0.9 * x + 0.1 * x * x, 0.99 * x + 0.01 * x * x
        return x - 0.001 * mean / (jnp.sqrt(jnp.abs(square)) + 1e-8), mean, square

    return {
        "x + 1": lambda x: x + 1,
        "log-softmax": lambda x: jax.nn.log_softmax(x.reshape(_PARTS, -1)),
        "an update of Adam": adam,
    }


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    add_dataset(parser, "test")
    add_timing(parser, 1.0, "build/memory.jsonl")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- in the child process ------------------------------------------------------------


def call_of(name: str, arguments: argparse.Namespace) -> Callable[[], Any]:
    """The call of this name: a function and a size, or a fingerprint."""
    jax = importlib.import_module("jax")
    if ", " in name:
        function, size = name.split(", ")
        compiled = jax.jit(functions()[function])
        inputs = [jax.numpy.ones(_SIZES[size], np.float32)]
    else:
        from hloenv.runtime.jaxlib.stablehlo import program_of

        dataset = hloenv.dataset.load(arguments.split, extent=arguments.extent)
        record = dataset.find(name)
        program = program_of(record.module)
        compiled = jax.jit(lambda *x: tuple(program(*x)), keep_unused=True)
        inputs = [jax.device_put(each) for each in record.inputs()]
    return lambda: jax.block_until_ready(compiled(*inputs))


def measure(call: Callable[[], Any], seconds: float) -> Row:
    """Median of calls, and memory that each gets anew."""
    for _ in range(_WARM_UPS):
        call()
    durations: list[int] = []
    before = fresh_bytes()
    end = time.perf_counter() + seconds
    while len(durations) < _MIN_RUNS or time.perf_counter() < end:
        begin = time.perf_counter_ns()
        call()
        durations.append(time.perf_counter_ns() - begin)
    fresh = (fresh_bytes() - before) / len(durations)
    return {"ns": float(np.median(durations)), "fresh": fresh}


# --- in the parent -------------------------------------------------------------------


def both(name: str, arguments: argparse.Namespace) -> Row:
    """The least medians of processes as jax has it, and of those that keep memory."""
    words = ["--split", arguments.split, "--extent", arguments.extent]
    words += ["--seconds", str(arguments.seconds), "--one", name]
    found: dict[str, list[Row]] = {"given": [], "kept": []}
    for _ in range(_REPEATS):
        for way, rows in found.items():
            more = ["--keep"] if way == "kept" else []
            row = run_again(
                words + more, num_cores=arguments.cores, timeout_s=_TIMEOUT_S
            )
            if "error" in row:
                return row
            rows.append(row)
    return {
        way: min(rows, key=lambda each: float(each["ns"]))
        for way, rows in found.items()
    }


def speedup_of(row: Row) -> float:
    """Of kept memory; 1 if a process failed."""
    return 1.0 if "error" in row else float(row["given"]["ns"] / row["kept"]["ns"])


def _cells(row: Row) -> tuple[str, ...]:
    if "error" in row:
        return (row["name"], *4 * [""], row["error"])
    given, kept = row["given"], row["kept"]
    return (
        row["name"],
        f"{given['ns'] / 1e6:.3f} ms",
        f"{kept['ns'] / 1e6:.3f} ms",
        f"{given['fresh'] / 2**20:.1f} MiB",
        f"{kept['fresh'] / 2**20:.1f} MiB",
        f"{speedup_of(row):.2f}",
    )


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    columns = ("jax.jit", "kept memory", "fresh", "fresh if kept", "speed-up")
    programs = [row for row in rows if row["entry_point"]]
    others = [row for row in rows if not row["entry_point"]]
    lines = [
        *head("Memory that a process keeps", rows),
        f"* on {count_of(arguments.cores, 'core')}; plain `jax.jit` in processes of "
        f"its own, {_REPEATS} each way in turns; the less of their medians",
        "",
        "*kept memory*: after `hloenv.keep_memory()`. *fresh*: memory that a call gets "
        "from the system anew, which maps and clears each of its pages.",
        "",
        "## Functions of one array",
        "",
        *table(("function, size of its array", *columns), map(_cells, others)),
    ]
    if programs:
        mean, low, high, _ = mean_by_entry_point(
            (row["repository"], row["entry_point"], speedup_of(row)) for row in programs
        )
        ordered = sorted(programs, key=lambda row: -speedup_of(row))
        lines += [
            "",
            "## Programs of the dataset",
            "",
            f"One of each entry point of {arguments.split}, drawn with seed "
            f"{arguments.seed}: geometric mean {mean:.3f} ({interval_text(low, high)} "
            "by repository).",
            "",
            *table(("program", *columns), map(_cells, ordered)),
        ]
    return lines


def main() -> int:
    """Measures what is missing and writes the page."""
    arguments = parse_arguments()
    if arguments.one:
        if arguments.keep and not hloenv.keep_memory():
            raise SystemExit("this C library keeps nothing: glibc is needed")
        call = call_of(arguments.one, arguments)
        print(json.dumps(measure(call, arguments.seconds)))
        return 0
    names = [f"{each}, {size}" for each in functions() for size in _SIZES]
    nothing = {"repository": "", "entry_point": ""}
    found: list[tuple[str, Row]] = [(each, {"name": each, **nothing}) for each in names]
    records = hloenv.dataset.load(arguments.split, extent=arguments.extent)
    for each in drawn_by_entry_point(records, arguments.seed):
        identity = {
            "name": f"{each.source}/{each.name}",
            "repository": each.repository,
            "entry_point": entry_point(each.source, each.name),
        }
        found.append((each.fingerprint, identity))
    version = version_of_rows(seconds=arguments.seconds)
    known = Rows(arguments.rows, "name", "version", "cores")
    rows = []
    for key, identity in found:
        if arguments.match not in identity["name"]:
            continue
        columns = {**identity, "version": version, "cores": arguments.cores}
        rows.append(known.get_or_add(columns, partial(both, key, arguments)))
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
