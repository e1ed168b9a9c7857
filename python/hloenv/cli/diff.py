# SPDX-License-Identifier: Apache-2.0
"""hloenv diff: what changed between two modules."""

from __future__ import annotations

import argparse

from ..hlo.diff import (
    ComputationDiff,
    InstructionChange,
    Kind,
    ModuleDiff,
    diff_modules,
)
from . import output
from .arguments import add_limit
from .load import load_module
from .numbers import add_count

DESCRIPTION = (
    "Compares two modules, computation by computation. Instructions are matched by "
    "opcode, shape, operands and position, so that renaming alone is no difference. "
    "The exit code is 0 whether or not they differ."
)
EXAMPLES = """\
examples:
  hloenv diff before.hlo after.hlo
  hloenv diff before.hlo after.hlo --summary
  hloenv diff model.hlo decided.hlo --json | jq .removed
"""
_MARKS: dict[Kind, str] = {"added": "+", "removed": "-", "changed": "~"}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("before", metavar="A", help="a MODULE; see hloenv --help")
    parser.add_argument("after", metavar="B", help="the MODULE to compare it with")
    add_limit(parser)
    parser.add_argument(
        "--summary", action="store_true", help="counts only, one line per computation"
    )
    add_count(
        parser,
        "--limit",
        "lines per computation, 0 for all; JSON has all",
        40,
        least=0,
    )


def run(args: argparse.Namespace) -> None:
    """Compares `args.before` with `args.after`."""
    before = load_module(args.before, args.max_instructions)
    after = load_module(args.after, args.max_instructions)
    difference = diff_modules(before, after)
    if args.json:
        counts = {kind: difference.count(kind) for kind in _MARKS}
        output.print_json({**difference.to_json(), **counts})
        return
    if difference.computations and args.summary:
        _print_summary(difference)
    elif difference.computations or difference.header:
        for old, new in difference.header:
            output.print_line(f"- {old}\n+ {new}")
        for computation in difference.computations:
            if computation.after:
                _print_computation(computation, args.limit)
        _print_removed(difference)
    _print_totals(difference)


def _print_summary(difference: ModuleDiff) -> None:
    rows = []
    for each in difference.computations:
        kinds = [change.kind for change in each.changes]
        sizes = f"{each.num_before} -> {each.num_after}"
        rows.append((_title(each), sizes, *(kinds.count(kind) for kind in _MARKS)))
    numbers = ("instructions", *_MARKS)
    output.print_table(("computation", *numbers), rows, right=numbers)


def _print_computation(computation: ComputationDiff, limit: int) -> None:
    changes = computation.changes
    output.print_line(
        f"{_title(computation)}: {computation.num_before} -> {computation.num_after} "
        "instructions"
    )
    shown = changes[:limit] if limit else changes
    for change in shown:
        output.print_line(f"  {_line(change)}")
    if len(shown) < len(changes):
        output.print_line(f"  ... and {len(changes) - len(shown)} more (--limit 0)")
    output.print_line()


def _print_removed(difference: ModuleDiff) -> None:
    removed = [each for each in difference.computations if not each.after]
    if removed:
        names = ", ".join(f"{each.before} ({each.num_before})" for each in removed)
        output.print_line(f"removed computations (instructions): {names}\n")


def _print_totals(difference: ModuleDiff) -> None:
    if not difference.computations and not difference.header:
        output.print_line("no difference")
        return
    output.print_line(
        f"{difference.count('added')} added, {difference.count('removed')} removed, "
        f"{difference.count('changed')} changed, {difference.num_same} the same"
        + ("; the live graphs are equal" if difference.is_same else "")
    )


def _title(computation: ComputationDiff) -> str:
    old, new = computation.before, computation.after
    if not old:
        return f"{new} (added)"
    if not new:
        return f"{old} (removed)"
    return old if old == new else f"{old} -> {new}"


def _line(change: InstructionChange) -> str:
    name = change.before or change.after
    if change.before and change.after and change.before != change.after:
        name = f"{change.before} -> {change.after}"
    text = f"{_MARKS[change.kind]} {name} = {change.shape} {change.opcode}"
    if change.details:
        text += f": {'; '.join(change.details)}"
    return f"{text}  # {change.source}" if change.source else text
