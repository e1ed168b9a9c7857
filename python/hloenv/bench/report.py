# SPDX-License-Identifier: Apache-2.0
"""The leaderboard in words and tables: Markdown, and the same as HTML."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .rows import Row, geometric_mean

_SAMPLES = 2000
_CHANGES = 4
_WINS = 5
# What is shorter hardly matters to anyone.
LONG_NS = 20e3
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True)
class Standing:
    """How a contestant did over all modules that it was played on.

    Attributes:
        contestant: its name.
        modules: that it was played on.
        errors: rows with an error.
        mean: geometric mean of the speed-up over XLA's default; over seeds first.
        low: lower end of its 95 % interval, by bootstrap over modules.
        high: upper end.
        best: largest speed-up of a module.
        worst: smallest.
        wins: rows whose interval lies above 1.
        ties: rows whose interval holds 1.
        losses: rows whose interval lies below 1.
        instructions: geometric mean of the final instructions over XLA's.
        bytes: the same of bytes read and written.
        flops: the same of floating-point operations.
        decide_s: median seconds to decide.
        accepted: share of the alternatives that were accepted.
    """

    contestant: str
    modules: int
    errors: int
    mean: float
    low: float
    high: float
    best: float
    worst: float
    wins: int
    ties: int
    losses: int
    instructions: float
    bytes: float
    flops: float
    decide_s: float
    accepted: float


def standings(rows: Sequence[Row]) -> list[Standing]:
    """One for each contestant, the best mean first.

    Only modules that all contestants were played on count. An error counts as XLA's
    default, which a user would then keep: who breaks modules gains nothing by it.
    """
    by_contestant: dict[str, list[Row]] = defaultdict(list)
    complete = _complete(rows)
    for row in rows:
        if row.module in complete:
            by_contestant[row.contestant].append(row)
    found = [_standing(name, each) for name, each in by_contestant.items()]
    return sorted(found, key=lambda each: -np.nan_to_num(each.mean))


def _complete(rows: Sequence[Row]) -> set[str]:
    """The modules that all contestants were played on."""
    contestants = {row.contestant for row in rows}
    by_module: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        by_module[row.module].add(row.contestant)
    return {name for name, found in by_module.items() if found == contestants}


def _standing(name: str, rows: list[Row]) -> Standing:
    right = [row for row in rows if row.is_ok]
    logs = module_logs(rows)
    low, high = mean_interval(logs)
    verdicts = Counter(row.verdict for row in right)
    decided = sum(row.alternatives for row in right)

    def ratio(ours: Callable[[Row], float], theirs: Callable[[Row], float]) -> float:
        return geometric_mean(
            [ours(row) / theirs(row) for row in right if ours(row) * theirs(row) > 0]
        )

    return Standing(
        contestant=name,
        modules=len(logs),
        errors=len(rows) - len(right),
        mean=math.exp(np.mean(logs)) if len(logs) else math.nan,
        low=low,
        high=high,
        best=max((row.speedup for row in right), default=math.nan),
        worst=min((row.speedup for row in right), default=math.nan),
        wins=verdicts["win"],
        ties=verdicts["tie"],
        losses=verdicts["loss"],
        instructions=ratio(
            lambda row: row.instructions, lambda row: row.baseline_instructions
        ),
        bytes=ratio(lambda row: row.bytes, lambda row: row.baseline_bytes),
        flops=ratio(lambda row: row.flops, lambda row: row.baseline_flops),
        decide_s=float(np.median([row.decide_s for row in right])) if right else 0.0,
        accepted=sum(row.accepted for row in right) / decided if decided else 0.0,
    )


def module_logs(rows: Iterable[Row]) -> np.ndarray:
    """[M] log of each module's speed-up, its seeds averaged; 0 for an error."""
    by_module: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_module[row.module].append(math.log(row.speedup) if row.is_ok else 0.0)
    return np.array([np.mean(each) for each in by_module.values()])


def mean_interval(logs: np.ndarray) -> tuple[float, float]:
    """95 % interval of the geometric mean over modules like these."""
    if len(logs) < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    means = logs[rng.integers(0, len(logs), (_SAMPLES, len(logs)))].mean(axis=1)
    low, high = np.exp(np.percentile(means, (2.5, 97.5)))
    return float(low), float(high)


def standings_table(rows: Sequence[Row]) -> Table:
    """The leaderboard."""
    columns = (
        *("contestant", "modules", "speed-up", "95 %", "worst", "best"),
        *("win/tie/loss", "errors", "accepted", "instructions", "bytes", "flops"),
        "decide",
    )
    cells: list[tuple[str, ...]] = [
        (
            each.contestant,
            f"{each.modules}",
            f"{each.mean:.3f}",
            f"{each.low:.3f} to {each.high:.3f}",
            f"{each.worst:.2f}",
            f"{each.best:.2f}",
            f"{each.wins}/{each.ties}/{each.losses}",
            f"{each.errors}",
            f"{each.accepted:.0%}",
            f"{each.instructions:.2f}",
            f"{each.bytes:.2f}",
            f"{each.flops:.2f}",
            f"{each.decide_s:.2f} s",
        )
        for each in standings(rows)
    ]
    return columns, cells


def families_table(rows: Sequence[Row]) -> Table:
    """The best policy and the best search of each family of modules."""
    columns = (
        "family",
        "modules",
        "best policy",
        "speed-up",
        "best search",
        "speed-up",
    )
    cells = []
    for family in sorted({row.family for row in rows}):
        of_family = [row for row in rows if row.family == family]
        line = [family or "unknown", str(len(_complete(of_family)))]
        for is_search in (False, True):
            ranked = standings([r for r in of_family if r.is_search == is_search])
            line += (
                [ranked[0].contestant, f"{ranked[0].mean:.3f}"] if ranked else ["", ""]
            )
        cells.append(tuple(line))
    return columns, cells


def modules_table(rows: Sequence[Row]) -> Table:
    """Each module with its best result."""
    columns = (
        *("module", "XLA's default", "best", "speed-up", "95 %"),
        *("instructions", "accepted"),
    )
    best: dict[str, Row] = {}
    for row in rows:
        if row.is_ok and row.speedup > best.setdefault(row.module, row).speedup:
            best[row.module] = row
    cells: list[tuple[str, ...]] = [
        (
            row.module,
            f"{baseline_ns(rows, row.module) / 1e3:.1f} us",
            row.contestant,
            f"{row.speedup:.3f}",
            f"{row.low:.3f} to {row.high:.3f}",
            f"{row.instructions} of {row.baseline_instructions}",
            f"{row.accepted} of {row.alternatives}",
        )
        for row in sorted(best.values(), key=lambda row: -row.speedup)
    ]
    return columns, cells


def lengths_table(rows: Sequence[Row]) -> Table:
    """Each contestant on the modules that run long, and on those that gain most."""
    columns = (
        *("contestant", "threads", "modules", "speed-up", "95 %"),
        "quarter that gains most",
    )
    cells: list[tuple[str, ...]] = []
    for threads, is_search in sorted({(r.threads, r.is_search) for r in rows}):
        some = [r for r in rows if (r.threads, r.is_search) == (threads, is_search)]
        long = {each for each in _complete(some) if baseline_ns(rows, each) >= LONG_NS}
        some = [row for row in some if row.module in long]
        for each in standings(some):
            logs = module_logs(r for r in some if r.contestant == each.contestant)
            quarter = np.sort(logs)[-max(1, len(logs) // 4) :]
            cells.append(
                (
                    each.contestant,
                    f"{threads}",
                    f"{each.modules}",
                    f"{each.mean:.3f}",
                    f"{each.low:.3f} to {each.high:.3f}",
                    f"{math.exp(quarter.mean()):.3f}",
                )
            )
    return columns, cells


def baseline_ns(rows: Iterable[Row], module: str) -> float:
    """How long XLA's default takes; NaN where no contestant had to be timed."""
    times = [row.baseline_ns for row in rows if row.module == module]
    known = [each for each in times if not math.isnan(each)]
    return float(np.median(known)) if known else math.nan


def largest_wins(rows: Sequence[Row]) -> list[str]:
    """What made the largest speed-ups, one module each, in words.

    Of the searches where there are any: they are measured afresh after the choice.
    """
    best: dict[str, Row] = {}
    searched = [row for row in rows if row.is_search]
    for row in searched or rows:
        if row.verdict == "win" and (
            row.module not in best or row.low > best[row.module].low
        ):
            best[row.module] = row
    lines = []
    for row in sorted(best.values(), key=lambda row: -row.low)[:_WINS]:
        changes = Counter(dict(row.changes))
        words = ", ".join(
            f"{what} ({count} times)" if count > 1 else what
            for what, count in changes.most_common(_CHANGES)
        )
        rest = len(changes) - _CHANGES
        lines.append(
            f"{row.module}: {row.speedup:.2f} times as fast ({row.low:.2f} to "
            f"{row.high:.2f}) by {row.contestant}. Other than XLA's own: "
            + (words or "decided in XLA's pipeline, pass by pass")
            + (f", and {rest} other kinds" if rest > 0 else "")
            + "."
        )
    return lines


def markdown(rows: Sequence[Row], facts: dict[str, str], plots: Sequence[str]) -> str:
    """The whole report.

    Args:
        rows: raw results.
        facts: what was run where, shown on top.
        plots: names of image files beside the report.
    """
    lines = ["# Leaderboard", ""]
    lines += [f"* {name}: {value}" for name, value in facts.items()]
    lines += [
        "",
        "Speed-up: XLA's default time over the contestant's; geometric mean over "
        "modules, with a 95 % interval over modules. A win is a module whose own 95 % "
        "interval lies above 1. Outputs were compared with the original's every time; "
        "who fails on a module gets 1 there, since XLA's default is what is left. A "
        "search's result is measured once more after it was chosen; the best policy of "
        "a module or of a family is not, so that those figures flatter.",
    ]
    for name in plots:
        lines += ["", f"![{name}]({name})"]
    for title, (columns, cells) in tables(rows).items():
        lines += ["", f"## {title}", "", "| " + " | ".join(columns) + " |"]
        lines += ["| --- " + "| ---: " * (len(columns) - 1) + "|"]
        lines += ["| " + " | ".join(each) + " |" for each in cells]
    lines += ["", "## The largest wins", ""]
    lines += [f"* {line}" for line in largest_wins(rows)] or ["None."]
    errors = Counter(
        f"{row.contestant}: {row.error.split(':')[0]}" for row in rows if row.error
    )
    lines += ["", "## Errors", ""]
    lines += [f"* {what}, {n} times" for what, n in errors.most_common()] or ["None."]
    return "\n".join(lines) + "\n"


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables by title."""
    policies = [row for row in rows if not row.is_search]
    searches = [row for row in rows if row.is_search]
    found = {}
    for threads in sorted({row.threads for row in rows}):
        suffix = f", {threads} thread{'s' * (threads > 1)}"
        for title, some in (("Policies", policies), ("Searches", searches)):
            chosen = [row for row in some if row.threads == threads]
            if chosen:
                found[title + suffix] = standings_table(chosen)
    found[f"Modules that run {LONG_NS / 1e3:.0f} us or longer"] = lengths_table(rows)
    found["By family"] = families_table(rows)
    found["By module"] = modules_table(rows)
    return found


def html(text: str) -> str:
    """The Markdown report as a page that stands alone."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(text)
    return _PAGE.format(body=body)


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>hloenv: leaderboard</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .2em .7em; border-bottom: 1px solid #ddd; text-align: right }}
th:first-child, td:first-child {{ text-align: left }}
img {{ max-width: 100% }}
</style>
<body>
{body}
</body></html>
"""
