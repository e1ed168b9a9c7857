#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The experiments with pass orders: trains agents, compares them, writes the page.

    python scripts/reports/run_pass_order.py --runs runs/pass_order --jobs 2
    python scripts/reports/run_pass_order.py --runs runs/pass_order --only headline \
        --time
    python scripts/reports/run_pass_order.py --runs runs/pass_order --steps 0 \
        --doc docs/results/pass_order.md

Each run has a folder, as of `hloenv train`; what is there is not made again, and a run
that was interrupted goes on. --time measures run times, and needs a quiet machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._files import replacing
from hloenv.bench.version import bench_version
from hloenv.envs import find_benchmarks
from hloenv.envs.base import CompilerEnv
from hloenv.envs.pass_memo import Node, without_dead_code
from hloenv.errors import HloEnvError
from hloenv.learn import (
    BestOrder,
    TrainConfig,
    beam_search,
    fixed_order,
    greedy_search,
    load_agent,
    order_passes,
    random_search,
)
from hloenv.learn.baselines import op_count
from hloenv.measurement.measurer import Measurer
from pass_order_page import digest, write_page
from reporting import parser_of

HEADLINE = "imitation"
# Name of a run: what differs from the defaults of `TrainConfig`, by which an agent
# imitates the fixed order before it learns.
_SCRATCH = {"imitate": ""}
VARIANTS: dict[str, dict[str, Any]] = {
    HEADLINE: {},
    "maskable-ppo": _SCRATCH,
    "ppo": _SCRATCH | {"algorithm": "ppo"},
    "a2c": _SCRATCH | {"algorithm": "a2c"},
    "trpo": _SCRATCH | {"algorithm": "trpo"},
    "dqn": _SCRATCH | {"algorithm": "dqn"},
    "ppo, shaped": _SCRATCH | {"algorithm": "ppo", "shaping": True},
    "ppo, cost for the critic": _SCRATCH
    | {"algorithm": "ppo", "critic_observation": "cost"},
    "ppo, both": _SCRATCH
    | {"algorithm": "ppo", "shaping": True, "critic_observation": "cost"},
    "graph": _SCRATCH | {"observation": "graph_padded+pass_counts"},
    "trained on GPT-2": _SCRATCH
    | {
        "train": "hloenv://gpt2-train/train?max_instructions=3000",
        "validation": "hloenv://gpt2-train/validation?max_instructions=3000",
    },
    # Each new kernel is compiled and timed: fewer steps, on smaller modules.
    "kernel cache": {
        "reward": "kernel_cache",
        "train": "hloenv://all/train?max_instructions=200",
        "validation": "hloenv://all/validation?max_instructions=200",
        "steps": 10_000,
    },
}
EXPERIMENTS = {
    "algorithms": ["maskable-ppo", "ppo", "a2c", "trpo", "dqn"],
    "shaping": ["ppo", "ppo, shaped", "ppo, cost for the critic", "ppo, both"],
    "headline": [HEADLINE, "maskable-ppo", "trained on GPT-2"],
    "kernel-cache": [HEADLINE, "kernel cache"],
    "graph": ["maskable-ppo", "graph"],
}
# Whose modules are timed.
TIMED = (HEADLINE, "kernel cache")
# Held out: other repositories than those of train.
TEST_SETS = {
    "gpt2-train": "hloenv://gpt2-train/test?max_instructions=3000",
    "diverse": "hloenv://diverse/test?max_instructions=3000",
    "all": "hloenv://all/test?max_instructions=1500",
}
MAX_TEST = 60
# Modules on which the best fixed order is chosen, edits that are tried, and rounds.
MAX_ORDER_MODULES, MAX_EDITS, MAX_ROUNDS = 80, 300, 25


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=EXPERIMENTS,
        default=list(EXPERIMENTS),
        help="experiments (default: all)",
    )
    parser.add_argument("--steps", type=int, default=100_000, help="0: train nothing")
    parser.add_argument("--seeds", type=int, default=3, help="of each variant")
    parser.add_argument("--headline-seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="trained at a time")
    parser.add_argument("--time", action="store_true", help="measure run times")
    return parser.parse_args()


def main() -> None:
    """Trains, evaluates, measures and writes what the arguments ask for."""
    args = parse_arguments()
    args.runs.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for each in args.only for name in EXPERIMENTS[each])
    wanted = [
        (name, seed)
        for name in names
        for seed in range(args.headline_seeds if name == HEADLINE else args.seeds)
    ]
    if args.steps > 0:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda each: train(args, *each), wanted))
    sets = test_sets()
    with replacing(args.runs / "sets.json") as draft:
        draft.write_text(json.dumps(sets, indent=1))
    uris = list(dict.fromkeys(uri for each in sets.values() for uri in each))
    searched = fill(args.runs / "searches.json", uris, searching(args.runs))
    # On the others, such as those that a pass fails on, there is nothing to compare.
    uris = [uri for uri in uris if "error" not in searched[uri]]
    for name, seed in wanted:
        folder = args.runs / f"{name}-{seed}"
        if (folder / "best.safetensors").exists():
            agent = digest(folder / "best.safetensors")
            fill(folder / "test.json", uris, testing(folder, searched), agent)
    if args.time:
        for name in TIMED:
            folder = args.runs / f"{name}-0"
            if not (folder / "test.json").exists():
                continue
            tested = json.loads((folder / "test.json").read_text())
            own = [uri for uri in uris if "error" not in tested.get(uri, {"error": ""})]
            agent = digest(folder / "best.safetensors")
            fill(folder / "times.json", own, timing(folder, searched), agent)
    if args.doc is not None:
        shown = {name: EXPERIMENTS[name] for name in args.only}
        write_page(args.doc, args.runs, shown, HEADLINE)


def fill(
    path: Path, uris: Iterable[str], make: Callable[[str], Any], of: str = ""
) -> dict[str, Any]:
    """The content of a JSON file by URI; what is not there yet is made and added.

    Args:
        path: of the file.
        uris: that it is to have.
        make: the value of one.
        of: identifies what the values are of, such as a checkpoint. Those of another,
            or of other sources of hloenv, are made again.
    """
    made_by = f"{bench_version()} {of}"
    by = path.with_suffix(".by.txt")
    is_same = by.exists() and by.read_text() == made_by
    content: dict[str, Any] = {}
    if path.exists() and is_same:
        content = json.loads(path.read_text())
    for uri in uris:
        if uri in content:
            continue
        try:
            content[uri] = make(uri)
        except HloEnvError as error:
            content[uri] = {"error": f"{type(error).__name__}: {error}"}
        print(path.parent.name, uri, flush=True)
        with replacing(path) as draft:
            draft.write_text(json.dumps(content, indent=1))
        # Only then: what an interrupted run has left is of what was there before.
        by.write_text(made_by)
    return content


def train(args: argparse.Namespace, name: str, seed: int) -> None:
    """Trains one agent by `hloenv train`, on one core."""
    folder = args.runs / f"{name}-{seed}"
    folder.mkdir(exist_ok=True)
    config = TrainConfig.from_dict({"steps": args.steps, **VARIANTS[name]})
    config = dataclasses.replace(config, seed=seed)
    curve = folder / "curve.csv"
    if (folder / "config.json").exists():
        config.check_folder(folder, resume=True)  # it is of this configuration
    if curve.exists():
        last = curve.read_text().splitlines()[-1]
        if int(last.partition(",")[0]) >= config.steps:
            return
    path = folder / "given.toml"
    path.write_text(as_toml(config.to_dict()))
    words = ["train", "pass-order", str(path), "-o", str(folder)]
    if (folder / "config.json").exists():
        words.append("--resume")
    with (folder / "log.txt").open("a") as log:
        subprocess.run(
            [sys.executable, "-m", "hloenv", *words],
            check=True,
            stdout=log,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    print(f"trained {name}, seed {seed}", flush=True)


def as_toml(values: dict[str, Any]) -> str:
    """TOML of a configuration: JSON's scalars and lists are TOML's."""
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if k not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def test_sets() -> dict[str, list[str]]:
    """URIs of the test modules: of each set at most `MAX_TEST`, drawn.

    Of programs at several sizes, one: those with as many instructions of each opcode.
    """
    sets = {}
    for name, uri in TEST_SETS.items():
        found = find_benchmarks(uri)
        drawn: dict[tuple[tuple[str, int], ...], int] = {}
        for i in np.random.default_rng(0).permutation(len(found)):
            counts = without_dead_code(found[i].load()).opcode_counts()
            drawn.setdefault(tuple(sorted(counts.items())), int(i))
            if len(drawn) == MAX_TEST:
                break
        sets[name] = [found[i].uri for i in sorted(drawn.values())]
    return sets


def searching(runs: Path) -> Callable[[str], dict[str, Any]]:
    """What searches without learning make of a module."""
    env = TrainConfig().make_env()
    names = fill(
        runs / "order.json",
        ["order"],
        lambda _: [env.action_name(i) for i in best_order(env)],
    )["order"]
    numbers = {env.action_name(i): i for i in range(len(env.passes))}
    order = [numbers[name] for name in names]

    def search(uri: str) -> dict[str, Any]:
        env.reset(options={"benchmark": uri})
        greedy = greedy_search(env)
        budget = greedy.num_steps
        found = {
            "default": fixed_order(env, default_order(env), max_rounds=1),
            "fixed": fixed_order(env, order),
            "greedy": greedy,
            "random": median_order(
                random_search(env, budget, seed=i) for i in range(3)
            ),
            "beam": beam_search(env, 3 * budget, width=4),
        }
        methods = {name: described(each) for name, each in found.items()}
        return {"start": {"op_count": env.start.op_count}} | methods

    return search


def median_order(found: Iterable[BestOrder]) -> BestOrder:
    """The middle one of several, by what is left."""
    ordered = sorted(found, key=lambda each: each.node.op_count)
    return ordered[len(ordered) // 2]


def default_order(env: CompilerEnv) -> list[int]:
    """The target-independent passes that XLA's CPU compiler runs on the module.

    As interception shows them, repetitions included, up to the assignment of layouts.
    """
    numbers = {env.action_name(i): i for i in range(len(env.passes))}
    order = []
    with hloenv.intercept(env.module_of(env.start)) as pipeline:
        for stage in pipeline:
            if stage.name == "layout-assignment":
                break
            if stage.name in numbers:
                order.append(numbers[stage.name])
            stage.run()
    return order


def best_order(env: CompilerEnv) -> list[int]:
    """The order that leaves the fewest instructions on train, run to a fixed point.

    First the order that grows by the best next pass, then `MAX_EDITS` random edits, of
    which those that improve it are kept.
    """
    found = env.benchmarks
    chosen = np.random.default_rng(1).permutation(len(found))[:MAX_ORDER_MODULES]
    nodes = []
    for i in sorted(chosen):
        env.reset(options={"benchmark": found[i].uri})
        nodes.append(env.node)
    order, starts = list[int](), nodes
    while True:
        scores = []
        for number in range(len(env.passes)):
            following = [env.following(number, node) for node in nodes]
            scores.append(np.mean([np.log(each.op_count) for each in following]))
        best = int(np.argmin(scores))
        if scores[best] >= np.mean([np.log(node.op_count) for node in nodes]) - 1e-9:
            break
        order.append(best)
        nodes = [env.following(best, node) for node in nodes]
    random = np.random.default_rng(2)
    score = left_at_fixed_point(env, order, starts)
    for _ in range(MAX_EDITS):
        changed = edited(order, len(env.passes), random)
        if changed and (other := left_at_fixed_point(env, changed, starts)) < score:
            order, score = changed, other
    return order


def edited(order: list[int], num_passes: int, random: np.random.Generator) -> list[int]:
    """The order with a pass inserted, replaced, left out, or moved."""
    changed = list(order)
    kind, position = random.integers(4), int(random.integers(len(order) + 1))
    if kind == 0 or position == len(order):
        changed.insert(position, int(random.integers(num_passes)))
    elif kind == 1:
        changed[position] = int(random.integers(num_passes))
    else:
        moved = changed.pop(position)
        if kind == 3:
            changed.insert(int(random.integers(len(changed) + 1)), moved)
    return changed


def left_at_fixed_point(
    env: CompilerEnv, order: list[int], starts: Sequence[Node]
) -> float:
    """Mean of the logs of what an order leaves, run until nothing changes."""
    logs = []
    for start in starts:
        node = start
        for _ in range(MAX_ROUNDS):
            before = node
            for number in order:
                node = env.following(number, node)
            if node.fingerprint == before.fingerprint:
                break
        logs.append(np.log(max(node.op_count, 1)))
    return float(np.mean(logs))


def testing(folder: Path, searched: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """What an agent makes of a module: in one episode, and in greedy's steps."""
    agent = load_agent(folder / "best.safetensors")
    env = agent.config.make_env()

    def test(uri: str) -> dict[str, Any]:
        budget = searched[uri]["greedy"]["steps"]
        kinds = {
            "one": {"budget": None, "max_episodes": 1},
            "equal": {"budget": budget},
        }
        return {
            kind: described(order_passes(agent, uri, score=op_count, env=env, **limits))
            for kind, limits in kinds.items()
        } | {"own": described(order_passes(agent, uri, budget=budget, env=env))}

    return test


def described(found: BestOrder) -> dict[str, Any]:
    """JSON of what was found."""
    return {
        "op_count": found.node.op_count,
        "steps": found.num_steps,
        "passes": found.passes,
    }


def timing(folder: Path, searched: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Run times after the orders of default and agent, in turns."""
    agent = load_agent(folder / "best.safetensors")
    tested = json.loads((folder / "test.json").read_text())

    def time(uri: str) -> dict[str, Any]:
        module = find_benchmarks(uri)[0].load()
        passes = agent.config.make_env(uri).passes
        orders = {
            "default": searched[uri]["default"]["passes"],
            "agent": tested[uri]["own"]["passes"],
        }
        modules = {}
        for name, order in orders.items():
            modules[name] = without_dead_code(module)
            for number in order:
                changed = hloenv.run_passes(modules[name], passes[number]).module
                modules[name] = without_dead_code(changed)
        with Measurer() as measurer:
            measured = measurer.measure(list(modules.values()), baseline=module)
        result: dict[str, Any] = {}
        for name, each in zip(modules, measured, strict=True):
            result[name] = {
                "speedup": each.speedup,
                "interval": each.speedup_interval,
                "baseline_s": each.baseline_median_ns * 1e-9,
                "error": "" if each.error is None else each.error.message,
            }
        return result

    return time


if __name__ == "__main__":
    main()
