# SPDX-License-Identifier: Apache-2.0
"""The tables of a leaderboard."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .rows import Row, geometric_mean
from .statistics import (
    DURATIONS,
    Headline,
    baselines_ns,
    by_duration,
    duration_class,
    headline,
    log_speedup,
    total_speedup,
)

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True)
class Standing:
    """Results of a method over all of its modules.

    Attributes:
        method: the method's name.
        headline: the speed-up over XLA's default by entry point, with its interval.
        total: XLA's time for all modules over the method's.
        errors: rows with an error.
        best: largest speed-up of a module.
        worst: smallest.
        wins: rows whose interval lies above 1.
        ties: rows whose interval holds 1.
        losses: rows whose interval lies below 1.
        instructions: geometric mean of the final instructions over XLA's.
        bytes: the same for bytes read and written.
        flops: the same for floating-point operations.
        decide_s: median seconds to decide.
        accepted: share of the accepted alternatives.
    """

    method: str
    headline: Headline
    total: float
    errors: int
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

    @property
    def mean(self) -> float:
        """The mean of the headline."""
        return self.headline.mean


def standings(
    rows: Sequence[Row], times_ns: dict[str, float] | None = None
) -> list[Standing]:
    """One for each method, the best mean first.

    Includes only modules with rows of all methods. An error counts as XLA's default.

    Args:
        rows: of all methods.
        times_ns: XLA's time of each module; by default from these rows.
    """
    by_method: dict[str, list[Row]] = defaultdict(list)
    complete = complete_modules(rows)
    if times_ns is None:
        times_ns = baselines_ns(rows)
    for row in rows:
        if row.module in complete:
            by_method[row.method].append(row)
    found = [_standing(name, each, times_ns) for name, each in by_method.items()]
    return sorted(found, key=lambda each: -np.nan_to_num(each.mean))


def complete_modules(rows: Sequence[Row]) -> set[str]:
    """The modules with rows of all methods."""
    methods = {row.method for row in rows}
    by_module: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        by_module[row.module].add(row.method)
    return {name for name, found in by_module.items() if found == methods}


def _standing(name: str, rows: list[Row], times_ns: dict[str, float]) -> Standing:
    right = [row for row in rows if row.is_ok]
    verdicts = Counter(row.verdict for row in right)
    decided = sum(row.alternatives for row in right)

    def ratio(ours: Callable[[Row], float], theirs: Callable[[Row], float]) -> float:
        return geometric_mean(
            [ours(row) / theirs(row) for row in right if ours(row) * theirs(row) > 0]
        )

    return Standing(
        method=name,
        headline=headline(rows),
        total=total_speedup(rows, times_ns),
        errors=len(rows) - len(right),
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
        by_module[row.module].append(log_speedup(row))
    return np.array([np.mean(each) for each in by_module.values()])


def standings_table(
    rows: Sequence[Row], times_ns: dict[str, float] | None = None
) -> Table:
    """The leaderboard."""
    columns = (
        *("method", "repositories", "entry points", "modules", "speed-up", "95 %"),
        *("total time", "worst", "best", "win/tie/loss", "failed", "accepted"),
        *("instructions", "bytes", "flops", "decide"),
    )
    cells: list[tuple[str, ...]] = []
    for each in standings(rows, times_ns):
        line = each.headline
        is_baseline = each.method.startswith("baseline/")
        cells.append(
            (
                *(each.method, f"{line.repositories}", f"{line.entry_points}"),
                *(f"{line.modules}", f"{line.mean:.3f}", interval(line)),
                *(_number(each.total, 3), f"{each.worst:.2f}", f"{each.best:.2f}"),
                f"{each.wins}/{each.ties}/{each.losses}",
                f"{each.errors}",
                "-" if is_baseline else f"{each.accepted:.0%}",
                *map(_number, (each.instructions, each.bytes, each.flops)),
                _number(each.decide_s, unit=" s"),
            )
        )
    return columns, cells


def _number(value: float, digits: int = 2, unit: str = "") -> str:
    """With so many decimals; "-" where it is unknown."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}{unit}"


def interval(line: Headline) -> str:
    """The ends of the interval; "-" for a single repository."""
    if math.isnan(line.low):
        return "-"
    return f"{line.low:.3f} to {line.high:.3f}"


def durations_table(
    rows: Sequence[Row], times_ns: dict[str, float] | None = None
) -> Table:
    """Each method by the duration of XLA's default."""
    if times_ns is None:
        times_ns = baselines_ns(rows)
    complete = complete_modules(rows)
    names = [name for name, _ in DURATIONS]
    classes = {duration_class(times_ns.get(module)) for module in complete}
    names += ["not timed"] * ("not timed" in classes)
    cells: list[tuple[str, ...]] = []
    for standing in standings(rows):
        own = [
            row
            for row in rows
            if row.method == standing.method and row.module in complete
        ]
        found = by_duration(own, times_ns)
        line = [standing.method]
        for name in names:
            each = found.get(name)
            line.append("-" if each is None else f"{each.mean:.3f} ({each.modules})")
        cells.append(tuple(line))
    return ("method", *names), cells


def families_table(rows: Sequence[Row]) -> Table:
    """The best policy and the best search of each family of modules."""
    columns = (
        *("family", "modules", "best policy", "speed-up"),
        *("best search", "speed-up"),
    )
    cells = []
    decided = [row for row in rows if not row.is_baseline]
    for family in sorted({row.family for row in decided}):
        of_family = [row for row in decided if row.family == family]
        line = [family or "unknown", str(len(complete_modules(of_family)))]
        for is_search in (False, True):
            ranked = standings([r for r in of_family if r.is_search == is_search])
            line += [ranked[0].method, f"{ranked[0].mean:.3f}"] if ranked else ["", ""]
        cells.append(tuple(line))
    return columns, cells


def entry_points_table(rows: Sequence[Row]) -> Table:
    """The best method's speed-up on each entry point."""
    columns = ("entry point", "modules", "method", "speed-up")
    ranked = standings([row for row in rows if not row.is_baseline])
    if not ranked:
        return columns, []
    best = ranked[0].method
    by_point: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.method == best:
            by_point[row.unit[1]].append(row)
    found = [(point, headline(each)) for point, each in by_point.items()]
    found.sort(key=lambda pair: -pair[1].mean)
    return columns, [
        (point, f"{each.modules}", best, f"{each.mean:.3f}") for point, each in found
    ]


def modules_table(rows: Sequence[Row]) -> Table:
    """Each module with its best result."""
    columns = (
        *("module", "XLA's default", "best", "speed-up", "95 %"),
        *("instructions", "accepted"),
    )
    best: dict[str, Row] = {}
    for row in rows:
        if row.is_baseline or not row.is_ok:
            continue
        if row.speedup > best.setdefault(row.module, row).speedup:
            best[row.module] = row
    times_ns = baselines_ns(rows)
    cells: list[tuple[str, ...]] = [
        (
            row.module,
            f"{_default_ns(row, times_ns) / 1e3:.1f} us",
            row.method,
            f"{row.speedup:.3f}",
            f"{row.low:.3f} to {row.high:.3f}",
            f"{row.instructions} of {row.baseline_instructions}",
            f"{row.accepted} of {row.alternatives}",
        )
        for row in sorted(best.values(), key=lambda row: -row.speedup)
    ]
    return columns, cells


def _default_ns(row: Row, times_ns: dict[str, float]) -> float:
    """XLA's default beside this row's module, or in the other rows if it is equal."""
    if math.isnan(row.baseline_ns):
        return times_ns.get(row.module, math.nan)
    return row.baseline_ns


def failures_table(rows: Sequence[Row]) -> Table:
    """All errors, each of which counts as 1."""
    columns = ("method", "module", "threads", "seed", "reason")
    failed = sorted(
        (row for row in rows if row.error),
        key=lambda row: (row.method, row.module, row.threads, row.seed),
    )
    return columns, [
        (
            *(row.method, row.module, f"{row.threads}", f"{row.seed}"),
            _cell(row.error),
        )
        for row in failed
    ]


def _cell(text: str, longest: int = 200) -> str:
    plain = " ".join(text.split()).replace("|", "/").replace("<", "&lt;")
    return plain if len(plain) <= longest else plain[:longest] + "..."


def definitions_table(rows: Sequence[Row]) -> Table:
    """The definition of each method."""
    found = {row.method: row.definition for row in rows}
    columns = ("method", "definition")
    return columns, [(name, _cell(found[name], 2000)) for name in sorted(found)]


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """All tables by title, for each extent and number of threads."""
    found = {}
    for extent in sorted({row.extent for row in rows}, reverse=True):
        of_extent = [row for row in rows if row.extent == extent]
        for threads in sorted({row.threads for row in of_extent}):
            some = [row for row in of_extent if row.threads == threads]
            where = f"{extent} extents, {threads} thread{'s' * (threads > 1)}"
            times_ns = baselines_ns(some)
            for title, chosen in _kinds(some):
                found[f"{title}, {where}"] = standings_table(chosen, times_ns)
                found[f"{title} by XLA's duration, {where}"] = durations_table(
                    chosen, times_ns
                )
        found[f"By entry point, {extent} extents"] = entry_points_table(of_extent)
        found[f"By family, {extent} extents"] = families_table(of_extent)
        found[f"By module, {extent} extents"] = modules_table(of_extent)
    return found


def _kinds(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Policies and searches, each with the baselines."""
    searches = [row for row in rows if row.is_search or row.is_baseline]
    policies = [row for row in rows if not row.is_search]
    kinds = []
    if any(not row.is_baseline for row in policies) or not any(
        row.is_search for row in rows
    ):
        kinds.append(("Policies", policies))
    if any(row.is_search for row in rows):
        kinds.append(("Searches", searches))
    return kinds
