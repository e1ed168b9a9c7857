# SPDX-License-Identifier: Apache-2.0
"""What the policies of run_learned.py owe to what: the same training, less one thing.

Compared by times of kernels on the validation modules that chose no checkpoint, so that
the test split is used for the policies alone.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hloenv._markdown import table
from hloenv.cli import main as run_command
from hloenv.cost import open_estimator
from hloenv.cost.base import Estimator
from hloenv.dataset.benchmarks import find_benchmarks
from hloenv.learn.curve import CURVE, read_curve
from hloenv.learn.gnn import GnnPolicy, load_gnn
from hloenv.learn.ppo_run import BEST
from hloenv.learn.rewrite_config import RewriteConfig
from hloenv.learn.rewrite_evaluation import Validation
from hloenv.learn.rewrite_training import BASELINES
from hloenv.learn.run_setup import drawn
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
    "one alternative a step": ("actions, credit", {"mode": "one"}),
    "PPO afterwards": ("reward", {"steps": 1000, "evaluate_every": 250}),
    "PPO alone": (
        "start",
        {"steps": 1000, "evaluate_every": 250, "demonstrations": 0},
    ),
}
POLICY = next(iter(ARMS))
_DEMONSTRATIONS = "demonstrations.jsonl"
# Settings that the demonstrations depend on.
_SHOWN_BY = ("space", "train", "estimator", "search", "estimates", "seed")


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
    def curve(self) -> list[tuple[float, float]]:
        """Steps of the training, and the score of each evaluation."""
        rows = read_curve(self.folder / CURVE)
        return [(float(row["step"]), float(row["score"])) for row in rows]

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
            "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        )
        words.append(str(file))
        _take_demonstrations(RewriteConfig.from_dict(settings | {"seed": seed}), folder)
    if (folder / "config.json").exists():
        words = [word for word in words if word != "--small"] + ["--resume"]
    if code := run_command(words):
        sys.exit(code)
    return Trained(arm, folder, RewriteConfig.of_run(folder))


def _take_demonstrations(config: RewriteConfig, folder: Path) -> None:
    """Those of another arm that are found in the same way, where there are some."""
    if (folder / _DEMONSTRATIONS).exists() or not config.demonstrations:
        return
    for file in sorted(folder.parent.glob(f"*/{_DEMONSTRATIONS}")):
        other = RewriteConfig.of_run(file.parent)
        if all(getattr(other, key) == getattr(config, key) for key in _SHOWN_BY):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder)
            return


def base_settings(config: str | None) -> dict[str, Any]:
    """The settings of a TOML file; none without one."""
    return tomllib.loads(Path(config).read_text()) if config else {}


def section(trained: Sequence[Trained]) -> list[str]:
    """The page's part: what each arm reaches, beside rules and the search itself."""
    config = trained[0].config
    with open_estimator("kernel-cache", store=Store()) as estimator:
        uris = drawn(config.validation, config.max_validation, seed=0)
        _, modules = Validation(uris, config.space, estimator).halves()
        scores: dict[str, list[float]] = {}
        for each in trained:
            policy = GnnPolicy(load_gnn(each.folder / BEST))
            scores.setdefault(each.arm, []).append(modules.score(policy).mean)
        rules = {name: modules.score(get_policy(name)).mean for name in BASELINES}
        rules["the search that is imitated"] = _searched(modules, config, estimator)
    rows = []
    for arm, found in scores.items():
        own = [each for each in trained if each.arm == arm]
        minutes = statistics.mean(each.seconds for each in own) / 60
        rows.append(
            [
                *(arm, ARMS[arm][0], f"{statistics.geometric_mean(found):.3f}"),
                *(f"{min(found):.3f} to {max(found):.3f}", f"{minutes:.1f}"),
            ]
        )
    rows += [[name, "", f"{mean:.3f}", "", ""] for name, mean in rules.items()]
    return [
        "## What the policy owes to what",
        "",
        f"{len(modules.uris)} modules of the validation split that chose no "
        "checkpoint: geometric mean of the speed-up over XLA's default by the times of "
        f"kernels, of {len(scores[POLICY])} seeds of each training. Demonstrations "
        "that another training had found are not counted in its time.",
        "",
        *table(
            ("training", "shows", "speed-up", "of the seeds", "minutes"), rows, "llrrr"
        ),
    ]


def _searched(
    modules: Validation, config: RewriteConfig, estimator: Estimator
) -> float:
    """The mean that the search of the demonstrations reaches on the modules."""
    speedups = []
    for uri in modules.uris:
        game = Game(find_benchmarks(uri)[0].load(), get_space(config.space).stops)
        search = get_search(config.search, game, seed=config.seed)
        found = run_search(search, estimator, budget=Budget(config.estimates, 0))
        _, best_s = search.best or (None, found.default_s)
        speedups.append(found.default_s / best_s)
    return statistics.geometric_mean(speedups)


def draw(trained: Iterable[Trained], path: Path) -> None:
    """The learning curves, one panel for each arm and a line for each seed."""
    import matplotlib.pyplot as plt

    by_arm: dict[str, list[Trained]] = {}
    for each in trained:
        by_arm.setdefault(each.arm, []).append(each)
    figure, axes = plt.subplots(
        1, len(by_arm), figsize=(2.9 * len(by_arm), 3.0), squeeze=False, sharey=True
    )
    for axis, (arm, own) in zip(axes[0], by_arm.items(), strict=True):
        for each in own:
            start = each.config.demonstrations
            steps, scores = zip(*each.curve, strict=True)
            axis.plot(
                [step - start for step in steps],
                scores,
                marker=".",
                label=f"seed {each.config.seed}",
            )
        axis.set_title(arm, fontsize=9)
        axis.set_xlabel("passes, then steps")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("speed-up by the arm's cost")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
