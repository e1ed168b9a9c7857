#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rank correlation of estimates with measured times, over versions of real programs.

One program of each entry point is drawn at random. Its versions have random forms of
operations (convolutions, dots, reductions, sorts), decided as jax lowers them, and then
random fusions, from none to all. Each program runs in its own process; rows are
appended to a JSONL file, and a repeated run continues.

    python scripts/reports/run_estimates.py
    python scripts/reports/run_estimates.py --threads 2 --doc docs/results/estimates.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.cost.kernel_cache import KernelCache
from hloenv.cost.roofline import Roofline
from hloenv.dataset.reader import Record
from hloenv.policies.known_forms import FORM_PASSES
from hloenv.runtime.executable import time_runs
from reporting import (
    Row,
    Rows,
    add_dataset,
    count_of,
    drawn_by_entry_point,
    head,
    parser_of,
    rows_of_programs,
    version_of_rows,
    write_page,
)

# Of measured times: copies of the code, and rounds of each.
_COPIES, _ROUNDS = 6, 3
_GROUP = 5  # versions that are timed in turns with the first
# Slower than the fastest by this, a version is not timed: ranks of programs that are
# hundreds of times as slow are not in question, and take hours.
_SLOWEST = 30.0
_MAX_S = 0.3  # of a version
_CLEAR = 0.9
_TIMEOUT_S = 1500.0
_MIN_ESTIMATES = 3  # different estimates


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    add_dataset(parser, "validation")
    parser.add_argument("--match", default="", help="only programs with this text")
    parser.add_argument("--threads", type=int, default=1, help="of the programs")
    parser.add_argument("--versions", type=int, default=20, help="of a program")
    parser.add_argument("--rows", type=Path, default=Path("build/estimates.jsonl"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def versions(
    module: hloenv.HloModule, count: int, seed: int
) -> Iterator[hloenv.HloModule]:
    """Versions with random forms and random fusions; the first has neither."""
    env = hloenv.HloEnv(module)
    forms = env.get_alternatives(*FORM_PASSES)
    start = env.snapshot()
    rng = np.random.default_rng(seed)

    def some(alternatives: hloenv.Alternatives, share: float) -> Any:
        accepted = rng.random(len(alternatives)) < share
        choices = rng.integers(1, alternatives.num_choices)
        return np.where(accepted, choices, 0)

    for index in range(count):
        env.restore(start)
        # Every second version has XLA's own forms.
        env.apply_alternatives(some(forms, rng.random() * (index % 2)), forms)
        env.run_until("fusion")
        fusions = env.get_alternatives("general-fusion")
        yield env.apply_alternatives(some(fusions, index / max(count - 1, 1)), fusions)


def measure(record: Record, arguments: argparse.Namespace) -> Row:
    """Estimates and times of one program's versions, in this process."""
    import scipy.stats

    threads = arguments.threads
    candidates = list(versions(record.module, arguments.versions, arguments.seed))
    with KernelCache(threads=threads) as cache:
        estimates = cache.estimate_many(candidates)
    static = Roofline(threads=threads).estimate_many(candidates)
    usable = [
        (candidate, cached.seconds, roofline.seconds)
        for candidate, cached, roofline in zip(
            candidates, estimates, static, strict=True
        )
        if cached.is_ok and roofline.is_ok
    ]
    best = min(cached for _, cached, _ in usable)
    limit = min(_SLOWEST * best, max(_MAX_S, best))
    usable = [each for each in usable if each[1] <= limit]
    modules, cached, roofline = zip(*usable, strict=True)
    relative = _relative_times(record, modules)
    real = np.median(relative, axis=0)
    if min(len(set(each)) for each in (cached, roofline)) < _MIN_ESTIMATES:
        return {"error": f"fewer than {_MIN_ESTIMATES} different estimates"}

    def spearman(a: Any, b: Any) -> float:
        return float(scipy.stats.spearmanr(a, b)[0])

    return {
        "versions": len(modules),
        "left_out": len(candidates) - len(modules),
        "spread": float(real.max() / real.min()),
        "repeated": spearman(
            np.median(relative[::2], axis=0), np.median(relative[1::2], axis=0)
        ),
        "cache": spearman(cached, real),
        "roofline": spearman(roofline, real),
        # The slowdown of the version that is best by the estimate.
        "cache_pick": float(real[int(np.argmin(cached))] / real.min()),
        "roofline_pick": float(real[int(np.argmin(roofline))] / real.min()),
    }


def _relative_times(record: Record, modules: tuple[hloenv.HloModule, ...]) -> Any:
    """[copies, versions] median times over that of the first in the same rounds."""
    inputs = record.inputs()
    rows = [[1.0] for _ in range(_COPIES)]
    for start in range(1, len(modules), _GROUP):
        # Code uses memory maps, whose number per process is limited: few versions of a
        # large program at a time.
        some = [modules[0], *modules[start : start + _GROUP]]
        executables = [hloenv.compile(each) for each in some]
        for copy, row in enumerate(rows):
            copies = [each.copy() for each in executables]
            times = time_runs(
                copies, [inputs] * len(copies), repeats=_ROUNDS, warmup=1, seed=copy
            )
            medians = [float(np.median(each)) for each in times]
            row += [each / medians[0] for each in medians[1:]]
            del copies
        del executables
    return np.array(rows)


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    names = "repeated", "cache", "roofline", "cache_pick", "roofline_pick"
    done = [row for row in rows if "cache" in row]
    cells = [
        (
            row["name"],
            row["versions"],
            row["left_out"],
            f"{row['spread']:.2f}",
            *(f"{row[name]:.2f}" for name in names),
        )
        for row in sorted(done, key=lambda row: row["cache"])
    ]
    # Where the runs tell the versions apart.
    clear = [row for row in done if row["repeated"] >= _CLEAR]
    medians = [
        [statistics.median(row[name] for row in some) for name in names]
        for some in (done, clear)
        if some
    ]
    summary = [
        f"Median over {what}: kernel cache {each[1]:.2f}, roofline {each[2]:.2f}, "
        f"repeated {each[0]:.2f}; picks {each[3]:.2f} and {each[4]:.2f}."
        for what, each in zip(
            (
                f"{len(done)} programs",
                f"the {len(clear)} whose `repeated` is at least {_CLEAR}",
            ),
            medians,
            strict=False,
        )
    ]
    failed = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    return [
        *head("Estimates of real programs", rows),
        f"* {len(rows)} programs of {arguments.split}, one of each entry point, drawn "
        f"with seed {arguments.seed}; on {count_of(arguments.threads, 'thread')}",
        "",
        "Rank correlation (Spearman) of estimates with measured times over versions of "
        "a program: random forms of its operations and random fusions. `spread`: the "
        "slowest version over the fastest. `repeated`: correlation of one half of the "
        "runs with the other, r; about sqrt(2r / (1 + r)) is the most that an estimate "
        "can reach. "
        "`pick`: the time of the version that is best by the estimate, over the "
        f"fastest. Left out: versions that the cache takes to be {_SLOWEST:g} times as "
        f"slow as the fastest, or longer than {_MAX_S:g} s: `left out`, and those "
        "without an estimate.",
        "",
        *summary,
        "",
        f"At least 0.9 by the kernel cache: {sum(row['cache'] >= 0.9 for row in done)} "
        f"of {len(done)}, and {sum(row['cache'] >= 0.9 for row in clear)} of "
        f"{len(clear)}.",
        "",
        *table(
            (
                *(
                    "program",
                    "versions",
                    "left out",
                    "spread",
                    "repeated",
                    "kernel cache",
                ),
                *("roofline", "its pick: cache", "roofline"),
            ),
            cells,
        ),
        *(["", "Failed: " + "; ".join(failed) + "."] if failed else []),
    ]


def main() -> int:
    """Measures missing programs and writes the page."""
    arguments = parse_arguments()
    dataset = hloenv.dataset.load(arguments.split, extent=arguments.extent)
    if arguments.one:
        print(json.dumps(measure(dataset.find(arguments.one), arguments)))
        return 0
    records = [each for each in dataset if arguments.match in each.name]
    settings = {"versions": arguments.versions, "seed": arguments.seed}
    words = ["--split", arguments.split, "--extent", arguments.extent]
    words += ["--threads", str(arguments.threads)]
    for name, value in settings.items():
        words += [f"--{name}", str(value)]
    rows = rows_of_programs(
        drawn_by_entry_point(records, arguments.seed),
        Rows(arguments.rows, "fingerprint", "version", "cores"),
        words,
        timeout_s=_TIMEOUT_S,
        version=version_of_rows(**settings),
        cores=arguments.threads,
    )
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
