#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares searches over substitutions: estimated and measured times.

One rule set and one cost for all but Enzyme-JAX, which has its own, and for two greedy
searches by times of kernels, which show what the cost is worth, and what patterns of
Enzyme-JAX are worth one by one: greedy, TASO's backtracking (alpha 1.0 and 1.05),
hill climbing on the decisions of several rounds at once, equality saturation by egglog
with extraction by an integer program and by greedy, the e-graph that a tree search
builds, and Enzyme-JAX's optimizer. The best module of each
is compiled, its outputs are compared with the original's, and it is measured beside it.
`run_substitution_agents.py` has the agents.

    python scripts/reports/run_substitution.py --search-only
    python scripts/reports/run_substitution.py --doc docs/results/substitution.md

Each result is kept in --results, and its module beside it; a repeated run continues.
The measurements need a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv.bench.rows import geometric_mean
from hloenv.bench.version import bench_version, commit_of, source_root
from hloenv.cost import get_estimator, open_estimator
from hloenv.errors import HloEnvError
from hloenv.rewrite.game import DecisionPoint, Game
from hloenv.rules import enzyme
from hloenv.search import get_search
from hloenv.search.driver import Budget as SearchBudget
from hloenv.search.driver import run_search
from hloenv.substitution import (
    DEFAULT_PASSES,
    Budget,
    Expander,
    Saturated,
    SaturationLimits,
    TreeSearch,
    backtracking,
    greedy,
    saturate,
    saturate_by_tree_search,
)
from reporting import Rows, head, parser_of, write_page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

Row = dict[str, Any]

# Of the hill climbing, whose budget is time.
_ROUNDS = 3
_MANY = 100_000


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--match", default="", help="only models with this text")
    parser.add_argument(
        "--methods", nargs="+", default=list(_METHODS), help="only these"
    )
    parser.add_argument("--estimator", default="operators", help="the cost")
    parser.add_argument("--steps", type=int, default=100, help="modules to expand")
    parser.add_argument("--seconds", type=float, default=300, help="of each search")
    parser.add_argument("--nodes", type=int, default=5_000, help="of an e-graph")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--results", type=Path, default=Path("build/substitution.jsonl")
    )
    parser.add_argument(
        "--search-only", action="store_true", help="measure nothing in this run"
    )
    return parser.parse_args()


def programs(kind: str) -> dict[str, Any]:
    """Programs by name: models of the papers ("models"), or these at other "sizes".

    "workloads": Constable's; of its ten, BERT is among the models.
    """
    import models as own
    import workloads

    others = dict(workloads.PROGRAMS)
    bert = others.pop("bert, training step")
    del others["pooling, training step"]  # is ours
    kinds: dict[str, dict[str, Any]] = {
        "models": own.PROGRAMS | {"bert": bert},
        "sizes": own.OTHER_SIZES,
        "workloads": others,
    }
    return kinds[kind]


def models(
    match: str = "", *, kinds: Sequence[str] = ("models",)
) -> dict[str, tuple[hloenv.HloModule, list[Any]]]:
    """The models by name, with calls inlined, and simplified by XLA; their arguments.

    Equal operations are one, so that products of one array have the same operand.
    The weights of a model are constants, as for TASO: what is done to them alone is
    done once. The workloads, most of them training steps, have them as arguments. On
    random inputs the output of a deep network is often NaN.
    """
    import jax

    with_weights = {"bert", *programs("workloads")}
    chosen = {name: make for kind in kinds for name, make in programs(kind).items()}
    found = {}
    for name, (_, make) in chosen.items():
        if match in name:
            run, arguments = make()
            if name not in with_weights:  # the first argument has the weights
                run, arguments = partial(run, arguments[0]), arguments[1:]
            module = hloenv.HloModule.from_jax(run, *arguments)
            # Broadcasts as rules know them: of a vector along one dimension.
            simple = hloenv.run_passes(module, "call-inliner", "algsimp", "cse").module
            found[name] = simple, [np.asarray(x) for x in jax.tree.leaves(arguments)]
    return found


def by_greedy(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
    """The cheapest candidate, until none is cheaper."""
    budget = Budget(args.steps, args.seconds)
    return _of_search(greedy(module, get_estimator(args.estimator), budget=budget))


def by_timed_greedy(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
    """The same by times of kernels after XLA's passes, in twice the time."""
    budget = Budget(args.steps, 2 * args.seconds)
    with open_estimator("kernel-cache") as cost:
        return _of_search(greedy(module, cost, budget=budget))


def by_backtracking(
    alpha: float,
) -> Callable[[hloenv.HloModule, argparse.Namespace], Row]:
    """TASO's search."""

    def run(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
        budget = Budget(args.steps, args.seconds)
        cost = get_estimator(args.estimator)
        return _of_search(backtracking(module, cost, alpha=alpha, budget=budget))

    return run


def by_hill_climbing(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
    """Our own search, on the decisions of several rounds of substitutions at once.

    A round has every substitution of the module that the round before left.
    """
    game = Game(module, [DecisionPoint(DEFAULT_PASSES)] * _ROUNDS)
    search = get_search("hill-climb", game, seed=args.seed)
    budget = SearchBudget(_MANY, measurements=0, seconds=args.seconds)
    run_search(search, get_estimator(args.estimator), budget=budget)
    prefix, _ = search.best or (game.complete(), 0.0)
    taken = sum(int(np.count_nonzero(each)) for each in prefix)
    failures = sum(seconds == float("inf") for _, seconds in search.history)
    return {
        "module": game.play(prefix),
        "detail": f"{len(search.history)} modules, {taken} substitutions",
        "failures": failures,
    }


def _of_search(found: Any) -> Row:
    return {
        "module": found.module,
        "detail": f"{found.num_steps} modules, {len(found.path)} substitutions",
        "failures": found.num_failed,
    }


def by_saturation(
    method: Any,
) -> Callable[[hloenv.HloModule, argparse.Namespace], Row]:
    """Equality saturation."""

    def run(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
        limits = SaturationLimits(
            nodes=args.nodes, seconds=args.seconds, extraction_seconds=args.seconds
        )
        return _of_egraph(saturate(module, method=method, limits=limits))

    return run


def by_tree_search(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
    """An e-graph whose rules are chosen one by one, as in Hartmann et al."""
    limits = SaturationLimits(
        nodes=args.nodes, seconds=args.seconds, extraction_seconds=args.seconds
    )
    search = TreeSearch(seed=args.seed)
    return _of_egraph(saturate_by_tree_search(module, limits=limits, search=search))


def _of_egraph(found: Saturated) -> Row:
    saturated = "saturated" if found.is_saturated else "stopped"
    return {
        "module": found.module,
        "detail": f"{found.num_nodes} nodes, {saturated}, by {found.extraction.method}",
        "failures": 0,
    }


def by_enzyme(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
    """Enzyme-JAX's whole pipeline, which has its own patterns."""
    del args
    changed = enzyme.optimize(module)
    count = changed.instruction_count
    return {"module": changed, "detail": f"{count} instructions", "failures": 0}


def by_enzyme_greedy(module: hloenv.HloModule, args: argparse.Namespace) -> Row:
    """Greedy search over the patterns of Enzyme-JAX that match at first, one by one.

    By times of kernels, in twice the time; finding the patterns comes on top.
    """
    names = [n for n in enzyme.optimize_each(module) if n != enzyme.FOLDING]
    if not names:
        return {"module": module, "detail": "no pattern matches", "failures": 0}
    budget = Budget(args.steps, 2 * args.seconds)
    enzyme.register()
    single = hloenv.Pass("enzyme", each=True, patterns=";".join(names))
    with open_estimator("kernel-cache") as cost:
        expander = Expander([single])
        found = _of_search(greedy(module, cost, expander=expander, budget=budget))
    return found | {"detail": f"{found['detail']}, of {len(names)} patterns"}


_METHODS = {
    "greedy": by_greedy,
    "greedy, timed kernels": by_timed_greedy,
    "backtracking 1.0": by_backtracking(1.0),
    "backtracking 1.05": by_backtracking(1.05),
    "hill climbing": by_hill_climbing,
    "egglog, greedy": by_saturation("greedy"),
    "egglog, ILP": by_saturation("ilp"),
    "egglog by MCTS, ILP": by_tree_search,
    "Enzyme-JAX": by_enzyme,
    "greedy, Enzyme's patterns": by_enzyme_greedy,
}


# What the rows depend on beside model and method.
_SETTINGS = (*("estimator", "steps", "seconds", "nodes", "seed"),)


def search_one(
    name: str, module: hloenv.HloModule, method: str, args: argparse.Namespace
) -> Row:
    """One method on one model: its module, and the estimated speed-up."""
    row: Row = {
        "model": name,
        "method": method,
        "error": "",
        "sources": args.sources,
    }
    started = time.perf_counter()
    try:
        found = _METHODS[method](module, args)
        row |= {"detail": found["detail"], "failures": found["failures"]}
        row["seconds"] = time.perf_counter() - started
        before, after = get_estimator(args.estimator).estimate_many(
            [module, found["module"]]
        )
        row["estimated"] = before.seconds / after.seconds
        path = _module_path(args, name, method)
        path.parent.mkdir(parents=True, exist_ok=True)
        found["module"].save(path)
    except (HloEnvError, ImportError) as error:
        row["error"] = f"{type(error).__name__}: {error}"[:200]
    return row


def measure_one(
    row: Row, module: hloenv.HloModule, inputs: list[Any], args: argparse.Namespace
) -> Row:
    """The row with the measured speed-up."""
    try:
        path = _module_path(args, row["model"], row["method"])
        found = hloenv.HloModule.from_file(path)
        measured = hloenv.measure([found], baseline=module, inputs=inputs)[0]
    except HloEnvError as error:
        return {**row, "measured": None, "error": f"{error}"[:200]}
    if not measured.is_ok:
        return {**row, "measured": None, "error": measured.error.message}
    return {
        **row,
        "measured": measured.speedup,
        "interval": list(measured.speedup_interval),
    }


def _module_path(args: argparse.Namespace, name: str, method: str) -> Path:
    words = re.sub(r"[^\w.]+", "-", f"{name} {method}")
    return Path(args.results).with_suffix("") / f"{words}.hlo"


def page(rows: Sequence[Row], args: argparse.Namespace) -> list[str]:
    """The page: one table of measured speed-ups, and one with the rest."""
    methods = [each for each in _METHODS if each in args.methods]
    names = list(dict.fromkeys(row["model"] for row in rows))
    by_key = {(row["model"], row["method"]): row for row in rows}
    lines = [
        *head("Substitutions"),
        f"* cost: `{args.estimator}`; budget of each search: {args.steps} modules and "
        f"{args.seconds:g} s; of greedy by timed kernels, whose cost are these, twice "
        "the time; of hill climbing, the time alone",
        f"* searches of: {', '.join(sorted({row['sources'] for row in rows}))}",
        "",
        "Measured time of the module over that of the method's, both compiled by XLA's "
        "CPU pipeline; above 1 is faster.",
        "",
        "| model | " + " | ".join(methods) + " | best |",
        "| --- " * (len(methods) + 2) + "|",
    ]
    for name in names:
        cells = [_cell(by_key.get((name, method))) for method in methods]
        found = [row for row in rows if row["model"] == name and row.get("measured")]
        best = max(found, key=lambda row: row["interval"][0], default=None)
        is_gain = best is not None and best["interval"][0] > 1
        cells.append(str(best["method"]) if best is not None and is_gain else "none")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for title, chosen in (("all", names), ("transformers", transformers(names))):
        means = [_mean(by_key, chosen, method) for method in methods]
        lines.append(f"| geometric mean, {title} | " + " | ".join(means) + " | |")
    lines += [
        "",
        "A failure counts as 1; best: that with the highest interval, if above 1.",
        "",
        "| model | method | estimated | found | failures | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row["error"]:
            text = f"| {' '.join(row['error'].split())} | | |"
            lines.append(f"| {row['model']} | {row['method']} | {text}")
            continue
        lines.append(
            f"| {row['model']} | {row['method']} | {row['estimated']:.3f} | "
            f"{row['detail']} | {row['failures']} | {row['seconds']:.1f} |"
        )
    failed = sum(bool(row["error"]) for row in rows)
    return [*lines, "", f"{len(rows)} runs, of which {failed} failed."]


def transformers(names: Sequence[str]) -> list[str]:
    """Those of the models that are transformers."""
    every = programs("models") | programs("workloads")
    return [name for name in names if "transformer" in every[name][0]]


def _mean(rows: dict[tuple[str, str], Row], names: Sequence[str], method: str) -> str:
    found = [rows[name, method] for name in names if (name, method) in rows]
    found = [row for row in found if row["error"] or "measured" in row]
    speedups = [row.get("measured") or 1.0 for row in found]
    return f"{geometric_mean(speedups):.3f}" if speedups else ""


def _cell(row: Row | None) -> str:
    if row is None or not (row["error"] or "measured" in row):
        return ""
    if row.get("measured") is None:
        return "failed"
    low, high = row["interval"]
    return f"{row['measured']:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Runs what is missing, and writes the page."""
    args = parse_arguments()
    args.sources = str(commit_of(source_root()))
    settings = json.dumps(
        [bench_version(), *(getattr(args, name) for name in _SETTINGS)], default=str
    )
    results = Rows(args.results, "model", "method", "settings")
    for name, (module, inputs) in models(
        args.match, kinds=("models", "workloads")
    ).items():
        for method in args.methods:
            row = results.get(name, method, settings)
            if row is None:
                row = search_one(name, module, method, args) | {"settings": settings}
                results.add(row)
                print(name, method, row, flush=True)
            if not (args.search_only or row["error"] or "measured" in row):
                row = measure_one(row, module, inputs, args)
                results.add(row)
                print(name, method, row, flush=True)
    rows = [row for row in results.all() if row.get("settings") == settings]
    write_page(page(rows, args), args.doc)


if __name__ == "__main__":
    main()
