# SPDX-License-Identifier: Apache-2.0
"""Trains a graph network on rewrites: demonstrations, imitation, then PPO.

A folder of a run has `config.json`; `demonstrations.jsonl`, what was found to imitate;
`curve.csv`, a row for each evaluation; `best.safetensors`, the policy that was best on
the validation modules, and `last.safetensors`; `report.json`, the best policy beside
the random one, the fixed rules and XLA's default; `resume.safetensors`, with which a
run goes on; `tensorboard/`, where TensorBoard is installed. No file is executed when it
is read.
"""

from __future__ import annotations

import csv
import json
import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._files import replacing
from ..cost.registry import open_estimator
from ..envs.vector import GraphVectorEnv
from ..errors import ArgumentError, HloEnvError
from ..measurement.store import Store
from ..policies import get_policy
from . import imitation, run_state
from .gnn import GnnModel, GnnPolicy, load_gnn, one_thread
from .graph_ppo import GraphPPO, Update
from .networks import RewriteNetwork
from .rewrite_config import RewriteConfig
from .rewrite_evaluation import Validation
from .run_setup import device_of, drawn, ppo_config_of, writer_in
from .workers import run_tasks

_CURVE = "curve.csv"
_DEMONSTRATIONS = "demonstrations.jsonl"
_RESUME = "resume.safetensors"
REPORT = "report.json"
BEST = "best.safetensors"
LAST = "last.safetensors"
# What the best policy is compared with, beside XLA's default.
BASELINES = ("random", "accept-all", "fewest-ops", "least-bytes", "greedy-roofline")
# Demonstrations between two writes of their file.
_BLOCK = 10


@dataclass(frozen=True)
class RewriteProgress:
    """A training run now.

    Attributes:
        step: demonstrations, passes of imitation and steps of PPO so far.
        phase: "demonstrations", "imitation" or "ppo".
        loss: of imitation; nan in the other phases.
        episode_return: of PPO; nan in the other phases.
        entropy: of PPO, of a decision, in nats; nan in the other phases.
        score: geometric mean of the speed-ups on the validation modules, by estimate,
            of the latest evaluation; nan before the first.
        best_score: of the best evaluation.
        seconds: of training, those of earlier processes included.
    """

    step: int
    phase: str
    loss: float = math.nan
    episode_return: float = math.nan
    entropy: float = math.nan
    score: float = math.nan
    best_score: float = math.nan
    seconds: float = 0.0


def train_rewrite(
    config: RewriteConfig,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    report: Callable[[RewriteProgress], None] = lambda _: None,
) -> GnnModel:
    """Trains a policy of rewrites; on a CPU, a seed gives the same policy.

    Args:
        config: of the run.
        folder: of its files; made if it does not exist.
        resume: goes on with the run in the folder, also after a crash.
        report: called as the run goes on.

    Returns:
        The best checkpoint on the validation modules.

    Raises:
        ArgumentError: the folder has a run already, or to resume, none, or one with
            another configuration; no module can be decided.
        TrainingError: the network diverged.
    """
    with ExitStack() as stack, one_thread():
        return _Run(config, Path(folder), report, stack, resume=resume).train()


class _Run:
    def __init__(
        self,
        config: RewriteConfig,
        folder: Path,
        report: Callable[[RewriteProgress], None],
        stack: ExitStack,
        *,
        resume: bool,
    ) -> None:
        self.config, self.folder, self._report = config, folder, report
        config.check_folder(folder, resume=resume)
        self.env = config.make_env()
        self._ppo_config = ppo_config_of(config.ppo)
        self._device = device_of(config.device)
        store = stack.enter_context(Store())
        self._estimator = stack.enter_context(
            open_estimator(config.estimator, store=store)
        )
        uris = drawn(config.validation, config.max_validation, seed=0)
        self.validation = Validation(uris, config.space, self._estimator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.network = RewriteNetwork(config.width, config.rounds)
        self.network.to(self._device)
        config.write_to(folder)
        self._envs = GraphVectorEnv([self.env.fork] * config.num_envs)
        stack.callback(self._envs.close)
        self._ppo = GraphPPO(
            self.network,
            self._envs,
            self._ppo_config,
            seed=config.seed,
            scalar_actions=config.mode == "one",
            device=self._device,
        )
        self._began = time.monotonic()
        self._before_s = 0.0
        self._epochs = 0
        self._score = self._best = math.nan
        self._episode_return = self._entropy = math.nan
        self._rows: list[dict[str, Any]] = []
        self._writer = writer_in(folder / "tensorboard", stack)
        if resume and (folder / _RESUME).exists():
            self._restore()

    # --- the phases

    def train(self) -> GnnModel:
        """Goes through the phases, from where the run is."""
        config = self.config
        if self._epochs < config.imitation_epochs and config.demonstrations:
            self._imitate(self._demonstrations())
        self._epochs = config.imitation_epochs
        if not self._rows:
            self._checkpoint("imitation")
        self._evaluated = self._ppo.step

        def learned(update: Update) -> None:
            self._log("ppo", asdict(update), update.step)
            self._episode_return, self._entropy = update.episode_return, update.entropy
            self._tell("ppo")
            if update.step - self._evaluated >= config.evaluate_every:
                self._checkpoint("ppo")
                self._evaluated = update.step

        self._ppo.train(config.steps, learned)
        if self._ppo.step > self._evaluated:
            self._checkpoint("ppo")
        model = load_gnn(self.folder / BEST)
        if "validation" in model.notes:
            return model
        # The record of the training goes with the policy.
        notes = model.notes | {"validation": self._write_report(model)}
        model = GnnModel(model.network, model.is_joint, notes)
        model.save(self.folder / BEST)
        return model

    def _demonstrations(self) -> list[imitation.Demonstration]:
        """What is to be imitated; searched, where the file does not have it yet."""
        config, path = self.config, self.folder / _DEMONSTRATIONS
        uris = drawn(config.train, config.demonstrations, seed=config.seed)
        found = imitation.read_demonstrations(path)
        missing = [uri for uri in uris if uri not in found]
        tasks = [
            imitation.DemonstrationTask(
                *(uri, config.space, config.estimator, config.search),
                *(config.estimates, config.seed),
            )
            for uri in missing
        ]
        answers = run_tasks(
            imitation.demonstrate,
            tasks,
            workers=config.workers,
            use_ray=config.use_ray,
        )
        for count, (_, answer) in enumerate(answers, start=1):
            if not isinstance(answer, HloEnvError):
                found[answer.uri] = answer
            if count % _BLOCK == 0 or count == len(tasks):
                imitation.write_demonstrations(path, found.values())
            self._tell("demonstrations", done=len(uris) - len(missing) + count)
        kept = [found[uri] for uri in uris if uri in found]
        if not kept:
            raise ArgumentError(
                f"none of the {len(uris)} modules of {config.train} can be decided in "
                f"the space {config.space}"
            )
        return kept

    def _imitate(self, shown: list[imitation.Demonstration]) -> None:
        config = self.config
        rng = np.random.default_rng(config.seed)
        examples = []
        for each in shown:
            try:
                examples += imitation.examples_of(self.env, each, rng)
            except HloEnvError:
                continue  # a pass fails on this module
        if not examples:
            raise ArgumentError("no demonstration fits its module; delete the folder")
        self.network.normalize([each.observation for each in examples])
        optimizer = torch.optim.Adam(
            self.network.parameters(), lr=config.imitation_rate
        )
        # Imitation takes minutes: it starts over after a crash.
        generator = torch.Generator().manual_seed(config.seed)
        for epoch in range(config.imitation_epochs):
            loss = imitation.imitate(
                self.network, examples, optimizer=optimizer, generator=generator
            )
            self._epochs = epoch + 1
            self._log("imitation", {"loss": loss}, epoch)
            self._tell("imitation", loss=loss)

    # --- evaluation and files

    def _checkpoint(self, phase: str) -> None:
        """Evaluates the policy, and saves it and the run."""
        model = GnnModel(self.network, self.config.mode == "all", {})
        self.network.eval()
        score = self.validation.score(GnnPolicy(model)).mean
        self._score = score
        is_best = not score <= self._best  # also the first
        self._best = score if is_best else self._best
        progress = self._progress(phase)
        self._rows.append(asdict(progress))
        self._log("validation", {"speedup": score}, progress.step)
        notes = {
            "step": progress.step,
            "validation_score": score,
            "config": self.config.to_dict(),
        }
        model = GnnModel(self.network, model.is_joint, notes)
        model.save(self.folder / LAST)
        if is_best:
            model.save(self.folder / BEST)
        counters = {
            "epochs": self._epochs,
            "score": self._score,
            "best": self._best,
            "seconds": progress.seconds,
            "rows": self._rows,
        }
        run_state.save(self.folder / _RESUME, self._ppo, counters)
        with (
            replacing(self.folder / _CURVE) as draft,
            draft.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, self._rows[0])
            writer.writeheader()
            writer.writerows(self._rows)
        self._report(progress)

    def _restore(self) -> None:
        counters = run_state.load(self.folder / _RESUME, self._ppo)
        self._epochs = counters["epochs"]
        self._score, self._best = counters["score"], counters["best"]
        self._before_s, self._rows = counters["seconds"], counters["rows"]

    def _write_report(self, model: GnnModel) -> dict[str, float]:
        """Compares the best policy with others; their speed-ups, by estimate."""
        policies = {"gnn": GnnPolicy(model)} | {
            name: get_policy(name, seed=self.config.seed) for name in BASELINES
        }
        scores = {name: self.validation.score(each) for name, each in policies.items()}
        rows = {
            name: {
                "speedup": score.mean,
                "failures": score.failures,
                "speedups": list(score.speedups),
            }
            for name, score in scores.items()
        }
        report = {
            "estimator": self.config.estimator,
            "modules": self.validation.uris,
            "policies": rows,
        }
        with replacing(self.folder / REPORT) as draft:
            draft.write_text(json.dumps(report, indent=1))
        return {"xla": 1.0} | {name: score.mean for name, score in scores.items()}

    # --- reports

    def _progress(
        self, phase: str, *, done: int | None = None, loss: float = math.nan
    ) -> RewriteProgress:
        config = self.config
        step = done
        if step is None:
            step = config.demonstrations + self._epochs + self._ppo.step
        return RewriteProgress(
            # The last rollout may go beyond.
            step=min(step, config.total),
            phase=phase,
            loss=loss,
            episode_return=self._episode_return,
            entropy=self._entropy,
            score=self._score,
            best_score=self._best,
            seconds=self._before_s + time.monotonic() - self._began,
        )

    def _tell(
        self, phase: str, *, done: int | None = None, loss: float = math.nan
    ) -> None:
        self._report(self._progress(phase, done=done, loss=loss))

    def _log(self, group: str, values: dict[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)
