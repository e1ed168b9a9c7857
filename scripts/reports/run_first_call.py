#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the first call of functions under hloenv.jit and under jax.jit.

Each call is the first in its own process, after jax has compiled something small. The
ways are jax.jit; hloenv.jit by fixed rules alone (budget=0); hloenv.jit as it is by
default, which also compares; and the same in a later process, which finds the decision.

    python scripts/reports/run_first_call.py
    python scripts/reports/run_first_call.py --doc docs/results/first_call.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hloenv._markdown import table
from reporting import Row, decisions_of, head, parser_of, run_again, write_page
from run_jit_programs import programs

_PROGRAMS = (
    ("workloads.py", "gpt2, training step"),
    ("workloads.py", "bert, training step"),
    ("models.py", "resnext-50"),
    ("programs.py", "MobileNet block"),
    ("programs.py", "filter 3x3, f64, gradient"),
)
_WAYS = ("jax", "rules", "default", "kept")
_TIMEOUT_S = 300.0


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="processes of each way")
    parser.add_argument(
        "--match", default="", help="only those with this in their name"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def first_call(file: str, name: str, way: str) -> Row:
    """Times the first call in this process."""
    run, args = programs(file)[name][1]()
    import jax
    import jax.numpy as jnp

    import hloenv

    jax.block_until_ready((jax.jit(lambda x: x + 1)(jnp.ones(3)), args))
    if way == "jax":
        function: Any = jax.jit(lambda *xs: run(*xs))
    elif way == "rules":
        function = hloenv.jit(run, budget=0, remember=False)
    else:
        function = hloenv.jit(run)
    begin = time.perf_counter()
    jax.block_until_ready(function(*args))
    row = {"seconds": time.perf_counter() - begin}
    if way == "jax":
        module = hloenv.HloModule.from_jax(run, *args)
        return row | {"instructions": module.instruction_count}
    return row | {"decisions": sum(decisions_of(function).values())}


def measure(file: str, name: str, repeats: int) -> list[str]:
    """The row of a program in the table."""
    found: dict[str, list[Row]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLOENV_STORE"] = str(Path(folder) / "store.sqlite")
        for repeat in range(repeats + 1):
            for way in _WAYS:
                # What "default" finds is what "kept" starts with.
                if (way == "default") != (repeat == 0) and way != "jax":
                    continue
                words = ["--one", file, name, way]
                row = run_again(words, num_cores=1, timeout_s=_TIMEOUT_S)
                if "error" in row:
                    raise RuntimeError(f"{name}, {way}: {row['error']}")
                found[way].append(row)
    seconds = {
        way: statistics.median(row["seconds"] for row in rows)
        for way, rows in found.items()
    }
    plain = seconds["jax"]
    spread = [row["seconds"] - plain for row in found["jax"]]
    return [
        name,
        str(found["jax"][0]["instructions"]),
        str(found["kept"][0]["decisions"]),
        f"{plain:.2f} s ({1e3 * min(spread):+.0f} to {1e3 * max(spread):+.0f} ms)",
        *(f"{1e3 * (seconds[way] - plain):+.0f} ms" for way in _WAYS[1:]),
    ]


def main() -> None:
    """Measures and writes the page."""
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(first_call(*arguments.one)))
        return
    rows = []
    for file, name in _PROGRAMS:
        if arguments.match in name:
            rows.append(measure(file, name, arguments.repeats))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    columns = [
        *("program", "instructions", "decisions", "jax.jit (all of them)"),
        *("by rules alone", "default", "kept"),
    ]
    write_page(
        [
            *head("The first call of `hloenv.jit`"),
            f"* one core; medians of {arguments.repeats} processes, of jax.jit "
            f"{arguments.repeats + 1}, of *default* one",
            "",
            *table(columns, rows, "lrrrrrr"),
            "",
            "The first call of `jax.jit` in a process, and what that of `hloenv.jit` "
            "takes more: by rules alone (`budget=0`), by default, when both versions "
            "are compiled and compared, and in a later process, which finds what was "
            "decided. *decisions*: rewrites of the version that is used, and kinds of "
            "operations that its compiler gives to no library; 0: plain `jax.jit`. A "
            "decided program may take less than `jax.jit`, which compiles another "
            "module.",
        ],
        arguments.doc,
    )


if __name__ == "__main__":
    main()
