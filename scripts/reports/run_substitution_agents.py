#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents that substitute, and what keeps them from more: an ablation.

On each transformer of `scripts/examples` an agent is trained by `hloenv train
substitution`'s code, and its likeliest episode is compiled and measured beside the
model. X-RLflow's agent and ours are compared as they are, and ours with one thing
changed at a time: what it starts from (greedy searches that it imitates), the cost
(operators, roofline, times of kernels, the module's measured time), the noise of the
reward, when it is paid (each step, each gain over the best, the end), and the actions
(fewer rules, shorter episodes). Greedy and backtracking searches are beside them.

    python scripts/reports/run_substitution_agents.py --search-only
    python scripts/reports/run_substitution_agents.py --doc page.md --plot curves.png

Rows, agents and modules are kept in --folder; a repeated run continues. The
measurements need a quiet machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.cost import get_estimator, register_estimator
from hloenv.cost.operators import OperatorSum
from hloenv.envs.rewards import get_reward, register_reward
from hloenv.errors import HloEnvError
from hloenv.learn import SubstitutionConfig
from hloenv.learn.curve import CURVE, read_curve
from hloenv.learn.substitution_training import train_substitution
from hloenv.substitution import Budget, backtracking, greedy
from reporting import Row, Rows, head, parser_of, version_of_rows, write_page
from run_generalization import measured
from run_substitution import models, transformers

_NOISE = 0.01
_SETTINGS = ("steps", "seconds")
_COST = "operators"


class NoisyOperators:
    """The sum of operators with noise, as measured times have."""

    def __init__(self, **_: Any) -> None:
        self._operators = OperatorSum()
        self._rng = np.random.default_rng(0)

    def estimate_many(self, modules: Sequence[hloenv.HloModule]) -> list[Any]:
        """Estimates of modules."""
        return [
            dataclasses.replace(
                each, seconds=each.seconds * (1 + _NOISE * self._rng.normal())
            )
            for each in self._operators.estimate_many(modules)
        ]


def _at_the_end(env: Any) -> float:
    if not env.is_over or env.error:
        return 0.0
    value = get_reward(f"estimate:{_COST}").value
    before, after = value(env, env.start), value(env, env.node)
    return math.log(before / after) if before > 0 and after > 0 else 0.0


def _register() -> None:
    register_estimator("noisy-operators", "The sum with noise.", NoisyOperators)
    register_reward(
        "at_the_end",
        "Log of the speed-up of the last module, by the sum of operators.",
        unit="natural logarithm of a speed-up",
        compute=_at_the_end,
        value=get_reward(f"estimate:{_COST}").value,
        is_terminal=True,
    )


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        asks: what it is to show.
        settings: of `SubstitutionConfig`, in place of those of the shared scorer that
            starts from nothing and is rewarded by operators.
    """

    asks: str
    settings: dict[str, Any] = field(default_factory=dict)


_ARMS = {
    "X-RLflow's agent": Arm("as in the paper", {"agent": "xrlflow"}),
    "shared scorer": Arm("ours"),
    "imitation, then PPO": Arm("start", {"demonstrations": 8}),
    "imitation alone": Arm("start", {"demonstrations": 8, "steps": 0}),
    "paid for each step": Arm("credit", {"reward": f"saved:{_COST}"}),
    "paid at the end": Arm("credit", {"reward": "at_the_end"}),
    "episodes of 10 steps": Arm("actions", {"max_steps": 10}),
    "products alone": Arm("actions", {"passes": ("reassociate", "merge-dots")}),
    "noise of 1 %": Arm("noise", {"reward": "improved:noisy-operators"}),
    "roofline": Arm("cost", {"reward": "improved:roofline", "estimator": "roofline"}),
    "times of kernels": Arm(
        "cost", {"reward": "improved:kernel-cache", "estimator": "kernel-cache"}
    ),
    "measured every 5 steps": Arm("cost", {"reward": "saved_measured:5"}),
}
_SEARCHES: dict[str, Callable[..., Any]] = {
    "greedy": greedy,
    "backtracking 1.05": backtracking,
}


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--match", default="", help="only models with this text")
    parser.add_argument(
        "--arms", nargs="+", default=list(_ARMS), choices=list(_ARMS), metavar="ARM"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=1_500, help="of PPO")
    parser.add_argument("--seconds", type=float, default=30, help="of a search")
    parser.add_argument("--folder", type=Path, default=Path("build/agents"))
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="of the curves")
    parser.add_argument(
        "--search-only", action="store_true", help="measure nothing in this run"
    )
    return parser.parse_args()


def train(
    name: str, module: hloenv.HloModule, arm: str, seed: int, args: argparse.Namespace
) -> Row:
    """An agent's likeliest episode, and how it learnt."""
    label = re.sub(r"\W+", "-", f"{name} {arm} {seed} {args.version}")
    folder = args.folder / label
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module.save(folder / "model.hlo")
    uri = f"hloenv://file/{(folder / 'model.hlo').resolve()}"
    settings = {"demonstrations": 0, "steps": args.steps} | _ARMS[arm].settings
    config = SubstitutionConfig(
        train=uri,
        validation=uri,
        num_envs=2,
        evaluate_every=max(args.steps // 6, 1),
        seed=seed,
        **settings,
    )
    started = time.perf_counter()
    agent = train_substitution(config, folder / "run")
    seconds = time.perf_counter() - started
    found = agent.improve(module, get_estimator(_COST))
    found.module.save(folder / "found.hlo")
    curve = read_curve(folder / "run" / CURVE)
    columns = ("step", "episode_return", "entropy", "score")
    return {
        "estimated": found.speedup,
        "substitutions": len(found.path),
        "seconds": seconds,
        "steps": settings["steps"],
        "found": str(folder / "found.hlo"),
        "curve": [[float(row[each]) for each in columns] for row in curve],
    }


def search(
    name: str, module: hloenv.HloModule, method: str, args: argparse.Namespace
) -> Row:
    """A search on the same cost."""
    started = time.perf_counter()
    budget = Budget(seconds=args.seconds)
    found = _SEARCHES[method](module, get_estimator(_COST), budget=budget)
    label = re.sub(r"\W+", "-", f"{name} {method} {args.version}")
    path = args.folder / f"{label}.hlo"
    found.module.save(path)
    return {
        "estimated": found.speedup,
        "substitutions": len(found.path),
        "seconds": time.perf_counter() - started,
        "steps": found.num_steps,
        "found": str(path),
        "curve": [],
    }


def page(rows: Sequence[Row], args: argparse.Namespace) -> list[str]:
    """The page."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells, how = [], []
    for method in [*_SEARCHES, *_ARMS]:
        if method not in methods:
            continue
        own = [row for row in rows if row["method"] == method]
        asks = _ARMS[method].asks if method in _ARMS else "search"
        by_model = [[row for row in own if row["model"] == name] for name in names]
        means = [_mean(each, "speedup") for each in by_model]
        known = [each for each in means if each]
        cells.append(
            (
                method,
                asks,
                *map(_cell, by_model),
                f"{geometric_mean(known):.3f}" if known else "",
                _text(_mean(own, "estimated"), ".4f"),
                f"{np.mean([row.get('substitutions', 0) for row in own]):.1f}",
                f"{np.mean([row.get('seconds', 0) for row in own]):.0f} s",
            )
        )
        learnt = [row["curve"] for row in own if len(row.get("curve", ())) > 1]
        if learnt:
            how.append((method, *_learnt(learnt)))
    columns = ("method", "shows", *names, "mean", "estimated", "substitutions", "time")
    return [
        *head("Agents that substitute", rows),
        f"* {args.steps} steps of PPO for each agent, on the model itself, 2 "
        f"environments; seeds {', '.join(map(str, args.seeds))}; cost: `{_COST}`, but "
        "where an arm says another",
        "",
        "Measured time of the module over that of the method's, both compiled by XLA's "
        "CPU pipeline, with its 95 % interval; above 1 is faster; a failure counts as "
        "1. The agent's likeliest episode counts, of its best checkpoint. `estimated`: "
        f"by `{_COST}`, geometric mean.",
        "",
        *table(columns, cells, "ll" + "r" * (len(columns) - 2)),
        "",
        "How they learn: mean return of an episode, in the unit of the reward, and "
        "entropy of a decision in nats, over the models.",
        "",
        *table(
            (
                *("agent", "return, first", "half", "last"),
                *("entropy, first", "half", "last"),
            ),
            how,
            "lrrrrrr",
        ),
    ]


def _learnt(curves: Sequence[Sequence[Sequence[float]]]) -> list[str]:
    """Returns and entropies at the first, middle and last evaluation."""
    cells = []
    for column in (1, 2):
        for part in (0.0, 0.5, 1.0):
            found = []
            for curve in curves:
                kept = [row[column] for row in curve if math.isfinite(row[column])]
                if kept:
                    found.append(kept[round(part * (len(kept) - 1))])
            cells.append(f"{np.mean(found):.4f}" if found else "")
    return cells


def _mean(rows: Sequence[Row], column: str) -> float:
    found = [row.get(column) or 1.0 for row in rows]
    return geometric_mean(found) if found else 0.0


def _text(value: float, form: str) -> str:
    return format(value, form) if value else ""


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    if any(row["error"] for row in rows):
        return "failed"
    if any("speedup" not in row for row in rows):
        return ""
    low = min(row["interval"][0] for row in rows)
    high = max(row["interval"][1] for row in rows)
    return f"{_mean(rows, 'speedup'):.3f} ({low:.3f} to {high:.3f})"


def draw(rows: Sequence[Row], path: Path) -> None:
    """The estimated speed-up of the likeliest episode over the training."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(
        1, len(names), figsize=(4.2 * len(names), 3.6), squeeze=False, sharex=True
    )
    colors = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_prop_cycle(color=colors[::2] + colors[1::2])
        for row in rows:
            if row["model"] == name and len(row.get("curve", ())) > 1:
                steps, _, _, scores = np.array(row["curve"]).T
                axis.plot(steps, scores, marker=".", label=row["method"])
        axis.set(title=name, xlabel="steps", ylabel="speed-up by the arm's cost")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, fontsize=8)
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Trains and measures what is missing, and writes the page."""
    args = parse_arguments()
    _register()
    settings = {name: getattr(args, name) for name in _SETTINGS}
    args.version = version_of_rows(**settings).partition(" ")[0]
    results = Rows(args.folder / "rows.jsonl", "model", "method", "seed", "version")
    every = models(args.match)
    for name in transformers(list(every)):
        module, inputs = every[name]
        for method in [*_SEARCHES, *args.arms]:
            for seed in args.seeds if method in _ARMS else [0]:
                row = results.get(name, method, seed, args.version)
                if row is None:
                    row = {"model": name, "method": method, "seed": seed, "error": ""}
                    row["version"] = args.version
                    try:
                        if method in _ARMS:
                            row |= train(name, module, method, seed, args)
                        else:
                            row |= search(name, module, method, args)
                    except HloEnvError as error:
                        row["error"] = f"{type(error).__name__}: {error}"[:200]
                    results.add(row)
                    print(json.dumps(row | {"curve": ""}), flush=True)
                if not (args.search_only or row["error"] or "speedup" in row):
                    found = hloenv.HloModule.from_file(row["found"])
                    row |= measured(module, found, inputs)
                    results.add(row)
    rows = [row for row in results.all() if row.get("version") == args.version]
    if args.plot:
        draw(rows, args.plot)
    write_page(page(rows, args), args.doc)


if __name__ == "__main__":
    main()
