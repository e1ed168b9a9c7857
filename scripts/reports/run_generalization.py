#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents that substitute, on sizes and models that they were not trained on.

Agents imitate greedy searches by times of kernels, on models of `scripts/examples`:
those of *sizes* on all of them at one size, tested at other sizes; those of *models* on
some of them, tested on the others. X-RLflow's network and ours are trained alike. On
each test module an agent plays one episode, without any estimate; beside it are greedy
searches by times of kernels and by the sum of operators, from scratch: as long as our
agent takes, and without a limit. All modules are compiled, their outputs compared with
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
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.cost import get_estimator, open_estimator
from hloenv.errors import HloEnvError
from hloenv.learn import SubstitutionConfig, load_substitution_agent
from hloenv.learn.substitution_agent import SubstitutionAgent
from hloenv.learn.substitution_training import train_substitution
from hloenv.substitution import Budget, greedy
from reporting import Row, Rows, head, parser_of, version_of_rows, write_page
from run_substitution import models

# Models that the agents of *models* are tested on: a kind of each.
_HELD_OUT = ("bert", "dall-e", "resnet-18", "squeezenet")
_AGENTS = {"shared": "shared scorer", "xrlflow": "X-RLflow's network"}
_GREEDY = "greedy, timed kernels"
_SHORT = f"{_GREEDY}, in the agent's time"
_OPERATORS = "greedy, operators"
_METHODS = (*_AGENTS.values(), _SHORT, _GREEDY, _OPERATORS)
_COST = "kernel-cache"
_FEWEST_S = 0.05  # of a search

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
    sources = args.folder / name
    sources.mkdir(parents=True, exist_ok=True)
    for label, (module, _) in modules.items():
        module.save(sources / f"{label.replace(' ', '_').replace(',', '')}.hlo")
    folder = args.folder / f"{name}-{kind}"
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
    train_substitution(config, folder, resume=not is_new)
    return folder / "best.safetensors"


def decided(
    module: hloenv.HloModule,
    agents: dict[str, SubstitutionAgent],
    args: argparse.Namespace,
) -> dict[str, tuple[hloenv.HloModule, float, int]]:
    """What each method makes of a module, its seconds, and its substitutions."""
    found: dict[str, tuple[hloenv.HloModule, float, int]] = {}

    def add(method: str, run: Callable[[], Any]) -> None:
        started = time.perf_counter()
        made = run()
        found[method] = made.module, time.perf_counter() - started, len(made.path)

    for kind, agent in agents.items():
        add(_AGENTS[kind], lambda agent=agent: agent.improve(module))  # type: ignore[misc]
    limit = max(found[_AGENTS["shared"]][1], _FEWEST_S)
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
    version = version_of_rows(**{key: str(each) for key, each in vars(args).items()})
    results = Rows(args.folder / "rows.jsonl", "experiment", "program", "version")
    paths = {kind: trained(name, train, kind, args) for kind in _AGENTS}
    agents = {kind: load_substitution_agent(path) for kind, path in paths.items()}
    for label, (module, inputs) in test.items():
        if results.get(name, label, version) is not None:
            continue
        row: Row = {"experiment": name, "program": label, "version": version}
        try:
            made = decided(module, agents, args)
            for method, (changed, seconds, count) in made.items():
                row[method] = measured(module, changed, inputs)
                row[method] |= {"seconds": seconds, "substitutions": count}
        except HloEnvError as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
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
        f"{math.fsum(row[method]['seconds'] for row in rows if method in row):.1f} s"
        for method in _METHODS
    ]
    cells += [
        ("geometric mean", *means),
        ("searching, all modules", *seconds),
    ]
    lines = table(("program", *_METHODS), cells, "lrrrrr")
    return ["", f"## {title}", "", *lines]


def _speedup(row: Row, method: str) -> float:
    return float(row.get(method, {}).get("speedup", 1.0))


def _cell(row: Row, method: str) -> str:
    found = row.get(method)
    if found is None or found["error"]:
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
        "takes; measured time of the module over that of what the method made, both "
        "compiled by XLA's CPU pipeline, with its 95 % interval; failures count as 1",
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
    small, large = models(""), models("", others=True)
    known = {name: each for name, each in small.items() if name not in _HELD_OUT}
    unseen = {name: each for name, each in small.items() if name in _HELD_OUT}
    rows_of("sizes", small, large, args)
    rows = rows_of("models", known, unseen, args)
    write_page(page(rows, args), args.doc)


if __name__ == "__main__":
    main()
