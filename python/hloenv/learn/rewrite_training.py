# SPDX-License-Identifier: Apache-2.0
"""Trains a graph network on rewrites: demonstrations, imitation, then PPO.

A folder of a run has `config.json`; `demonstrations.jsonl`, what was found to imitate;
`curve.csv`, a row for each evaluation; `best.safetensors`, the policy that was best on
the validation modules, and `last.safetensors`; `report.json`, the best policy beside
the random one, the fixed rules and XLA's default; `resume.safetensors`, from which a
run continues; `tensorboard/`, where TensorBoard is installed. No file is executed when
it is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._files import replacing
from ..cost.learned.threads import one_thread
from ..cost.registry import open_estimator
from ..envs.vector import GraphVectorEnv
from ..errors import ArgumentError, HloEnvError
from ..measurement.store import Store
from ..policies import get_policy
from . import imitation
from .gnn import GnnModel, GnnPolicy, load_gnn
from .graph_ppo import GraphPPO
from .networks import RewriteNetwork
from .ppo_run import BEST, REPORT, PPORun, Progress, random_observations
from .rewrite_config import RewriteConfig
from .rewrite_evaluation import Validation
from .run_setup import device_of, drawn, ppo_config_of, writer_in
from .workers import run_tasks

_DEMONSTRATIONS = "demonstrations.jsonl"
# What the best policy is compared with, beside XLA's default.
BASELINES = ("random", "accept-all", "fewest-ops", "least-bytes", "greedy-roofline")
# Demonstrations between two writes of their file.
_BLOCK = 10


def train_rewrite(
    config: RewriteConfig,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> GnnModel:
    """Trains a policy of rewrites.

    On a CPU, a seed gives the same policy, with an estimator that does not measure or
    with the same store.

    Args:
        config: of the run.
        folder: of its files; made if it does not exist.
        resume: continues the run in the folder, also after a crash.
        report: called after each part of the run.

    Returns:
        The best checkpoint on the validation modules.

    Raises:
        ArgumentError: the folder has a run already, or to resume, none, or one with
            another configuration; no module can be decided.
        TrainingError: the network diverged.
    """
    with ExitStack() as stack, one_thread():
        return _Run(config, Path(folder), report, stack, resume=resume).train()


class _Run(PPORun):
    config: RewriteConfig

    def __init__(
        self,
        config: RewriteConfig,
        folder: Path,
        report: Callable[[Progress], None],
        stack: ExitStack,
        *,
        resume: bool,
    ) -> None:
        self.config = config
        config.check_folder(folder, resume=resume)
        self.env = config.make_env()
        ppo_config = ppo_config_of(config.ppo)
        device = device_of(config.device)
        store = stack.enter_context(Store())
        self._estimator = stack.enter_context(
            open_estimator(config.estimator, store=store)
        )
        uris = drawn(config.validation, config.max_validation, seed=0)
        self.validation, self.reported = Validation(
            uris, config.space, self._estimator
        ).halves()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.network = RewriteNetwork(config.width, config.rounds)
        config.write_to(folder)
        envs = GraphVectorEnv([self.env.fork] * config.num_envs)
        stack.callback(envs.close)
        ppo = GraphPPO(
            *(self.network, envs, ppo_config),
            seed=config.seed,
            scalar_actions=config.mode == "one",
            device=device,
        )
        super().__init__(
            *(folder, ppo),
            evaluate_every=config.evaluate_every,
            report=report,
            writer=writer_in(folder / "tensorboard", stack),
        )
        if resume:
            self.restore()

    # --- the phases

    def train(self) -> GnnModel:
        """Goes through the phases, from where the run is."""
        config = self.config
        if not self.rows:
            if config.imitation_epochs and config.demonstrations:
                self._imitate(self._demonstrations())
            else:
                seen = random_observations(config.make_env(), config.seed)
                self.network.normalize(seen)
            self.epochs, self.phase = config.imitation_epochs, "imitation"
            self.checkpoint()
        self.learn(config.steps)
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
            self.num_shown = len(uris) - len(missing) + count
            self.tell()
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
                examples += imitation.examples_of(
                    *(self.env, each, rng, self.ppo.config.gamma)
                )
            except ArgumentError:
                raise  # the file is of another version
            except HloEnvError:
                continue  # a pass fails on this module
        if not examples:
            raise ArgumentError("no demonstration fits its module; delete the folder")
        self.imitate(
            examples,
            epochs=config.imitation_epochs,
            rate=config.imitation_rate,
            evaluate_every=config.evaluate_passes,
        )

    # --- parts of PPORun

    def evaluate(self) -> float:
        """Geometric mean of the speed-ups."""
        return self.validation.score(GnnPolicy(self._model({}))).mean

    def save(self, path: Path, notes: dict[str, Any]) -> None:
        """Writes a policy."""
        self._model(notes | {"config": self.config.to_dict()}).save(path)

    def notes_of(self, path: Path) -> dict[str, Any]:
        """Of a policy."""
        return load_gnn(path).notes

    def _model(self, notes: dict[str, Any]) -> GnnModel:
        return GnnModel(self.network, self.config.mode == "all", notes)

    # --- evaluation

    def _write_report(self, model: GnnModel) -> dict[str, float]:
        """Compares the best policy with others; their speed-ups, by estimate.

        On validation modules that did not choose it.
        """
        policies = {"gnn": GnnPolicy(model)} | {
            name: get_policy(name, seed=self.config.seed) for name in BASELINES
        }
        scores = {name: self.reported.score(each) for name, each in policies.items()}
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
            "modules": self.reported.uris,
            "policies": rows,
        }
        with replacing(self.folder / REPORT) as draft:
            draft.write_text(json.dumps(report, indent=1))
        return {"xla": 1.0} | {name: score.mean for name, score in scores.items()}
