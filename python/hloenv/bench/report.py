# SPDX-License-Identifier: Apache-2.0
"""The leaderboard in words and tables: Markdown, and the same as HTML."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence

from .rows import Row
from .tables import Table, definitions_table, failures_table, tables

_CHANGES = 4
_WINS = 5
_NAMED = 20

_METHOD = (
    "Speed-up: XLA's default time over the method's. The headline is the geometric "
    "mean over entry points: a program's loss, gradient and training step, at all its "
    "sizes, are one. Its 95 % interval draws repositories anew and entry points in "
    "each, and is as wide as so few repositories ask for. Total time: XLA's time for "
    "all modules over the method's. A win is a module whose own 95 % interval lies "
    "above 1. Outputs were compared with XLA's every time. A failure, a refusal and a "
    "timeout count as 1, since XLA's default is what is left, and all of them are "
    "listed. A search's result and the best flags are measured once more after they "
    "were chosen; the best policy of a module or of a family is not, so that those "
    "figures flatter."
)


def provenance(rows: Sequence[Row], started: float) -> dict[str, str]:
    """Which code made the rows, when, and what came from the store.

    Args:
        rows: of the report.
        started: when the run began, in seconds since the epoch.
    """
    kept = [row for row in rows if row.measured_at < started]
    facts = {
        "rows made by": ", ".join(
            f"commit {commit} (sources {version}): {count}"
            for (commit, version), count in Counter(
                (row.commit or "unknown", row.version or "unknown") for row in rows
            ).most_common()
        ),
        "baseline": "XLA of the wheel with `"
        + "`, `".join(sorted({row.flags or "no flags" for row in rows}))
        + "`",
    }
    if len({row.commit for row in rows}) > 1:
        facts["rows made by"] += ". **Several commits, the same sources.**"
    if len({row.version for row in rows}) > 1:
        facts["rows made by"] += ". **Rows of different sources are mixed.**"
    if kept:
        facts["from the store"] = (
            f"{len(kept)} of {len(rows)} rows were measured before this run, "
            + dates(row.measured_at for row in kept)
        )
    return facts


def dates(times: Iterable[float]) -> str:
    """The first and the last of some times, as dates with minutes in UTC."""
    known = sorted(times)
    named = [
        datetime.datetime.fromtimestamp(each, datetime.UTC).strftime("%Y-%m-%d %H:%M")
        for each in (known[0], known[-1])
    ]
    return " to ".join(dict.fromkeys(named)) + " UTC"


def not_played(names: Sequence[str], rows: Sequence[Row]) -> str:
    """Modules of the sample without rows, in words; "" where there are none."""
    missing = sorted(set(names) - {row.module for row in rows})
    if not missing:
        return ""
    named = ", ".join(missing[:_NAMED])
    rest = len(missing) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"**{len(missing)} of {len(set(names))}**: {named}{more}"


def largest_wins(rows: Sequence[Row]) -> list[str]:
    """What made the largest speed-ups, one module each, in words.

    Of the searches where there are any: they are measured afresh after the choice.
    """
    best: dict[str, Row] = {}
    decided = [row for row in rows if not row.is_baseline]
    searched = [row for row in decided if row.is_search]
    for row in searched or decided:
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
            f"{row.high:.2f}) by {row.method}. Other than XLA's own: "
            + (words or "decided in XLA's pipeline, pass by pass")
            + (f", and {rest} other kinds" if rest > 0 else "")
            + "."
        )
    return lines


def chosen_flags(rows: Sequence[Row]) -> list[str]:
    """How often each setting was the best of a module, in words."""
    chosen = Counter(
        next(iter(row.changes), "the default")
        for row in rows
        if row.method == "baseline/best-flags" and row.is_ok
    )
    return [f"{flags}: {count} modules" for flags, count in chosen.most_common()]


def markdown(
    rows: Sequence[Row],
    facts: dict[str, str],
    plots: Sequence[str],
    more: dict[str, Table] | None = None,
) -> str:
    """The whole report.

    Args:
        rows: raw results.
        facts: what was run where, shown on top.
        plots: names of image files beside the report.
        more: tables that do not come from the rows, by title.
    """
    lines = ["# Leaderboard", ""]
    lines += [f"* {name}: {value}" for name, value in facts.items()]
    lines += ["", _METHOD]
    for name in plots:
        lines += ["", f"![{name}]({name})"]
    for title, table in {**tables(rows), **(more or {})}.items():
        lines += ["", f"## {title}", "", *_lines(table)]
    lines += ["", "## The largest wins", ""]
    lines += [f"* {line}" for line in largest_wins(rows)] or ["None."]
    if flags := chosen_flags(rows):
        lines += ["", "## The best flags", "", *(f"* {line}" for line in flags)]
    failures = failures_table(rows)
    lines += ["", "## Failures, each counted as 1", ""]
    lines += _lines(failures) if failures[1] else ["None."]
    lines += ["", "## Methods", "", *_lines(definitions_table(rows))]
    return "\n".join(lines) + "\n"


def _lines(table: Table) -> list[str]:
    columns, cells = table
    return [
        "| " + " | ".join(columns) + " |",
        "| --- " + "| ---: " * (len(columns) - 1) + "|",
        *("| " + " | ".join(each) + " |" for each in cells),
    ]


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
