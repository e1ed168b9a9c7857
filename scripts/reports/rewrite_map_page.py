# SPDX-License-Identifier: Apache-2.0
"""The page of the map of XLA's rewrites."""

from __future__ import annotations

import argparse
import datetime
import math
import os
from collections import Counter
from collections.abc import Sequence

from hloenv.rewrite_map import ProgramMap, RewriteRow
from hloenv.rewrite_map.aggregate import Case, RuleWorth, aggregate
from hloenv.rewrite_map.reproducer import Reproducer
from hloenv.runtime.machine import this_machine

_MAX_RULES = 40
_MAX_TEXT = 160


def write_page(
    maps: Sequence[ProgramMap],
    reproducers: Sequence[Reproducer],
    arguments: argparse.Namespace,
    commit: str,
    num_programs: int,
) -> str:
    """The page as Markdown."""
    rules = aggregate(maps)
    threshold = arguments.threshold
    parts = [
        _head(maps, arguments, commit, num_programs),
        _summary(maps, threshold),
        _costly_cases(maps, threshold),
        _minimal_programs(reproducers, arguments),
        _rules("Rewrites that cost, by rule and shape class", rules, threshold, -1),
        _rules("Rewrites that pay, by rule and shape class", rules, threshold, 1),
        _passes(maps, threshold),
        _programs(maps),
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _head(
    maps: Sequence[ProgramMap],
    arguments: argparse.Namespace,
    commit: str,
    num_programs: int,
) -> list[str]:
    lines = [
        "# The map of XLA's rewrites",
        "",
        "Written by `scripts/reports/run_rewrite_map.py`; do not edit.",
        "",
        f"* command: `python scripts/reports/run_rewrite_map.py --program-seconds "
        f"{arguments.program_seconds:g} --threshold {arguments.threshold:g} "
        f"--measure {arguments.measure} --reproducers {arguments.reproducers} "
        f"--doc {arguments.doc}`; no seeds",
        f"* date: {datetime.datetime.now(datetime.UTC).date()}; machine: "
        f"{this_machine().cpu}, {os.cpu_count()} cores; one thread",
        f"* sources: commit {commit}",
        f"* programs: {len(maps)} of the {num_programs} of the dataset's train and "
        "validation splits at real extents",
    ]
    if arguments.note:
        lines.append(f"* {arguments.note}")
    return [
        *lines,
        "",
        "For each rewrite that XLA makes, the program is compiled as XLA does, but "
        "without this one. Equal rewrites of a program (the same operation with the "
        "same types becomes the same) are rejected together. The **worth** of a "
        "rewrite is the program's time without it over the time with it: above 1 it "
        "pays, below 1 it costs. Where the rewrites that cost take more than a fifth "
        "of the time, the others are tried again without these, in another round. "
        "Times are sums of kernel times "
        "(`hloenv.cost.KernelCache`), and measured in turns, with outputs compared, "
        "where a measured worth is given with its 95 % interval. "
        "`hloenv rewrites` does the same for one program.",
        "",
    ]


def _summary(maps: Sequence[ProgramMap], threshold: float) -> list[str]:
    rows = [row for each in maps for row in each.rows]
    tried = [row for row in rows if row.worth > 0]
    same = sum(row.is_noop for row in tried)
    costly = sum(len(each.costly(threshold)) for each in maps)
    paying = sum(row.pays(threshold) for row in tried)
    left = sum(each.num_left for each in maps)
    failed = sum(bool(row.error) for row in rows)
    return [
        f"Of {len(tried)} rewrites (each counted once in a program), {same} leave the "
        f"kernels as they are, {paying} pay and {costly} cost {threshold:.0%} or more "
        f"of a program's time; {failed} have no estimate or no measurement, and {left} "
        "were not tried for lack of time, those of the cheapest operations.",
        "",
    ]


def _costly_cases(maps: Sequence[ProgramMap], threshold: float) -> list[str]:
    cases = [Case(each, row) for each in maps for row in each.costly(threshold)]
    cases.sort(key=lambda case: case.row.best_worth)
    lines = [
        "## What costs most",
        "",
        "| program | pass | before | after | times | round | worth, estimated | "
        "measured |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for case in cases[:_MAX_RULES]:
        row = case.row
        lines.append(
            f"| {case.program.program} | {row.pass_name} | `{_short(row.before)}` | "
            f"`{_short(row.after)}` | {row.count} | {row.round} | {row.worth:.3g} | "
            f"{_measured(row)} |"
        )
    return [*lines, ""]


def _measured(row: RewriteRow) -> str:
    if math.isnan(row.measured):
        return row.error.partition(":")[0]
    return f"{row.measured:.3g} ({row.low:.3g} to {row.high:.3g})"


def _minimal_programs(
    found: Sequence[Reproducer], arguments: argparse.Namespace
) -> list[str]:
    lines = [
        "## Minimal programs",
        "",
        f"In `{arguments.folder}`: HLO with the operation before the rewrite, and, "
        "where it can be written in `jax.lax`, a Python program for plain `jax.jit`, "
        "which runs with and without the whole pass (`--xla_disable_hlo_passes`).",
        "",
        "| file | pass | found in | worth on the HLO | jax.jit | without the pass |",
        "| --- | --- | --- | --- | ---: | ---: |",
    ]
    hidden = [each for each in found if not each.shows_cost]
    for each in found:
        if not each.shows_cost:
            continue
        times = ["", ""]
        if not math.isnan(each.with_ms):
            times = [f"{each.with_ms:.3g} ms", f"{each.without_ms:.3g} ms"]
        worth = each.error.partition(":")[0]
        if not math.isnan(each.worth):
            worth = f"{each.worth:.3g} ({each.low:.3g} to {each.high:.3g})"
        lines.append(
            f"| `{each.script or each.hlo}` | {each.pass_name} | {each.program} | "
            f"{worth} | {times[0]} | {times[1]} |"
        )
    if hidden:
        names = ", ".join(f"{each.pass_name} in {each.program}" for each in hidden)
        lines += ["", f"Without effect on the operation alone: {names}."]
    return [*lines, ""]


def _rules(
    title: str, rules: Sequence[RuleWorth], threshold: float, sign: int
) -> list[str]:
    limit = math.log1p(threshold)
    chosen = [each for each in rules if sign * math.log(each.worth) >= limit]
    chosen.sort(key=lambda each: -sign * math.log(each.worth))
    lines = [
        f"## {title}",
        "",
        "Geometric mean over the programs; of a program, the rewrite with the largest "
        "effect.",
        "",
        "| pass | rule | of | programs | repositories | rewrites | worth | worst | "
        "best |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in chosen[:_MAX_RULES]:
        lines.append(
            f"| {each.pass_name} | {each.rule} | {each.shape_class} | "
            f"{each.num_programs} | {each.num_repositories} | {each.num_rewrites} | "
            f"{each.worth:.3g} | {each.worst.row.best_worth:.3g} | "
            f"{each.best.row.best_worth:.3g} |"
        )
    if len(chosen) > _MAX_RULES:
        lines += ["", f"{len(chosen) - _MAX_RULES} more are not shown."]
    return [*lines, ""]


def _passes(maps: Sequence[ProgramMap], threshold: float) -> list[str]:
    counts: dict[str, Counter[str]] = {}
    for each in maps:
        for row in each.rows:
            if not row.worth > 0:
                continue
            count = counts.setdefault(row.pass_name, Counter())
            count["all"] += 1
            count["same"] += row.is_noop
            count["pays"] += row.pays(threshold)
            count["costs"] += row.costs(threshold)
    lines = [
        "## By pass",
        "",
        "| pass | rewrites | same kernels | pay | cost |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, count in sorted(counts.items(), key=lambda each: -each[1]["all"]):
        lines.append(
            f"| {name} | {count['all']} | {count['same']} | {count['pays']} | "
            f"{count['costs']} |"
        )
    return [*lines, ""]


def _programs(maps: Sequence[ProgramMap]) -> list[str]:
    lines = [
        "## Programs",
        "",
        "*All that cost*: the speed-up without all that cost by their estimates.",
        "",
        "| program | split | time, estimated | rewrites tried | all that cost, "
        "estimated | measured |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for each in sorted(maps, key=lambda found: found.program):
        if not each.rows:
            lines.append(f"| {each.program} | {each.split} | {each.error} | | | |")
            continue
        estimated = measured = ""
        if not math.isnan(each.together_s):
            estimated = f"{each.reference_s / each.together_s:.3g}"
        if not math.isnan(each.together):
            measured = (
                f"{1 / each.together:.3g} "
                f"({1 / each.together_high:.3g} to {1 / each.together_low:.3g})"
            )
        elif each.together_error:
            measured = each.together_error.partition(":")[0]
        lines.append(
            f"| {each.program} | {each.split} | {each.reference_s * 1e3:.3g} ms | "
            f"{len(each.rows)} of {each.num_rewrites} | {estimated} | {measured} |"
        )
    return lines


def _short(text: str) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
