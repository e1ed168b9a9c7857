#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures which options of jaxlib's code generator make programs faster.

Each program of the train and validation splits runs in its own process, in which it is
compiled by plain jax.jit and with each option, and timed in turns. What pays here is
what `hloenv.jit` tries. Rows are appended to a JSONL file; a repeated run continues.

    python scripts/reports/run_settings.py
    python scripts/reports/run_settings.py --doc docs/results/settings.md
"""

from __future__ import annotations

import argparse
import json
import sys

import hloenv
from hloenv._markdown import table
from hloenv.runtime.jaxlib.options import EXTRA, OptionValue
from reporting import (
    Row,
    Rows,
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
from run_best import Versions

_SETTINGS: dict[str, dict[str, OptionValue]] = {
    "vectors of 512 bits": {"xla_cpu_prefer_vector_width": 512},
    "LLVM's level 1": {"xla_backend_optimization_level": 1},
    "no unrolling": {EXTRA: "xla_cpu_disable_loop_unrolling="},
}
_TIMEOUT_S = 600.0


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--splits", nargs="+", default=["validation", "train"])
    parser.add_argument("--extent", default="real")
    add_timing(parser, 0.5, "build/settings.jsonl")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(versions: Versions) -> Row:
    """Compares each option with plain jax.jit, in this process."""
    found: dict[str, Row] = {}
    for name, options in _SETTINGS.items():
        try:
            found[name] = versions.compared(versions.with_options(options))
        except hloenv.HloEnvError as error:  # this jaxlib does not have it
            found[name] = {"error": f"{type(error).__name__}: {error}"[:120]}
    return {"settings": found}


def speedup_of(row: Row, name: str) -> float:
    """Of one option over jax.jit; 1 if it failed or has other outputs."""
    found = row.get("settings", {}).get(name, {})
    return float(found["speedup"]) if found.get("is_equal") else 1.0


def summary(name: str, rows: list[Row]) -> tuple[object, ...]:
    """A line of the first table."""
    speedups = [speedup_of(row, name) for row in rows]
    mean, low, high, _ = mean_by_entry_point(
        (row["repository"], row["entry_point"], speedup)
        for row, speedup in zip(rows, speedups, strict=True)
    )
    found = [row.get("settings", {}).get(name, {}) for row in rows]
    clear = [each for each in found if each.get("is_equal")]
    return (
        name,
        ", ".join(f"`{key}={value}`" for key, value in _SETTINGS[name].items()),
        f"{mean:.3f}",
        interval_text(low, high),
        f"{min(speedups):.3f}",
        f"{max(speedups):.3f}",
        sum(each["low"] > 1.02 for each in clear),
        sum(each["high"] < 0.98 for each in clear),
        len(found) - len(clear),
    )


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    columns = ("option", "of jaxlib's compiler", "mean", "95 %", "worst", "best")
    counts = ("clearly faster", "clearly slower", "failed or other outputs")
    ordered = sorted(rows, key=lambda row: -max(speedup_of(row, n) for n in _SETTINGS))
    cells = [
        (row["name"], *(_cell(row, name) for name in _SETTINGS)) for row in ordered
    ]
    return [
        *head("Options of jaxlib's code generator", rows),
        f"* {len(rows)} programs of the splits {', '.join(arguments.splits)}; on "
        f"{count_of(arguments.cores, 'core')}; failures and unequal outputs count as 1",
        "",
        "Speed-up over plain `jax.jit`, timed in turns. *clearly*: the 95 % interval "
        "is above 1.02, or below 0.98. `hloenv.jit` tries the first two, the first "
        "on processors that have AVX-512, and uses what is clearly faster for the "
        "program at hand; `hloenv.tune` tries all of them.",
        "",
        *table(
            (*columns, *counts),
            [summary(name, rows) for name in _SETTINGS],
            "llrrrrrrr",
        ),
        "",
        *table(("program", *_SETTINGS), cells),
    ]


def _cell(row: Row, name: str) -> str:
    found = row.get("settings", {}).get(name, row)
    if "error" in found:
        return "fails"
    if not found["is_equal"]:
        return "outputs differ"
    return f"{found['speedup']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def main() -> int:
    """Measures missing programs and writes the page."""
    arguments = parse_arguments()
    records = [
        record
        for split in arguments.splits
        for record in hloenv.dataset.load(split, extent=arguments.extent)
    ]
    if arguments.one:
        (record,) = [each for each in records if each.fingerprint == arguments.one]
        print(json.dumps(measure(Versions(record, arguments))))
        return 0
    records = [each for each in records if arguments.match in each.name]
    if not records:
        raise SystemExit(f"no program has {arguments.match!r} in its name")
    settings = {"seconds": arguments.seconds}
    words = ["--splits", *arguments.splits, "--extent", arguments.extent]
    words += ["--seconds", str(arguments.seconds)]
    rows = rows_of_programs(
        records,
        Rows(arguments.rows, "fingerprint", "version", "cores"),
        words,
        timeout_s=_TIMEOUT_S,
        version=version_of_rows(**settings),
        cores=arguments.cores,
    )
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
