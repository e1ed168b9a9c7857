#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents that substitute, on sizes and models that they were not trained on.

Agents imitate greedy searches by times of kernels, on models of `scripts/examples`:
those of *sizes* on five of them at one size, tested at other sizes; those of *models*
on some of them, tested on the others. X-RLflow's network and ours are trained alike. On
each test module an agent plays one episode, without any estimate; once more ours takes
the best of the episode's modules by times of kernels. Beside it are greedy searches by
these and by the sum of operators, from scratch: as long as our agent takes without
estimates, and without a limit. All modules are compiled, their outputs compared with
the original's, and measured beside it.

    python scripts/reports/run_generalization.py
    python scripts/reports/run_generalization.py --doc docs/results/generalization.md

Agents and rows are kept in --folder; a repeated run continues. The measurements need a
quiet machine, and so do the demonstrations, which time kernels.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.cost import get_estimator, open_estimator
from hloenv.errors import HloEnvError
from hloenv.learn import SubstitutionConfig, load_substitution_agent
from hloenv.learn.substitution_agent import SubstitutionAgent
from hloenv.learn.substitution_training import WALKS, train_substitution
from hloenv.substitution import Budget, greedy
from reporting import Row, Rows, head, parser_of, version_of_rows, write_page
from run_substitution import models

# Models that the agents of *models* are tested on: a kind of each.
_HELD_OUT = ("bert", "dall-e", "resnet-18", "squeezenet")
_AGENTS = {"shared": "shared scorer", "xrlflow": "X-RLflow's network"}
_TIMED = "shared scorer, timed kernels"
_GREEDY = "greedy, timed kernels"
_SHORT = f"{_GREEDY}, in the agent's time"
_OPERATORS = "greedy, operators"
_METHODS = (*_AGENTS.values(), _TIMED, _SHORT, _GREEDY, _OPERATORS)
_COST = "kernel-cache"
_MIN_S = 0.05  # of a search
# What agents and rows depend on beside the sources.
_SETTINGS = ("demonstrations", "epochs", "steps", "seconds", "seed")

Programs = dict[str, tuple[hloenv.HloModule, list[Any]]]


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/generalization"))
    parser.add_argument("--demonstrations", type=int, default=24, help="for each agent")
    parser.add_argument("--epochs", type=int, default=30, help="of imitation")
    parser.add_argument("--steps", type=int, default=0, help="of PPO, afterwards")
    parser.add_argument("--seconds", type=float, default=60, help="of a search")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def trained(name: str, modules: Programs, kind: str, args: argparse.Namespace) -> Path:
    """The checkpoint of an agent that is trained on these modules."""
    sources = args.folder / f"{name}-{args.version}"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir(parents=True)
    for label, (module, _) in modules.items():
        module.save(sources / f"{label.replace(' ', '_').replace(',', '')}.hlo")
    folder = args.folder / f"{name}-{args.version}-{kind}"
    uri = f"hloenv://file/{sources.resolve()}"
    config = SubstitutionConfig(
        agent=kind,
        train=uri,
        validation=uri,  # the best checkpoint is chosen without the test modules
        estimator=_COST,
        demonstrations=args.demonstrations,
        imitation_epochs=args.epochs,
        steps=args.steps,
        seed=args.seed,
    )
    is_new = not (folder / "config.json").exists()
    shown = args.folder / f"{name}-{args.version}.jsonl"
    if is_new and shown.exists():  # the agents imitate the same searches
        folder.mkdir()
        shutil.copy(shown, folder / WALKS)
    train_substitution(config, folder, resume=not is_new)
    shutil.copy(folder / WALKS, shown)
    return folder / "best.safetensors"


def decided(
    module: hloenv.HloModule,
    agents: dict[str, SubstitutionAgent],
    args: argparse.Namespace,
) -> dict[str, tuple[hloenv.HloModule, float, int] | HloEnvError]:
    """What each method makes of a module, its seconds, and its substitutions."""
    found: dict[str, tuple[hloenv.HloModule, float, int] | HloEnvError] = {}
    limit = _MIN_S

    def add(method: str, run: Callable[[], Any]) -> float:
        started = time.perf_counter()
        try:
            made = run()
        except HloEnvError as error:
            found[method] = error
            return 0.0
        seconds = time.perf_counter() - started
        found[method] = made.module, seconds, len(made.path)
        return seconds

    for kind, agent in agents.items():
        seconds = add(_AGENTS[kind], partial(agent.improve, module))
        limit = max(limit, seconds) if kind == "shared" else limit
    with open_estimator(_COST) as cost:
        add(_TIMED, partial(agents["shared"].improve, module, cost))
    for method, seconds in ((_SHORT, limit), (_GREEDY, args.seconds)):
        # Without kernels that another method has timed.
        with open_estimator(_COST) as cost:
            budget = Budget(seconds=seconds)
            add(method, lambda: greedy(module, cost, budget=budget))  # noqa: B023
    operators = get_estimator("operators")
    budget = Budget(seconds=args.seconds)
    add(_OPERATORS, lambda: greedy(module, operators, budget=budget))
    return found


def measured(
    module: hloenv.HloModule, found: hloenv.HloModule, inputs: list[Any]
) -> Row:
    """The speed-up of a module over the original, with its interval."""
    if found.fingerprint() == module.fingerprint():
        return {"speedup": 1.0, "interval": [1.0, 1.0], "error": ""}
    result = hloenv.measure([found], baseline=module, inputs=inputs)[0]
    if not result.is_ok:
        return {"speedup": 1.0, "interval": [1.0, 1.0], "error": result.error.message}
    return {
        "speedup": result.speedup,
        "interval": list(result.speedup_interval),
        "error": "",
    }


def rows_of(
    name: str, train: Programs, test: Programs, args: argparse.Namespace
) -> list[Row]:
    """Trains the agents of an experiment, and tests what has no row yet."""
    version = args.version
    results = Rows(args.folder / "rows.jsonl", "experiment", "program", "version")
    paths = {kind: trained(name, train, kind, args) for kind in _AGENTS}
    agents = {kind: load_substitution_agent(path) for kind, path in paths.items()}
    for agent in agents.values():  # the first episode of a process takes longer
        agent.improve(next(iter(train.values()))[0])
    for label, (module, inputs) in test.items():
        if results.get(name, label, version) is not None:
            continue
        row: Row = {"experiment": name, "program": label, "version": version}
        for method, made in decided(module, agents, args).items():
            if isinstance(made, HloEnvError):
                row[method] = {"error": f"{type(made).__name__}: {made}"[:200]}
                continue
            changed, seconds, count = made
            row[method] = measured(module, changed, inputs)
            row[method] |= {"seconds": seconds, "substitutions": count}
        results.add(row)
        print(json.dumps(row), flush=True)
    return [row for row in results.all() if row.get("version") == version]


def lines_of(title: str, rows: Sequence[Row]) -> list[str]:
    """The tables of one experiment."""
    cells = []
    for row in rows:
        cells.append((row["program"], *(_cell(row, method) for method in _METHODS)))
    means = [
        f"{geometric_mean([_speedup(row, method) for row in rows]):.3f}"
        for method in _METHODS
    ]
    seconds = [
        f"{math.fsum(row[method].get('seconds', 0) for row in rows):.1f} s"
        for method in _METHODS
    ]
    cells += [
        ("geometric mean", *means),
        ("searching, all modules", *seconds),
    ]
    lines = table(("program", *_METHODS), cells, "lrrrrrr")
    return ["", f"## {title}", "", *lines]


def _speedup(row: Row, method: str) -> float:
    return float(row[method].get("speedup", 1.0))


def _cell(row: Row, method: str) -> str:
    found = row[method]
    if found["error"]:
        return "failed"
    if not found["substitutions"]:
        return "nothing"
    low, high = found["interval"]
    return f"{found['speedup']:.3f} ({low:.3f} to {high:.3f})"


def page(rows: Sequence[Row], args: argparse.Namespace) -> list[str]:
    """The page."""
    lines = [
        *head("Substitutions on sizes and models that are new", rows),
        f"* {args.demonstrations} greedy searches for each agent, by times of kernels, "
        f"{args.epochs} passes over them, {args.steps} steps of PPO; seed {args.seed}",
        f"* searches of {args.seconds:g} s at most, or as long as the shared scorer "
        "takes without estimates; measured time of the module over that of what the "
        "method made, both compiled by XLA's CPU pipeline, with its 95 % interval; "
        "failures count as 1",
    ]
    for name, title in _EXPERIMENTS.items():
        lines += lines_of(title, [row for row in rows if row["experiment"] == name])
    return lines


_EXPERIMENTS = {
    "sizes": "Trained at one size, tested at others",
    "models": "Trained on some models, tested on others",
}


def main() -> None:
    """Trains, tests and writes the page."""
    args = parse_arguments()
    settings = {name: getattr(args, name) for name in _SETTINGS}
    args.version = version_of_rows(**settings).partition(" ")[0]
    small, large = models(), models(kinds=["sizes"])
    known = {name: each for name, each in small.items() if name not in _HELD_OUT}
    unseen = {name: each for name, each in small.items() if name in _HELD_OUT}
    resized = {name.partition(",")[0] for name in large}
    same = {name: each for name, each in small.items() if name in resized}
    rows_of("sizes", same, large, args)
    rows = rows_of("models", known, unseen, args)
    write_page(page(rows, args), args.doc)


if __name__ == "__main__":
    main()
