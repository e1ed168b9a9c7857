#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares hloenv.jit with jax.jit on the programs of scripts/examples.

These are programs.py, in the style of reports to jax, workloads.py, networks and
simulations, networks.py, whole networks of images, and unseen.py, which nothing was set
with.

Each program runs in its own process, without what earlier processes found. Both
versions are called once, which includes the decision of hloenv.jit, and then timed
interleaved; the outputs are compared. Rows are appended to a JSONL file; a repeated run
continues.

    python scripts/reports/run_jit_programs.py
    python scripts/reports/run_jit_programs.py --cores 2 --doc docs/results/programs.md
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.bench.statistics import clustered_interval
from hloenv.cost.calibration import calibrate
from hloenv.measurement.statistics import speedup_interval, speedup_of
from reporting import (
    Row,
    Rows,
    add_timing,
    count_of,
    decisions_of,
    from_example,
    head,
    parser_of,
    run_again,
    version_of_rows,
    write_page,
)

_TIMEOUT_S = 900.0
_ROUNDS = 5, 500  # minimum, maximum
_GROUPS = {
    "programs.py": "programs in the style of reports to jax, and layers that are slow "
    "under jax.jit; the rules were set with them in view",
    "workloads.py": "networks and simulations, likewise",
    "networks.py": "networks of depthwise, grouped and transposed convolutions, "
    "likewise",
    "solvers.py": "solvers, filters and layers with transposed matrices, few channels, "
    "complex or short numbers; the rules were set on these operations alone",
    "batches.py": "many small problems at once: short sorts, tiny matrices, divisions; "
    "likewise",
    "stencils.py": "steps on grids and their gradients; likewise, and with some of "
    "these methods in view",
    "narrow.py": "language models in bf16; masks, labels, indices; the rules were set "
    "on these operations alone",
    "points.py": "pairs of points, functions of many numbers, bytes; likewise",
    "filters.py": "wide filters, and networks of few features on single images; "
    "likewise",
    "rolls.py": "steps on grids without an edge, and their gradients; likewise",
    "signals.py": "long filters of signals, and their gradients; likewise",
    "geometry.py": "rotations, positions and classes; likewise",
    "tables.py": "look-ups in tables, loops of few operations, columns, losses of "
    "parts of arrays; likewise",
    "draws.py": "random numbers; likewise",
    "scans.py": "recurrences by associative scans; likewise",
    "loops.py": "convolutions in loops and branches; likewise",
    "mixed.py": "products of bf16 and bytes, as models compute with them; likewise",
    "pairings.py": "all pairs of two arrays, best paths, tables; likewise",
    "unseen.py": "reports, layers and training steps, written after the rules by "
    "someone who did not know them",
}


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    add_timing(parser, 2.0, "build/programs.jsonl")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def programs(file: str) -> dict[str, Any]:
    """`PROGRAMS` of one of the examples."""
    found: dict[str, Any] = from_example(file, "PROGRAMS")
    return found


def measure(file: str, name: str, seconds: float) -> Row:
    """Measures one program in this process."""
    run, args = programs(file)[name][1]()
    import jax

    from hloenv.jax.compare import take_turns
    from hloenv.jax.outputs import difference
    from hloenv.jax.wrapping import moved_arguments

    plain = jax.jit(lambda *xs: run(*xs))
    ours = hloenv.jit(run, remember=False)
    begin = time.perf_counter()
    jax.block_until_ready(plain(*args))
    middle = time.perf_counter()
    jax.block_until_ready(ours(*args))
    end = time.perf_counter()
    calls = (lambda: plain(*args)), (lambda: ours(*args))
    single = min(take_turns(*calls, rounds=(5, 5), seconds=0)[0])
    count = max(1, round(200_000 / single))
    durations = take_turns(*calls, rounds=_ROUNDS, seconds=seconds, calls=count)
    low, high = speedup_interval(*durations)
    analysis = plain.lower(*args).compile().cost_analysis()
    return {
        "flops": analysis.get("flops", 0.0),
        "jax_ns": float(np.median(durations[0])) / count,
        "speedup": speedup_of(*durations),
        "low": low,
        "high": high,
        "is_equal": not difference(
            *(call() for call in calls),
            moved=lambda draw: plain(*moved_arguments(jax, args, draw)),
        ),
        "decided": decisions_of(ours),
        "first_jax_s": middle - begin,
        "first_s": end - middle,
    }


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    means = []
    for file, what in _GROUPS.items():
        some = [
            row["speedup"] if row.get("is_equal") else 1.0
            for row in rows
            if row["file"] == file
        ]
        if some:
            low, high = clustered_interval([np.log([each]) for each in some])
            means.append(
                (
                    *(f"`{file}`", what, str(len(some)), f"{geometric_mean(some):.2f}"),
                    *(f"{low:.2f} to {high:.2f}", f"{min(some):.2f}"),
                )
            )
    peak = calibrate(threads=arguments.cores).dot_flops_per_s
    cells = []
    for row in sorted(rows, key=lambda row: -row.get("speedup", 0)):
        named = row["name"], row["kind"] + ", unseen" * (row["file"] == "unseen.py")
        if "error" in row or not row["is_equal"]:
            reason = row.get("error", "outputs differ")
            cells.append((*named, "", "", "1", "", reason, "", ""))
            continue
        decided = ", ".join(f"{n} x {rule}" for rule, n in row["decided"].items())
        cells.append(
            (
                *(*named, f"{row['jax_ns'] / 1e6:.3f} ms"),
                *(f"{1e3 * row['flops'] / peak:.3f} ms", f"{row['speedup']:.2f}"),
                *(f"{row['low']:.2f} to {row['high']:.2f}", decided or "nothing"),
                *(f"{row['first_jax_s']:.1f} s", f"{row['first_s']:.1f} s"),
            )
        )
    columns = (
        *("program", "report or kind", "jax.jit", "at the peak", "speed-up"),
        *("interval", "decided", "first call, jax.jit", "hloenv.jit"),
    )
    return [
        *head("hloenv.jit on programs written for this page", rows),
        f"* {len(rows)} programs of `scripts/examples`; only the mean of `unseen.py` "
        "says something about other programs",
        f"* speed-up, on {count_of(arguments.cores, 'core')}: jax.jit's median time "
        "over hloenv.jit's, both called alternately from Python after the decision, "
        "with its 95 % interval; failures and unequal outputs count as 1",
        "* at the peak: the time of as many floating-point operations as jax.jit's "
        f"code has, by XLA's count, in products at this machine's peak, "
        f"{peak / 1e9:.0f} GFLOP/s; no form with as many can be faster",
        "",
        *table(
            ("file", "what", "programs", "geometric mean", "95 %, by program", "worst"),
            means,
            "llrrrr",
        ),
        "",
        *table(columns, cells, "llrrrllrr"),
    ]


def main() -> int:
    """Measures missing programs and writes the page."""
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(measure(*arguments.one, arguments.seconds)))
        return 0
    chosen = {
        (file, name): kind
        for file in _GROUPS
        for name, (kind, _) in programs(file).items()
        if arguments.match in f"{file} {name}"
    }
    if not chosen:
        raise SystemExit(f"no program has {arguments.match!r} in its name")
    version, cores = version_of_rows(seconds=arguments.seconds), arguments.cores
    known = Rows(arguments.rows, "file", "name", "version", "cores")
    rows = []
    for (file, name), kind in chosen.items():
        columns = {"file": file, "name": name, "kind": kind}
        columns |= {"version": version, "cores": cores}
        words = ["--one", file, name, "--seconds", str(arguments.seconds)]
        run = partial(run_again, words, num_cores=cores, timeout_s=_TIMEOUT_S)
        rows.append(known.get_or_add(columns, run))
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
