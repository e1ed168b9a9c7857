# SPDX-License-Identifier: Apache-2.0
"""The report of the invariant matrix in Markdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .._markdown import table
from .cells import VARIANTS, Plan, home_of, variants_of
from .results import Results, Row

_TITLES = {
    "structure": "1, 2, 3, 6, 7, and the verifier's part of 4",
    "values": "4 and 5, in XLA's evaluator",
    "compiled": "4, compiled by XLA's backend",
    "default": "XLA's own decisions, and the rest of its pipeline, give its default",
}
_STATES = ("checked", "partly", "skipped", "failed", "missing")


@dataclass
class _OfPass:
    """Counts of one pass, or of all pairs."""

    wanted: int = 0
    states: Counter[str] = field(default_factory=Counter)
    modules: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    alternatives: int = 0


class Summary:
    """The results of all wanted cells."""

    def __init__(self, plan: Plan, results: Results) -> None:
        """Looks up all wanted cells."""
        self.plan = plan
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self._passes: dict[str, dict[str, _OfPass]] = {}
        for kind in plan.extents:
            passes: dict[str, _OfPass] = defaultdict(_OfPass)
            for subject, variant, name in plan.all_cells(kind):
                of_pass = passes["pairs" if "," in name else name]
                of_pass.wanted += 1
                row = results.rows.get((kind, subject.fingerprint, variant, name))
                if row is None:
                    of_pass.states["missing"] += 1
                    continue
                self.rows[kind].append(row)
                of_pass.states[row.state] += 1
                of_pass.alternatives += row.num_alternatives
                if row.num_checks:
                    of_pass.modules.add(row.fingerprint)
                    if row.num_alternatives:
                        of_pass.changed.add(row.fingerprint)
            self._passes[kind] = passes

    @property
    def failures(self) -> list[Row]:
        """The rows of cells with violations."""
        rows = [row for rows in self.rows.values() for row in rows if row.violations]
        return sorted(rows, key=lambda r: (r.passes, r.module, r.kind, r.variant))

    @property
    def is_complete(self) -> bool:
        """Whether all wanted cells have a result."""
        return not any(
            of_pass.states["missing"]
            for passes in self._passes.values()
            for of_pass in passes.values()
        )

    def to_markdown(self, header: Sequence[str]) -> str:
        """Returns the report.

        Args:
            header: list items that describe the run.
        """
        lines = [
            "# Invariants: the matrix",
            "",
            "Written by `scripts/reports/run_invariants.py`; do not edit. The "
            "invariants are in `ARCHITECTURE.md`.",
            "",
            "A cell is one pass, or two jointly, on one module, raw or before a "
            "pass of XLA's pipeline. *partly*: some of its checks could not be made; "
            "*skipped*: none could; the reasons are below.",
            "",
            *(f"* {line}" for line in header),
            "* results by version of the checked code: " + self._versions(),
            "* " + ("complete" if self.is_complete else "incomplete"),
            "",
            *self._totals(),
            *self._failures(),
            *self._skips(),
            *self._coverage(),
            *self._indivisible(),
        ]
        return "\n".join(lines) + "\n"

    def _versions(self) -> str:
        counts = Counter(
            (r.kind, r.version) for rows in self.rows.values() for r in rows
        )
        return ", ".join(
            f"{kind} {version}: {n}" for (kind, version), n in sorted(counts.items())
        )

    def _totals(self) -> list[str]:
        rows = []
        for kind, passes in self._passes.items():
            states: Counter[str] = Counter()
            for of_pass in passes.values():
                states.update(of_pass.states)
            modules = {row.fingerprint for row in self.rows[kind] if row.num_checks}
            cells = (
                f"{len(modules)} of {len(self.plan.subjects(kind))}",
                sum(each.wanted for each in passes.values()),
                *(states[state] for state in _STATES),
                sum(each.alternatives for each in passes.values()),
            )
            rows.append((_TITLES[kind], *cells))
        columns = ("invariants", "modules", "cells wanted", *_STATES, "alternatives")
        return [*table(columns, rows), ""]

    def _failures(self) -> list[str]:
        lines = ["## Failures", ""]
        for row in self.failures:
            lines += [
                f"* `{row.passes}` on {row.module} ({row.kind}, {row.variant}): "
                + " ".join(violation.split())[:300]
                for violation in row.violations[:3]
            ]
        return [*lines, *([] if len(lines) > 2 else ["None."]), ""]

    def _skips(self) -> list[str]:
        lines = ["## Skipped", ""]
        for kind, rows in self.rows.items():
            cells: Counter[str] = Counter()
            times: Counter[str] = Counter()
            for row in rows:
                for reason, number in row.skipped.items():
                    cells[reason] += 1
                    times[reason] += number
            if not cells:
                continue
            counts = [(why, count, times[why]) for why, count in cells.most_common()]
            lines += [f"Of {_TITLES[kind]}:", ""]
            lines += [*table(("reason", "cells", "times"), counts), ""]
        return lines

    def _coverage(self) -> list[str]:
        """Lists the number of checked modules for each pass."""
        rows = []
        for name in sorted({name for each in self._passes.values() for name in each}):
            counts = [
                f"{len(passes[name].modules)} ({len(passes[name].changed)})"
                if name in passes
                else "-"
                for passes in self._passes.values()
            ]
            home, refused = "", ""
            if name != "pairs":
                home = home_of(name)
                refused = ", ".join(v for v in VARIANTS if v not in variants_of(name))
            rows.append((f"`{name}`", home, *counts, refused))
        return [
            "## Passes",
            "",
            "Modules on which a pass was checked, and in brackets those on which it "
            "found an alternative.",
            "",
            *table(("pass", "decided", *self._passes, "not allowed at"), rows),
            "",
        ]

    def _indivisible(self) -> list[str]:
        reasons: dict[str, set[str]] = defaultdict(set)
        for rows in self.rows.values():
            for row in rows:
                for name, reason in row.whole:
                    reasons[name].add(f"{row.module}: {reason}")
        if not reasons:
            return []
        lines = ["## Passes that were one indivisible alternative", ""]
        lines += [
            f"* `{name}`, {len(found)} times, as on {min(found)}"
            for name, found in sorted(reasons.items())
        ]
        return [*lines, ""]
