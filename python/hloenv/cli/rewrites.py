# SPDX-License-Identifier: Apache-2.0
"""hloenv rewrites: which of XLA's rewrites pay on a program, and which cost."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..measurement.measurer import measure
from ..measurement.store import default_path
from ..rewrite_map import (
    MapSettings,
    ProgramMap,
    RewriteRow,
    find_rewrites,
    map_program,
)
from ..rewrite_map.ablation import reject
from ..rewrite_map.reproducer import Reproducer, run_script, write_reproducer
from . import output
from .arguments import add_limit, add_module, add_store_file, check_output
from .load import load_module
from .numbers import above_zero, add_count
from .result import EXIT_NOT_WRITTEN, doubt_about

DESCRIPTION = (
    "Compiles a program as XLA does, but without one of XLA's rewrites, for each "
    "rewrite that XLA makes; estimates the time by the program's kernels, and measures "
    "it where the estimate differs. The worth of a rewrite is the time without it over "
    "the time with it: above 1 it pays, below 1 it costs."
)
EXAMPLES = """\
examples:
  hloenv rewrites model.hlo
  hloenv rewrites train.py:step --seconds 300 --top 20
  hloenv rewrites model.hlo --no-measure --json > rewrites.json
  hloenv rewrites model.hlo -o without.hlo --reproducers folder
"""
_COLUMNS = ("pass", "rewrite", "of", "times", "worth", "measured")


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=above_zero,
        default=120.0,
        help="time limit; rewrites of costly operations come first (default 120)",
    )
    parser.add_argument(
        "--threshold",
        metavar="SHARE",
        type=above_zero,
        default=0.03,
        help="show and measure rewrites that change the estimated time by this share "
        "(default 0.03)",
    )
    parser.add_argument("--no-measure", action="store_true", help="estimate only")
    add_count(parser, "--threads", "cores that the module runs on", 1)
    add_count(
        parser, "--top", "show the N rewrites that cost most, and that pay most", 10
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        help="write the module with the rewrites that cost rejected, if it has the "
        "outputs of the original and is faster beyond its 95 %% interval (not checked "
        "with --no-measure); otherwise nothing is written and the exit code is "
        f"{EXIT_NOT_WRITTEN}",
    )
    parser.add_argument(
        "--reproducers",
        metavar="FOLDER",
        type=Path,
        help="write a minimal program for each rewrite that costs",
    )
    add_store_file(parser, "SQLite file that caches measurements")
    parser.add_argument(
        "--no-store", action="store_true", help="neither read nor write the store"
    )


def run(args: argparse.Namespace) -> int:
    """Maps the rewrites of `args.module`."""
    check_output(args.output)
    if args.reproducers is not None:
        args.reproducers.mkdir(parents=True, exist_ok=True)
    module = load_module(args.module, args.max_instructions)
    with output.progress("trying the rewrites", is_shown=not args.json):
        found = map_program(module, _settings(args))
    if not found.rows and found.error:
        raise ArgumentError(f"the program cannot be mapped: {found.error}")
    costly = found.costly(args.threshold)
    written = []
    if args.reproducers is not None:
        with output.progress("writing the programs", is_shown=not args.json):
            written = _reproducers(module, costly[: args.top], args.reproducers)
    if args.json:
        reproducers = [each.to_json() for each in written]
        output.print_json({**found.to_json(), "reproducers": reproducers})
    else:
        _print(found, args.threshold, args.top)
        _print_reproducers(written)
    if args.output is None:
        return 0
    if not costly:
        return _not_written(args.output, "no rewrite costs")
    decided = reject(module, costly)
    if not args.no_measure:
        with output.progress("measuring", is_shown=not args.json):
            measured = measure(decided, baseline=module, threads=args.threads)
        doubt = doubt_about(measured)
        if doubt:
            return _not_written(args.output, doubt)
    decided.save(args.output)
    return 0


def _not_written(path: str, why: str) -> int:
    print(f"hloenv: {path} is not written: {why}", file=sys.stderr)
    return EXIT_NOT_WRITTEN


def _settings(args: argparse.Namespace) -> MapSettings:
    store = None if args.no_store else str(args.store or default_path())
    return MapSettings(
        seconds=args.seconds,
        threshold=args.threshold,
        measure="none" if args.no_measure else "all",
        threads=args.threads,
        store=store,
    )


def _reproducers(
    module: HloModule, rows: Sequence[RewriteRow], folder: Path
) -> list[Reproducer]:
    rewrites = {each.identity: each for each in find_rewrites(module)}
    written = []
    for row in rows:
        if row.identity in rewrites:
            found = write_reproducer(module, rewrites[row.identity], folder)
            if found is not None:
                run_script(found, folder)
                written.append(found)
    return written


def _print(found: ProgramMap, threshold: float, top: int) -> None:
    costly = found.costly(threshold)
    paying = found.paying(threshold)
    output.print_line(
        f"{found.program}: {output.format_seconds(found.reference_s)} a run by the "
        f"estimate; {len(found.rows)} of {found.num_rewrites} rewrites tried in "
        f"{found.seconds:.0f} s"
    )
    _print_rows("rewrites that cost", costly, top)
    _print_rows("rewrites that pay", paying, top)
    failed = sum(bool(row.error) for row in found.rows)
    small = len(found.rows) - len(costly) - len(paying)
    output.print_line(
        f"\n{small} others change the time by less than {threshold:.0%}, or by too "
        "little to be detected"
    )
    if failed:
        output.print_line(f"{failed} could not be estimated or measured (see --json)")
    if not math.isnan(found.together_s):
        output.print_line(
            "without all that cost by their estimates: "
            f"{output.format_seconds(found.together_s)} by the estimate, "
            f"{found.reference_s / found.together_s:.3g} times as fast"
            + _measured_speedup(found)
        )


def _measured_speedup(found: ProgramMap) -> str:
    if math.isnan(found.together):
        return f" ({found.together_error})" if found.together_error else ""
    return (
        f"; measured {1 / found.together:.3g} times "
        f"({1 / found.together_high:.3g} to {1 / found.together_low:.3g})"
    )


def _print_rows(title: str, rows: Sequence[RewriteRow], top: int) -> None:
    if not rows:
        output.print_line(f"\nno {title}")
        return
    output.print_line()
    output.print_table(
        _COLUMNS,
        [_row(row) for row in rows[:top]],
        title=f"{title}: {len(rows)}",
        right=_COLUMNS[3:],
    )
    sources = [(row.rule, row.source) for row in rows[:top] if row.source]
    if sources:
        output.print_line()
        output.print_table(("rewrite", "operation and source line"), sources)


def _row(row: RewriteRow) -> Sequence[Any]:
    measured = "-"
    if not math.isnan(row.measured):
        measured = f"{row.measured:.3g} ({row.low:.3g} to {row.high:.3g})"
    return (
        row.pass_name,
        output.shortened(row.rule),
        output.shortened(row.before),
        row.count,
        f"{row.worth:.3g}",
        measured,
    )


def _print_reproducers(written: Sequence[Reproducer]) -> None:
    if not written:
        return
    rows = [
        (each.script or each.hlo, _ratio(each.worth), _ratio(each.jax_worth))
        for each in written
    ]
    output.print_line()
    output.print_table(
        ("minimal program", "worth", "worth under jax.jit"),
        rows,
        right=("worth", "worth under jax.jit"),
    )


def _ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"
