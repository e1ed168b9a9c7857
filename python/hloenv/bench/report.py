# SPDX-License-Identifier: Apache-2.0
"""The leaderboard report, as Markdown and HTML."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence

from .. import _markdown
from .rows import Row
from .tables import Table, definitions_table, failures_table, tables

_MAX_CHANGES = 4
_MAX_WINS = 5
_MAX_NAMED = 20

_METHOD = (
    "Speed-up: XLA's default time over the method's. The headline is the geometric "
    "mean over entry points; a program's loss, gradient and training step, at all "
    "sizes, are one entry point. Its 95 % interval is a bootstrap over repositories "
    "and their entry points, widened by Student's t for few repositories. Total time: "
    "XLA's time for all modules over the method's. A win is a module whose own 95 % "
    "interval lies above 1. The outputs of every module were compared with XLA's. "
    "Errors and timeouts count as 1 (XLA's default is used) and are listed. A search's "
    "result and the best flags are measured again after they were selected; the best "
    "policy of a module or of a family is not, so these figures are biased upwards."
)


def provenance(rows: Sequence[Row], started: float) -> dict[str, str]:
    """The code that made the rows, and the rows that came from the store.

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
        facts["rows made by"] += ". **Several commits with the same sources.**"
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
    """Text on the modules of the sample without rows; "" if there are none."""
    missing = sorted(set(names) - {row.module for row in rows})
    if not missing:
        return ""
    named = ", ".join(missing[:_MAX_NAMED])
    rest = len(missing) - _MAX_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"**{len(missing)} of {len(set(names))}**: {named}{more}"


def largest_wins(rows: Sequence[Row]) -> list[str]:
    """A line for each of the largest speed-ups, one per module.

    Only of searches if there are any, since these are measured again.
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
    for row in sorted(best.values(), key=lambda row: -row.low)[:_MAX_WINS]:
        changes = Counter(dict(row.changes))
        words = ", ".join(
            f"{what} ({count} times)" if count > 1 else what
            for what, count in changes.most_common(_MAX_CHANGES)
        )
        rest = len(changes) - _MAX_CHANGES
        lines.append(
            f"{row.module}: {row.speedup:.2f} times as fast ({row.low:.2f} to "
            f"{row.high:.2f}) by {row.method}. Decisions that differ from XLA's: "
            + (words or "in XLA's pipeline, pass by pass")
            + (f", and {rest} other kinds" if rest > 0 else "")
            + "."
        )
    return lines


def chosen_flags(rows: Sequence[Row]) -> list[str]:
    """A line for each setting with the number of modules that it is best for."""
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
    """The report as Markdown.

    Args:
        rows: raw results.
        facts: names and values for the list at the top.
        plots: names of image files beside the report.
        more: further tables, by title.
    """
    lines = ["# Leaderboard", ""]
    lines += [f"* {name}: {value}" for name, value in facts.items()]
    lines += ["", _METHOD]
    for name in plots:
        lines += ["", f"![{name}]({name})"]
    for title, table in {**tables(rows), **(more or {})}.items():
        lines += ["", f"## {title}", "", *_markdown.table(*table)]
    lines += ["", "## Largest wins", ""]
    lines += [f"* {line}" for line in largest_wins(rows)] or ["None."]
    if flags := chosen_flags(rows):
        lines += ["", "## Best flags", "", *(f"* {line}" for line in flags)]
    failures = failures_table(rows)
    lines += ["", "## Errors, each counted as 1", ""]
    lines += _markdown.table(*failures) if failures[1] else ["None."]
    lines += ["", "## Methods", "", *_markdown.table(*definitions_table(rows))]
    return "\n".join(lines) + "\n"


def html(text: str) -> str:
    """The Markdown report as a self-contained HTML page."""
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
