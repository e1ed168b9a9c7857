# SPDX-License-Identifier: Apache-2.0
"""What the policies of run_learned.py owe to what: trainings that differ in one thing.

Compared by times of kernels on the validation modules that chose no checkpoint of any,
so that the test split is used for the policies alone.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hloenv._markdown import table
from hloenv.bench.statistics import clustered_interval
from hloenv.cli import main as run_command
from hloenv.cost import open_estimator
from hloenv.cost.base import Estimator
from hloenv.dataset.benchmarks import find_benchmarks
from hloenv.errors import HloEnvError
from hloenv.learn.curve import CURVE, read_curve
from hloenv.learn.gnn import GnnPolicy, load_gnn
from hloenv.learn.imitation import (
    Demonstration,
    read_demonstrations,
    write_demonstrations,
)
from hloenv.learn.ppo_run import BEST, REPORT
from hloenv.learn.rewrite_config import RewriteConfig
from hloenv.learn.rewrite_evaluation import Validation
from hloenv.learn.rewrite_training import BASELINES
from hloenv.measurement.store import Store
from hloenv.policies import get_policy
from hloenv.rewrite.game import Game
from hloenv.search import get_search
from hloenv.search.driver import Budget, run_search
from hloenv.search.spaces import get_space

# What is changed, and what that shows.
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "as trained": ("", {}),
    "one round of messages": ("network", {"rounds": 1}),
    "a quarter of the demonstrations": ("data", {"demonstrations": 20}),
    "demonstrations by roofline": ("cost", {"estimator": "roofline"}),
    "all alternatives at once": ("actions, credit", {"mode": "all"}),
    "PPO afterwards": ("reward", {"steps": 1000, "evaluate_every": 250}),
    "PPO alone": (
        "start",
        {"steps": 1000, "evaluate_every": 250, "demonstrations": 0},
    ),
}
POLICY = next(iter(ARMS))
_SEARCH = "the search that is imitated"
_DEMONSTRATIONS = "demonstrations.jsonl"
# Settings that the demonstrations depend on; the seed draws modules, too.
_SHOWN_BY = ("space", "train", "estimator", "search", "estimates")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A policy of an arm.

    Attributes:
        arm: name of the arm.
        folder: of its run.
        config: of the run.
    """

    arm: str
    folder: Path
    config: RewriteConfig

    @property
    def curve(self) -> dict[float, float]:
        """Passes and steps of the training, and the score after them."""
        config = self.config
        # Without demonstrations there are no passes over them.
        start = config.demonstrations or config.imitation_epochs
        rows = read_curve(self.folder / CURVE)
        return {float(row["step"]) - start: float(row["score"]) for row in rows}

    @property
    def seconds(self) -> float:
        """Of the training."""
        return float(read_curve(self.folder / CURVE)[-1]["seconds"])


def train(
    arm: str, seed: int, runs: Path, base: dict[str, Any], *, is_small: bool = False
) -> Trained:
    """Trains a policy, or goes on with one that is in the folder.

    Args:
        arm: of `ARMS`.
        seed: of the training.
        runs: folder of the runs.
        base: the settings of the first arm.
        is_small: whether this is a look only, with the settings of --small.

    Raises:
        SystemExit: the training fails.
    """
    name = f"seed{seed}" if arm == POLICY else f"{arm.replace(' ', '-')}-seed{seed}"
    folder = runs / name
    words = ["train", "rewrite", "-o", str(folder), "--seed", str(seed)]
    if is_small:
        words.append("--small")
    else:
        settings = base | ARMS[arm][1]
        file = runs / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())
        )
        words.append(str(file))
        _take_demonstrations(RewriteConfig.from_dict(settings | {"seed": seed}), folder)
    if (folder / "config.json").exists():
        words = [word for word in words if word != "--small"] + ["--resume"]
    if code := run_command(words):
        sys.exit(code)
    return Trained(arm, folder, RewriteConfig.of_run(folder))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{key} = {_toml(each)}' for key, each in value.items())}}}"
        )
    return json.dumps(value)


def _take_demonstrations(config: RewriteConfig, folder: Path) -> None:
    """Those of other trainings that are found in the same way, where there are some."""
    path = folder / _DEMONSTRATIONS
    if path.exists() or not config.demonstrations:
        return
    found: dict[str, Demonstration] = {}
    for file in sorted(folder.parent.glob(f"*/{_DEMONSTRATIONS}")):
        other = RewriteConfig.of_run(file.parent)
        if all(getattr(other, key) == getattr(config, key) for key in _SHOWN_BY):
            found |= read_demonstrations(file)
    if found:
        folder.mkdir(parents=True, exist_ok=True)
        write_demonstrations(path, found.values())


def base_settings(config: str | None) -> dict[str, Any]:
    """The settings of a TOML file; none without one."""
    return tomllib.loads(Path(config).read_text()) if config else {}


def section(trained: Sequence[Trained]) -> list[str]:
    """The page's part: what each training reaches, beside rules and the search."""
    config = trained[0].config
    reports = [json.loads((each.folder / REPORT).read_text()) for each in trained]
    uris = [
        uri
        for uri in reports[0]["modules"]
        if all(uri in each["modules"] for each in reports)
    ]
    with open_estimator("kernel-cache", store=Store()) as estimator:
        modules = Validation(uris, config.space, estimator)
        logs: dict[str, list[npt.NDArray[np.float64]]] = {}
        for each in trained:
            policy = GnnPolicy(load_gnn(each.folder / BEST))
            speedups = modules.score(policy).speedups
            logs.setdefault(each.arm, []).append(np.log(speedups))
        for name in BASELINES:
            logs[name] = [np.log(modules.score(get_policy(name)).speedups)]
        seeds = [each.config.seed for each in trained if each.arm == POLICY]
        logs[_SEARCH] = [_searched(modules, config, seed, estimator) for seed in seeds]
    own = np.mean(logs[POLICY], axis=0)
    rows = []
    for name, found in logs.items():
        means = [math.exp(each.mean()) for each in found]
        # Of each module, over the seeds.
        ratios = np.mean(found, axis=0) - own
        low, high = clustered_interval([np.array([each]) for each in ratios])
        seconds = [each.seconds for each in trained if each.arm == name]
        rows.append(
            [
                *(name, ARMS[name][0] if name in ARMS else ""),
                *(f"{statistics.geometric_mean(means):.3f}",),
                f"{min(means):.3f} to {max(means):.3f}" if len(means) > 1 else "",
                f"{low:.3f} to {high:.3f}" if name != POLICY else "",
                f"{statistics.mean(seconds) / 60:.1f}" if seconds else "",
            ]
        )
    columns = ("training", "shows", "speed-up", "of the seeds", "over the first")
    return [
        "## What the policy owes to what",
        "",
        f"{len(modules.uris)} modules of the validation split that chose no "
        "checkpoint: geometric mean of the speed-up over XLA's default by the times of "
        f"kernels, of {len(logs[POLICY])} seeds of each training; its ratio to the "
        "first, a 95 % interval by module; minutes of the training, without "
        "demonstrations that another one had found.",
        "",
        *table((*columns, "minutes"), rows, "llrrrr"),
    ]


def _searched(
    modules: Validation, config: RewriteConfig, seed: int, estimator: Estimator
) -> npt.NDArray[np.float64]:
    """Logarithms of what the search of the demonstrations gains; 0 where it fails."""
    logs = []
    for uri in modules.uris:
        game = Game(find_benchmarks(uri)[0].load(), get_space(config.space).stops)
        search = get_search(config.search, game, seed=seed)
        try:
            found = run_search(search, estimator, budget=Budget(config.estimates, 0))
        except HloEnvError:
            logs.append(0.0)
            continue
        _, best_s = search.best or (None, found.default_s)
        logs.append(math.log(found.default_s / best_s))
    return np.array(logs)


def draw(trained: Iterable[Trained], path: Path) -> None:
    """The learning curves, one panel for each arm and a line for each seed."""
    import matplotlib.pyplot as plt

    by_arm: dict[str, list[Trained]] = {}
    for each in trained:
        by_arm.setdefault(each.arm, []).append(each)
    figure, axes = plt.subplots(
        1, len(by_arm), figsize=(2.9 * len(by_arm), 3.0), squeeze=False
    )
    for axis, (arm, own) in zip(axes[0], by_arm.items(), strict=True):
        for each in own:
            curve = each.curve
            label = f"seed {each.config.seed}"
            axis.plot([*curve], [*curve.values()], marker=".", label=label)
        axis.set_title(arm, fontsize=9)
        axis.set_xlabel("passes, then steps")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("speed-up by the arm's cost")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
