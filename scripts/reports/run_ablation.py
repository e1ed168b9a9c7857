#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single-decision ablation, and the distribution of execution time over kernels.

For each module of a random sample of the dataset's validation split, every fusion
decision that differs from XLA's own is evaluated alone (kernel cache). The best single
decision, all improving decisions together, and the best variant of the simplification
before are then compiled, compared and timed. A search can only gain more from
interactions of decisions, or from other early decisions:

    python scripts/reports/run_ablation.py --modules 40 \
        --doc docs/leaderboard/ablation.md

Results are stored; a repeated run continues.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hloenv import dataset
from hloenv._markdown import table
from hloenv.bench.ablation import ablate
from hloenv.bench.entries import sample
from hloenv.bench.rows import geometric_mean
from hloenv.bench.statistics import clustered_interval
from hloenv.cost.kernel_cache import KernelCache
from hloenv.hlo.module import HloModule
from hloenv.measurement.config import Settings
from hloenv.measurement.pool import Evaluator
from hloenv.measurement.store import Store
from hloenv.process.forkserver import run_jobs
from hloenv.search.spaces import get_space
from reporting import Rows, head, parser_of, write_page

# Modules above this time are reported separately.
LONG_S = 20e-6


@dataclass
class SearchResult:
    """One row of the table; times in seconds, measured unless stated otherwise."""

    module: str
    default_s: float
    shares: dict[str, float]
    num_singles: int
    num_better: int
    estimated: list[float]  # default over best single, all together, best variant
    best: float  # the best of them measured again; 1 if XLA's own is faster


def look(name: str, text: str, store_path: str) -> SearchResult:
    """Evaluates one module; runs in a child process."""
    module = HloModule.from_text(text)
    with (
        Store(store_path) as store,
        KernelCache(store=store) as cache,
        Evaluator(Settings(timeout_s=120), store=store, workers=1) as evaluator,
    ):
        ablation = ablate(module, get_space("simplify-and-fusion"), cache)
        modules = ablation.decided
        results = evaluator.evaluate(modules or [module], baseline=module)
        speedups = [each.speedup if each.is_ok else 1.0 for each in results]
        baseline_s = next(
            (each.baseline_median_ns * 1e-9 for each in results if each.is_ok),
            ablation.default_s,
        )
        best = max(range(len(speedups)), key=speedups.__getitem__)
        gain = 1.0
        if modules and speedups[best] > 1:
            again = evaluator.confirm(modules[best], baseline=module)
            gain = max(again.speedup, 1.0) if again.is_ok else 1.0
    estimates = (ablation.single_s, ablation.together_s, ablation.variant_s)
    return SearchResult(
        name,
        baseline_s,
        ablation.shares,
        ablation.num_singles,
        ablation.num_better,
        [max(ablation.default_s / each, 1.0) for each in estimates],
        gain,
    )


def _interval(rows: list[SearchResult], values: list[float]) -> str:
    """Formats the 95 % interval by repository."""
    clusters: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        clusters.setdefault(row.module.partition("/")[0], []).append(math.log(value))
    low, high = clustered_interval([np.array(each) for each in clusters.values()])
    return "one repository" if math.isnan(low) else f"{low:.3f} to {high:.3f}"


def page(rows: list[SearchResult]) -> list[str]:
    """The results as Markdown."""
    kinds = ("dot", "convolution", "library call", "sort", "generated code")

    def mean(some: list[SearchResult], values: list[float]) -> str:
        return f"{geometric_mean(values):.3f} ({_interval(some, values)})"

    bests = sorted((row.best for row in rows), reverse=True)
    long = [row for row in rows if row.default_s >= LONG_S]
    summary = [
        (f"{what}, by estimate", mean(rows, [row.estimated[i] for row in rows]))
        for i, what in enumerate(("best single", "improving ones together", "variant"))
    ]
    summary += [
        ("best of the three, measured again", mean(rows, [row.best for row in rows])),
        (
            f"the same, {len(long)} modules of 20 us or more",
            mean(long, [row.best for row in long]) if len(long) > 1 else "-",
        ),
        (
            "the same, top quartile",
            f"{geometric_mean(bests[: max(1, len(bests) // 4)]):.3f}",
        ),
    ]
    modules = [
        (
            *(row.module, f"{row.default_s * 1e6:.1f} us"),
            *(f"{row.shares.get(kind, 0):.0%}" for kind in kinds),
            *(row.num_singles, row.num_better),
            *(f"{row.estimated[1]:.3f}", f"{row.best:.3f}"),
        )
        for row in sorted(rows, key=lambda each: -each.best)
    ]
    columns = ("module", "XLA's default", *kinds, "decisions", "better alone")
    lines = [
        *head("Single-decision ablation"),
        f"* {len(rows)} modules done; one thread",
        "",
        "Every fusion decision that differs from XLA's own, alone; the improving ones "
        "together; the best variant of simplification. Geometric means of XLA's "
        "default time over theirs, at least 1:",
        "",
        *table(("", "speed-up (95 %)"), summary),
        "",
        "Time by kind of kernel; decisions do not change the code of library calls.",
        "",
        *table((*columns, "together, estimated", "best, measured"), modules),
        "",
    ]
    total_s = sum(row.default_s for row in rows)
    for kind in kinds:
        of_module = sum(row.shares.get(kind, 0) for row in rows) / len(rows)
        of_all = sum(row.default_s * row.shares.get(kind, 0) for row in rows) / total_s
        lines.append(
            f"* {kind}: {of_module:.0%} of a module on average, {of_all:.0%} of all"
        )
    return lines


def main() -> None:
    """Evaluates missing modules and writes the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--modules", type=int, default=40, help="so many of the split")
    parser.add_argument(
        "--split", choices=("train", "validation"), default="validation"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--min-instructions", type=int, default=60)
    parser.add_argument("--max-instructions", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this")
    parser.add_argument("--timeout", type=float, default=300, help="of one module")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("ablation.jsonl"),
        help="file of the stored results",
    )
    parser.add_argument("--store", default="ablation.sqlite", help="times of kernels")
    args = parser.parse_args()
    low, high = args.min_instructions, args.max_instructions
    records = [
        record
        for record in dataset.load(args.split)
        if low <= record.instruction_count <= high
    ]
    records = sample(records, args.modules, args.seed)
    results = Rows(args.results, "module")
    names = [f"{record.source}/{record.name}" for record in records]
    missing = [i for i, name in enumerate(names) if results.get(name) is None]
    outcomes = run_jobs(
        "run_ablation:look",
        [(names[i], records[i].text, args.store) for i in missing],
        workers=1,
        timeout=args.timeout,
    )
    ends = time.monotonic() + args.seconds
    for number, outcome in enumerate(outcomes, 1):
        name = names[missing[outcome.index]]
        if outcome.error:
            said = f"{name}: {outcome.last_line}"
            print(f"{number}/{len(missing)} {said}", file=sys.stderr)
        else:
            results.add(asdict(outcome.value))
            print(f"{number}/{len(missing)} {name}", file=sys.stderr)
        if time.monotonic() > ends:
            outcomes.close()
            break
    rows = [SearchResult(**row) for name in names if (row := results.get(name))]
    if not rows:
        raise SystemExit("nothing was found")
    write_page(page(rows), args.doc)


if __name__ == "__main__":
    main()
