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
import functools
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hloenv
from hloenv._files import replacing
from hloenv.bench.version import bench_version
from hloenv.envs import find_benchmarks
from hloenv.envs.base import CompilerEnv
from hloenv.envs.pass_memo import without_dead_code
from hloenv.errors import HloEnvError
from hloenv.learn import (
    Agent,
    TrainConfig,
    load_agent,
    order_passes,
)
from hloenv.learn.baselines import op_count
from hloenv.learn.training import BEST
from hloenv.runtime.machine import this_machine
from pass_order_page import write_page
from pass_order_results import digest, is_trained
from pass_order_searches import (
    MAX_EDITS,
    MAX_ORDER_MODULES,
    MAX_ROUNDS,
    best_order,
    described,
    search_module,
    usual_env,
)
from pass_order_times import RATES, rate_of, time_module
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
    # Steps with graphs take ten times as long.
    "graph": _SCRATCH | {"observation": "graph_padded+pass_counts", "steps": 25_000},
    "counts, as many steps": _SCRATCH | {"steps": 25_000},
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
        "steps": 60_000,
    },
}
EXPERIMENTS = {
    "algorithms": ["maskable-ppo", "ppo", "a2c", "trpo", "dqn"],
    "shaping": ["ppo", "ppo, shaped", "ppo, cost for the critic", "ppo, both"],
    "headline": [HEADLINE, "maskable-ppo", "trained on GPT-2"],
    "kernel-cache": [HEADLINE, "kernel cache"],
    "graph": ["counts, as many steps", "graph"],
}
# Whose modules are timed, and of how many seeds.
TIMED = {HEADLINE: 1, "kernel cache": 3}
# Held out: other repositories than those of train.
TEST_SETS = {
    "gpt2-train": "hloenv://gpt2-train/test?max_instructions=3000",
    "diverse": "hloenv://diverse/test?max_instructions=3000",
    "all": "hloenv://all/test?max_instructions=1500",
}
MAX_TEST = 60


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
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--time", action="store_true", help="measure run times")
    parser.add_argument("--timed", type=int, default=72, help="modules to measure")
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
    order = fixed_order_of(args.runs)
    search = functools.partial(search_module, order)
    searched = fill(
        args.runs / "searches.json", uris, search, "+".join(order), jobs=args.jobs
    )
    # On the others, such as those that a pass fails on, there is nothing to compare.
    uris = [uri for uri in uris if "error" not in searched[uri]]
    budgets = {uri: searched[uri]["greedy"]["steps"] for uri in uris}
    for name, seed in wanted:
        folder = args.runs / f"{name}-{seed}"
        if is_trained(folder):
            test = functools.partial(test_module, folder, budgets)
            steps = hashlib.sha256(json.dumps(budgets).encode()).hexdigest()[:6]
            of = f"{steps} {digest(folder / BEST)}"
            fill(folder / "test.json", uris, test, of, jobs=args.jobs)
    if args.time:
        measure_times(args, uris, searched)
        fill(args.runs / "rates.json", RATES, rate_of, this_machine().id)
    if args.doc is not None:
        shown = {name: EXPERIMENTS[name] for name in args.only}
        write_page(args.doc, args.runs, shown)


def fill(
    path: Path,
    keys: Iterable[str],
    make: Callable[[str], Any],
    of: str = "",
    jobs: int = 1,
) -> dict[str, Any]:
    """The content of a JSON file by key; what is not there yet is made and added.

    Args:
        path: of the file.
        keys: that it is to have, such as URIs.
        make: the value of one.
        of: identifies what the values are of, such as a checkpoint. Those of another,
            or of other sources or modules, are made again; so are errors.
        jobs: processes that make them.
    """
    made_by = f"{bench_version()} {sources_of_values()} {of}"
    by = path.with_suffix(".by.txt")
    is_same = by.exists() and by.read_text() == made_by
    content: dict[str, Any] = {}
    if path.exists() and is_same:
        content = json.loads(path.read_text())
    missing = [key for key in keys if "error" in content.get(key, {"error": ""})]
    for key, value in zip(missing, made(make, missing, jobs), strict=True):
        content[key] = value
        print(path.parent.name, key, flush=True)
        with replacing(path) as draft:
            draft.write_text(json.dumps(content, indent=1))
        # Only then: what an interrupted run has left is of what was there before.
        by.write_text(made_by)
    return content


def made(
    make: Callable[[str], Any], keys: Sequence[str], jobs: int
) -> Iterable[dict[str, Any]]:
    """Values of keys, in their order; of one that fails, what the error was."""
    one = functools.partial(value_or_error, make)
    if jobs == 1:
        yield from map(one, keys)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, max(len(keys), 1)), spawn) as pool:
        yield from pool.map(one, keys)


def value_or_error(make: Callable[[str], Any], key: str) -> dict[str, Any]:
    """The value of one key, made on one core."""
    torch.set_num_threads(1)
    try:
        value: dict[str, Any] = make(key)
    except HloEnvError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return value


@functools.cache
def sources_of_values() -> str:
    """Identifies the scripts of this report and the modules of the dataset."""
    scripts = Path(__file__).parent
    modules = Path(hloenv.__file__).parent / "dataset" / "files"
    paths = [
        *(scripts / f"pass_order_{each}.py" for each in ("searches", "times")),
        *sorted(modules.glob("*.parquet")),
    ]
    return "-".join(digest(path)[:6] for path in paths)


def train(args: argparse.Namespace, name: str, seed: int) -> None:
    """Trains one agent by `hloenv train`, on one core."""
    folder = args.runs / f"{name}-{seed}"
    folder.mkdir(exist_ok=True)
    config = TrainConfig.from_dict({"steps": args.steps, **VARIANTS[name]})
    config = dataclasses.replace(config, seed=seed)
    if (folder / "config.json").exists():
        config.check_folder(folder, resume=True)  # it is of this configuration
    if is_trained(folder, config.steps):
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


def fixed_order_of(runs: Path) -> list[str]:
    """Names of the passes of the best fixed order."""
    kept = f"{MAX_ORDER_MODULES} modules, {MAX_EDITS} edits, {MAX_ROUNDS} rounds"
    content = fill(
        runs / "order.json",
        ["order"],
        lambda _: {
            "passes": [usual_env().action_name(i) for i in best_order(usual_env())]
        },
        kept,
    )
    names: list[str] = content["order"]["passes"]
    return names


@functools.cache
def env_of(folder: Path) -> CompilerEnv:
    """The environment of the agent of a run."""
    return agent_of(folder).config.make_env()


@functools.cache
def agent_of(folder: Path) -> Agent:
    """The agent of a run."""
    return load_agent(folder / BEST)


def test_module(folder: Path, budgets: Mapping[str, int], uri: str) -> dict[str, Any]:
    """What an agent makes of a module: in one episode, and in greedy's steps.

    Args:
        folder: of the agent's run.
        budgets: steps of greedy search by module.
        uri: of the module.
    """
    agent, env = agent_of(folder), env_of(folder)
    env.skip_rewards()
    play = functools.partial(order_passes, agent, uri, env=env)
    tested = {
        "one": play(score=op_count, budget=None, max_episodes=1),
        "equal": play(score=op_count, budget=budgets[uri]),
    }
    if not agent.config.reward.startswith("op_count"):
        tested["own"] = play(budget=budgets[uri])
    return {kind: described(found) for kind, found in tested.items()}


def measure_times(
    args: argparse.Namespace, uris: Sequence[str], searched: Mapping[str, Any]
) -> None:
    """Measures run times after the orders of the default and of agents."""
    orders: dict[str, dict[str, list[int]]] = {
        "default": {uri: searched[uri]["default"]["passes"] for uri in uris}
    }
    agents = []
    for name, number in TIMED.items():
        for folder in (args.runs / f"{name}-{seed}" for seed in range(number)):
            if not is_trained(folder) or not (folder / "test.json").exists():
                continue
            tested = json.loads((folder / "test.json").read_text())
            orders[folder.name] = {
                uri: each.get("own", each["equal"])["passes"]
                for uri, each in tested.items()
                if "error" not in each
            }
            agents.append(f"{folder.name} {digest(folder / BEST)}")
    # A module without an order is not one that its order leaves as it is.
    complete = [uri for uri in uris if all(uri in each for each in orders.values())]
    drawn = np.random.default_rng(3).permutation(len(complete))[: args.timed]
    fill(
        args.runs / "times.json",
        [complete[i] for i in drawn],
        functools.partial(time_module, orders),
        " ".join([this_machine().id, *agents]),
    )


if __name__ == "__main__":
    main()
