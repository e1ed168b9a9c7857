#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiles programs before and after hloenv.jit's forms: where the time goes, and why.

The programs are those of rows that run_jit.py has measured: the largest gains, and the
longest of those that stay plain jax.jit, one of each entry point. Each is profiled
by jaxlib as it is and in hloenv's other forms; the explanations are those of
profiles.toml, by program. Profiles are stored as rows; a repeated run continues.

    python scripts/reports/run_profiles.py
    python scripts/reports/run_profiles.py --doc docs/results/profiles.md
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hloenv
from hloenv._markdown import table
from hloenv.cost.calibration import calibrate
from hloenv.cost.profile import Kernel, ModuleProfile, profile
from hloenv.cost.roofline import Rates
from hloenv.jax.auto import calls_of, forms_of
from reporting import (
    Row,
    Rows,
    head,
    parser_of,
    read_lines,
    version_of_rows,
    write_page,
)

_EXPLANATIONS = Path(__file__).with_name("profiles.toml")
_KERNELS = 5  # shown of each profile
# Up to which a program gains little.
_NOTHING = 1.02
# Ratio of the sum of kernels to a run without the profiler from which both are shown.
_DISTURBED = 1.2


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--from", dest="given", type=Path, default=Path("build/jit.jsonl"), help="rows"
    )
    parser.add_argument("--split", default="test", help="of the dataset")
    parser.add_argument("--count", type=int, default=5, help="programs of each kind")
    parser.add_argument("--threads", type=int, default=1, help="of the programs")
    parser.add_argument("--rows", type=Path, default=Path("build/profiles.jsonl"))
    return parser.parse_args()


def chosen(rows: Iterable[Row], count: int, threads: int) -> tuple[list[Row], ...]:
    """The largest gains, and the longest programs without, of other entry points."""
    latest = {row["fingerprint"]: row for row in rows if row.get("cores") == threads}
    equal = [row for row in latest.values() if row.get("is_equal")]
    gains = [row for row in equal if row["speedup"] > _NOTHING and row["is_used"]]
    plain = [row for row in equal if not row["is_used"]]
    return (
        _of_other_points(sorted(gains, key=lambda row: -row["speedup"]), count),
        _of_other_points(sorted(plain, key=lambda row: -row["jax_ns"]), count),
    )


def _of_other_points(rows: Iterable[Row], count: int) -> list[Row]:
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["entry_point"], row)
    return list(found.values())[:count]


def measure(module: hloenv.HloModule, threads: int) -> Row:
    """Profiles of a module as it is, and of the faster of its decided versions."""
    row: Row = {"plain": _as_row(profile(module, threads=threads, engine="jaxlib"))}
    row["accepted"] = {}
    for decided in (forms_of(module), calls_of(module)):
        if decided is None:
            continue
        found = _as_row(profile(decided.applied, threads=threads, engine="jaxlib"))
        if "forms" not in row or found["seconds"] < row["forms"]["seconds"]:
            row |= {"forms": found, "accepted": dict(decided.accepted)}
    return row


def _as_row(found: ModuleProfile) -> Row:
    """The kernels that are shown, and the seconds of all and of each emitter."""
    by_emitter: dict[str, float] = {}
    for each in found.kernels:
        kind = each.emitter or each.opcode
        by_emitter[kind] = by_emitter.get(kind, 0.0) + each.seconds
    shown = [vars(each) for each in found.kernels[:_KERNELS]]
    return {"seconds": found.seconds, "kernels": shown, "by_emitter": by_emitter}


def section(row: Row, rates: Rates, explanation: str) -> list[str]:
    """One program: its explanation and its kernels before and after."""
    forms = ", ".join(f"{n} x {rule}" for rule, n in sorted(row["accepted"].items()))
    lines = [
        f"### {row['name']}",
        "",
        f"`jax.jit`: {row['jax_ns'] / 1e6:.3f} ms; speed-up {row['speedup']:.3f}. "
        f"Forms: {forms or 'none'}.",
        "",
    ]
    if explanation:
        lines += [explanation.strip(), ""]
    cells = []
    for label in ("plain", "forms"):
        if label not in row:
            continue
        found = row[label]
        total = math.fsum(found["by_emitter"].values())
        parts = sorted(found["by_emitter"].items(), key=lambda each: -each[1])
        shares = ", ".join(
            f"{kind} {seconds / total:.0%}"
            for kind, seconds in parts[:3]
            if seconds > 0.005 * total
        )
        name = "as it is" if label == "plain" else "in other forms"
        time = f"{1e3 * found['seconds']:.3f} ms"
        if not 1 / _DISTURBED < total / found["seconds"] < _DISTURBED:
            time += f" ({1e3 * total:.3f} ms in the profiled runs)"
        cells.append((name, "all kernels", shares, time, *[""] * 3))
        cells += [_cells(Kernel(**each), rates) for each in found["kernels"]]
    columns = (
        *("", "kernel", "run by", "time", "share", "GFLOP/s"),
        "of the machine's peak",
    )
    return [*lines, *table(columns, cells, "lllrrrr"), ""]


def _cells(kernel: Kernel, rates: Rates) -> tuple[str, ...]:
    peak = kernel.of_peak(rates)
    rate = kernel.flops / kernel.seconds * 1e-9 if kernel.seconds > 0 else math.nan
    return (
        "",
        f"`{kernel.name}`",
        kernel.emitter or kernel.opcode,
        f"{1e3 * kernel.seconds:.3f} ms",
        f"{kernel.share:.0%}",
        "" if math.isnan(rate) else f"{rate:.3g}",
        "" if math.isnan(peak) else f"{peak:.0%}",
    )


def main() -> int:
    """Profiles what is missing and writes the page."""
    arguments = parse_arguments()
    dataset = hloenv.dataset.load(arguments.split, extent="real")
    records = {each.fingerprint: each for each in dataset}
    given_rows = [
        row for row in read_lines(arguments.given) if row.get("fingerprint") in records
    ]
    groups = chosen(given_rows, arguments.count, arguments.threads)
    if not any(groups):
        raise SystemExit(
            f"no rows of {arguments.split}, {arguments.threads} cores, in "
            f"{arguments.given}: run_jit.py writes them"
        )
    version = version_of_rows()
    known = Rows(arguments.rows, "fingerprint", "version", "threads")
    explanations: dict[str, Any] = tomllib.loads(_EXPLANATIONS.read_text())
    rates = calibrate(threads=arguments.threads)
    lines, rows = [], []
    for title, group in zip(
        ("The largest gains", "What gains nothing"), groups, strict=True
    ):
        lines += [f"## {title}", ""]
        for given in group:
            key = given["fingerprint"], version, arguments.threads
            row = known.get(*key)
            if row is None:
                row = dict(zip(("fingerprint", "version", "threads"), key, strict=True))
                row |= measure(records[given["fingerprint"]].module, arguments.threads)
                known.add(row)
                print(json.dumps(row), flush=True)
            rows.append(row)
            told = {name: given[name] for name in ("name", "jax_ns", "speedup")}
            lines += section(row | told, rates, explanations.get(given["name"], ""))
    page = [
        *head("Where the time goes, before and after", rows),
        f"* peaks of the machine, measured: {rates.dot_flops_per_s / 1e9:.0f} GFLOP/s "
        f"in products, {rates.memory_bytes_per_s / 1e9:.1f} GB/s from memory, "
        f"{rates.cache_bytes_per_s / 1e9:.0f} GB/s in caches, "
        f"{rates.transcendentals_per_s / 1e9:.2f} G/s of exp and the like",
        "* kernels as jax's profiler sees them in runs by jaxlib, on "
        f"{arguments.threads} core(s), as jax lowers the program and in the forms that "
        "`known-forms` takes, with `known-calls`'s calls of oneDNN if that is faster; "
        "speed-ups and times of `jax.jit` are those of "
        "[the comparison](../leaderboard/jit.md)",
        "",
        *lines,
    ]
    write_page(page, arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
