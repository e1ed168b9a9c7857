#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares hloenv.jit with jax.jit on the programs of scripts/examples/programs.py.

Each program runs in its own process, without what earlier processes found. Both
versions are called once, which includes the decision of hloenv.jit, and then timed
interleaved; the outputs are compared. Rows are appended to a JSONL file; a repeated run
continues.

    python scripts/reports/run_jit_programs.py
    python scripts/reports/run_jit_programs.py --cores 2 --doc docs/results/programs.md
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv.bench.version import commit_of, source_root
from hloenv.measurement.statistics import speedup_interval, speedup_of
from hloenv.runtime.machine import this_machine

_TIMEOUT_S = 900.0
_ROUNDS = 5, 500  # minimum, maximum
_EXAMPLES = Path(__file__).parents[1] / "examples" / "programs.py"


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--match", default="", help="only programs with this text")
    parser.add_argument("--cores", type=int, default=1, help="that jax may use")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each timing")
    parser.add_argument("--rows", type=Path, default=Path("build/programs.jsonl"))
    parser.add_argument("--doc", type=Path, help="the page to write")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def programs() -> dict[str, Any]:
    """`PROGRAMS` of the examples."""
    spec = importlib.util.spec_from_file_location("programs", _EXAMPLES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.PROGRAMS
    return found


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Measures one program in this process."""
    run, args = programs()[name][1]()
    import jax

    from hloenv.jax.compare import compare, take_turns

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
    used = ours.decided[0] if ours.decided else None
    parts = [part for part in (used, used and used.then) if part is not None]
    return {
        "jax_ns": float(np.median(durations[0])) / count,
        "speedup": speedup_of(*durations),
        "low": low,
        "high": high,
        "is_equal": compare(*calls, seconds=0.01).is_equal,
        "decided": {
            rule: n for part in parts for rule, n in sorted(part.accepted.items())
        },
        "first_jax_s": middle - begin,
        "first_s": end - middle,
    }


def play(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures one program in a child process on its own cores."""
    cores = sorted(os.sched_getaffinity(0))[-arguments.cores :]
    command = [sys.executable, __file__, "--one", name]
    command += ["--seconds", str(arguments.seconds)]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {_TIMEOUT_S:g} s"}
    lines = child.stdout.splitlines()
    if child.returncode != 0 or not lines:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"exit code {child.returncode}: {last[:200]}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def report(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    """The page."""
    speedups = [row["speedup"] if row.get("is_equal") else 1.0 for row in rows]
    mean = math.exp(float(np.mean(np.log(speedups))))
    cores = "one core" if arguments.cores == 1 else f"{arguments.cores} cores"
    chosen = f" --match '{arguments.match}'" if arguments.match else ""
    lines = [
        "# hloenv.jit on programs that are slow under jax.jit",
        "",
        "Written by `scripts/reports/run_jit_programs.py`; do not edit.",
        "",
        f"* command: `python scripts/reports/run_jit_programs.py --cores "
        f"{arguments.cores}{chosen} --doc {arguments.doc}`",
        f"* date: {datetime.date.today()}; machine: {this_machine().cpu}, {cores}; "
        f"sources: {rows[0]['version']}",
        f"* {len(rows)} programs, written for this page in the style of reports to jax "
        "and of common networks (`scripts/examples/programs.py`). The rules were set "
        "with such programs in view: the mean says nothing about other programs.",
        "* speed-up: jax.jit's median time over hloenv.jit's, both called alternately "
        "from Python after the decision, with its 95 % interval; failures and unequal "
        "outputs count as 1",
        "",
        f"**Geometric mean {mean:.2f}**, worst {min(speedups):.2f}.",
        "",
        "| program | report or kind | jax.jit | speed-up | interval | decided | first "
        "call, jax.jit | hloenv.jit |",
        "| --- | --- | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    for row in sorted(rows, key=lambda row: -row.get("speedup", 0)):
        if "error" in row or not row["is_equal"]:
            reason = row.get("error", "outputs differ")
            lines.append(f"| {row['name']} | {row['kind']} | | 1 | | {reason} | | |")
            continue
        decided = ", ".join(f"{n} x {rule}" for rule, n in row["decided"].items())
        lines.append(
            f"| {row['name']} | {row['kind']} | {row['jax_ns'] / 1e6:.3f} ms | "
            f"{row['speedup']:.2f} | {row['low']:.2f} to {row['high']:.2f} | "
            f"{decided or 'nothing'} | {row['first_jax_s']:.1f} s | "
            f"{row['first_s']:.1f} s |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures missing programs and writes the page."""
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.seconds)))
        return 0
    chosen = {
        name: kind for name, (kind, _) in programs().items() if arguments.match in name
    }
    if not chosen:
        raise SystemExit(f"no program has {arguments.match!r} in its name")
    version = commit_of(source_root()).label
    arguments.rows.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if arguments.rows.exists():
        for line in arguments.rows.read_text().splitlines():
            row = json.loads(line)
            known[row["name"], row["version"], row["cores"]] = row
    rows = []
    for name, kind in chosen.items():
        place = name, version, arguments.cores
        if place not in known:
            known[place] = {
                "name": name,
                "kind": kind,
                "version": version,
                "cores": arguments.cores,
                **play(name, arguments),
            }
            with arguments.rows.open("a") as file:
                file.write(json.dumps(known[place]) + "\n")
        rows.append(known[place])
        print(json.dumps(rows[-1]), flush=True)
    page = report(rows, arguments)
    print(page)
    if arguments.doc is not None:
        arguments.doc.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
