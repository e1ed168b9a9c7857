#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Graph networks that decide, on held-out modules, beside rules and search.

    python scripts/reports/run_learned.py --runs runs/learned
    python scripts/reports/run_learned.py --runs runs/learned --modules 24 \
        --config scripts/reports/learned.toml --ablation --extents small real \
        --doc docs/results/learned.md

Trains one policy for each of --seeds seeds, as `hloenv train rewrite` does, where the
folder of --runs has none yet; then runs `hloenv bench` on them. With --ablation, as
many of each training that lacks one thing (learned_ablation.py). Run times need a quiet
machine, training does not: --train-only. What has been trained or measured is not made
again.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hloenv.bench.rows import Row, read_parquet
from hloenv.bench.statistics import headline
from hloenv.cli import main as run_command
from hloenv.learn.ppo_run import BEST
from learned_ablation import ARMS, POLICY, Trained, base_settings, draw, section
from learned_ablation import train as train_arm
from reporting import count_of, head, parser_of, write_page

SPACE = "forms-to-fusion"
# Fixed rules in the same space, and the best ones elsewhere.
RULES = (
    *(f"{SPACE}/accept-all", f"{SPACE}/fewest-ops", f"{SPACE}/greedy-roofline"),
    *(f"{SPACE}/best-rule", "runtime/accept-all", "forms/known-forms"),
)
SEARCH = f"{SPACE}/search:hill-climb"
# Names of the rows whose methods differ in the checkpoint only.
DECIDES, SEARCHES = "GNN, no search", "GNN, and its draws measured"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--config", help="TOML file of `hloenv train rewrite`")
    parser.add_argument("--small", action="store_true", help="small runs; a look only")
    parser.add_argument("--seeds", type=int, default=3, help="policies to train")
    parser.add_argument("--split", default="test", help="test or unseen")
    parser.add_argument(
        "--extents", nargs="*", default=["small"], help="small, real, both or none"
    )
    parser.add_argument(
        "--ablation", action="store_true", help="train and compare the other arms too"
    )
    parser.add_argument(
        "--arms", nargs="+", default=list(ARMS), choices=list(ARMS), help="only these"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="of the curves")
    parser.add_argument("--train-only", action="store_true", help="measure nothing")
    parser.add_argument("--modules", type=int, help="size of a sample of the modules")
    parser.add_argument("--max-instructions", type=int, default=20000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--estimates", type=int, default=200, help="of the full search")
    parser.add_argument("--measurements", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=Path("bench/learned"))
    args = parser.parse_args()
    if args.small and args.ablation:
        parser.error("--small has one configuration; give --ablation without it")
    return args


def train(args: argparse.Namespace) -> list[Trained]:
    """The policies, trained where they are missing; those of the ablation last.

    Raises:
        SystemExit: a training run fails.
    """
    arms = dict.fromkeys([POLICY, *(args.arms if args.ablation else [])])
    base = base_settings(args.config)
    return [
        train_arm(arm, seed, args.runs, base, is_small=args.small)
        for arm in arms
        for seed in range(args.seeds)
    ]


def play(
    args: argparse.Namespace, extent: str, checkpoints: Sequence[Path]
) -> list[Row]:
    """The rows of all methods, one sample of modules for all.

    Raises:
        SystemExit: `hloenv bench` fails.
    """
    shared = ["--split", args.split, "--extent", extent, "--no-baselines"]
    shared += ["--max-instructions", str(args.max_instructions)]
    shared += ["--threads", str(args.threads)]
    if args.modules is not None:
        shared += ["--modules", str(args.modules)]
    decide = [f"{SPACE}/gnn:{path}" for path in checkpoints]
    decide += RULES
    # As many candidates as are measured: the policy's own first, then its draws.
    drawn = [f"{SPACE}/search:policy:gnn:{path}" for path in checkpoints]
    budgets = {
        "decide": (decide, []),
        "drawn": (drawn, _budget(args.measurements + 1, args.measurements)),
        "search": ([SEARCH], _budget(args.estimates, args.measurements)),
    }
    rows: list[Row] = []
    for name, (methods, budget) in budgets.items():
        folder = args.output / extent / name
        words = ["bench", *shared, *budget, "-o", str(folder)]
        for method in methods:
            words += ["-c", method]
        if name == "search":
            words += ["--seeds", str(args.seeds)]
        if code := run_command(words):
            sys.exit(code)
        rows += read_parquet(folder / "results.parquet")
    return rows


def _budget(estimates: int, measurements: int) -> list[str]:
    return ["--estimates", str(estimates), "--measurements", str(measurements)]


def named(row: Row) -> Row:
    """The row; rows of checkpoints that differ in the seed have one name."""
    method = row.method.removeprefix(f"{SPACE}/")
    if method.startswith("gnn:"):
        method = DECIDES
    elif method.startswith("search:policy:gnn:"):
        method = SEARCHES
    return replace(row, method=method)


def comparison(rows: Iterable[Row]) -> list[str]:
    """The page's table: speed-ups, and what share of full search's they are."""
    by_method: dict[str, list[Row]] = {}
    for row in map(named, rows):
        by_method.setdefault(row.method, []).append(row)
    found = {method: headline(each) for method, each in by_method.items()}
    full = found[SEARCH.removeprefix(f"{SPACE}/")]
    whole = math.log(full.mean)
    lines = [
        "| method | speed-up (95 % interval) | of full search's logarithm | "
        "seconds to decide a module | errors | programs | repositories |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for method, each in sorted(found.items(), key=lambda item: -item[1].mean):
        own = by_method[method]
        times = [row.decide_s for row in own if math.isfinite(row.decide_s)]
        share = math.log(each.mean) / whole if whole else math.nan
        lines.append(
            f"| {method} | {each.mean:.3f} ({each.low:.3f} to {each.high:.3f}) | "
            f"{share:.0%} | {sum(times) / max(len(times), 1):.2f} | "
            f"{sum(not row.is_ok for row in own)} | {each.entry_points} | "
            f"{each.repositories} |"
        )
    return lines


def _about(args: argparse.Namespace) -> str:
    return (
        f"{count_of(args.seeds, 'seed')} of each policy and search, which decide in "
        f"the space {SPACE}; modules of the split {args.split} on "
        f"{count_of(args.threads, 'core')}; geometric mean over programs of the "
        "measured speed-up over XLA's default, intervals by repository. The rule "
        "best-rule takes the best of some fixed rules by the times of the kernels. The "
        f"full search has {args.estimates} estimates and {args.measurements} "
        "measurements; an error counts as 1."
    )


def main() -> None:
    """Trains, measures, and writes the page."""
    args = arguments()
    trained = train(args)
    if args.train_only:
        return
    own = [each.folder / BEST for each in trained if each.arm == POLICY]
    lines = head(
        "Graph networks that decide" if args.extents else "Trainings of graph networks"
    )
    if args.extents:
        lines += ["", _about(args)]
    for extent in args.extents:
        rows = play(args, extent, own)
        lines += ["", f"## Programs of {extent} extents", "", *comparison(rows)]
    if args.ablation:
        lines += ["", *section(trained)]
    if args.plot:
        draw(trained, args.plot)
        lines += ["", f"![Learning curves](images/{args.plot.name})"]
    write_page(lines, args.doc)


if __name__ == "__main__":
    main()
