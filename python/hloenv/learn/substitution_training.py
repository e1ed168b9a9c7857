# SPDX-License-Identifier: Apache-2.0
"""Trains an agent on Substitution-v0 by PPO.

A folder of a run has `config.json`; `curve.csv`, a row for each evaluation;
`best.safetensors`, the agent that was best on the validation modules, and
`last.safetensors`; `report.json`, the best agent beside a random one and greedy search;
`resume.safetensors`, with which a run goes on; `tensorboard/`, where TensorBoard is
installed. No file is executed when it is read.
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
from statistics import geometric_mean
from typing import Any

import numpy as np
import torch

from .._files import replacing
from ..cost.base import Estimator
from ..cost.registry import open_estimator
from ..envs.benchmarks import find_benchmarks
from ..envs.vector import GraphVectorEnv
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from ..measurement.store import Store
from ..substitution.candidates import Expander
from ..substitution.search import Budget, Substituted, greedy
from . import run_state
from .gnn import one_thread
from .graph_ppo import GraphPPO, Update
from .networks import RewriteNetwork
from .run_setup import device_of, drawn, ppo_config_of, writer_in
from .substitution_agent import (
    SubstitutionAgent,
    load_substitution_agent,
    network_of,
    play,
)
from .substitution_config import SubstitutionConfig

_CURVE, _RESUME = "curve.csv", "resume.safetensors"
REPORT, BEST, LAST = "report.json", "best.safetensors", "last.safetensors"
# Observations of random episodes from which the features are normalized.
_NORMALIZING = 64

Improve = Callable[[HloModule], Substituted]


@dataclass(frozen=True)
class SubstitutionProgress:
    """A training run now.

    Attributes:
        step: of PPO.
        episode_return: mean of the latest episodes; nan before the first.
        entropy: of a decision, in nats.
        score: geometric mean of the speed-ups on the validation modules, by estimate,
            of the latest evaluation.
        best_score: of the best evaluation.
        seconds: of training, those of earlier processes included.
    """

    step: int
    episode_return: float = math.nan
    entropy: float = math.nan
    score: float = math.nan
    best_score: float = math.nan
    seconds: float = 0.0


def train_substitution(
    config: SubstitutionConfig,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    report: Callable[[SubstitutionProgress], None] = lambda _: None,
) -> SubstitutionAgent:
    """Trains an agent that substitutes; on a CPU, a seed gives the same agent.

    Args:
        config: of the run.
        folder: of its files; made if it does not exist.
        resume: goes on with the run in the folder, also after a crash.
        report: called as the run goes on.

    Returns:
        The best checkpoint on the validation modules.

    Raises:
        ArgumentError: the folder has a run already, or to resume, none, or one with
            another configuration; no validation module can be estimated.
        TrainingError: the network diverged.
    """
    with ExitStack() as stack, one_thread():
        return _Run(config, Path(folder), report, stack, resume=resume).train()


class _Run:
    def __init__(
        self,
        config: SubstitutionConfig,
        folder: Path,
        report: Callable[[SubstitutionProgress], None],
        stack: ExitStack,
        *,
        resume: bool,
    ) -> None:
        self.config, self.folder, self._report = config, folder, report
        config.check_folder(folder, resume=resume)
        env = config.make_env()
        ppo_config = ppo_config_of(config.ppo)
        device = device_of(config.device)
        store = stack.enter_context(Store())
        self._estimator: Estimator = stack.enter_context(
            open_estimator(config.estimator, store=store)
        )
        self._modules = self._validation_modules()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.network = network_of(config)
        if isinstance(self.network, RewriteNetwork):
            self.network.normalize(self._random_observations())
        self.network.to(device)
        config.write_to(folder)
        envs = GraphVectorEnv([env.fork] * config.num_envs)
        stack.callback(envs.close)
        self._ppo = GraphPPO(
            *(self.network, envs, ppo_config),
            seed=config.seed,
            scalar_actions=True,
            device=device,
        )
        self._began, self._before_s = time.monotonic(), 0.0
        self._score = self._best = math.nan
        self._episode_return = self._entropy = math.nan
        self._rows: list[dict[str, Any]] = []
        self._writer = writer_in(folder / "tensorboard", stack)
        if resume and (folder / _RESUME).exists():
            counters = run_state.load(folder / _RESUME, self._ppo)
            self._score, self._best = counters["score"], counters["best"]
            self._before_s, self._rows = counters["seconds"], counters["rows"]

    def train(self) -> SubstitutionAgent:
        """Learns from where the run is, and compares the best agent with others."""
        if not self._rows:
            self._checkpoint()
        evaluated = self._ppo.step

        def learned(update: Update) -> None:
            nonlocal evaluated
            self._log("ppo", asdict(update), update.step)
            self._episode_return, self._entropy = update.episode_return, update.entropy
            self._report(self._progress())
            if update.step - evaluated >= self.config.evaluate_every:
                self._checkpoint()
                evaluated = update.step

        self._ppo.train(self.config.steps, learned)
        if self._ppo.step > evaluated:
            self._checkpoint()
        agent = load_substitution_agent(self.folder / BEST)
        if "validation" not in agent.notes:
            # The record of the training goes with the agent.
            notes = agent.notes | {"validation": self._write_report(agent)}
            agent = SubstitutionAgent(agent.network, agent.config, notes)
            agent.save(self.folder / BEST)
        return agent

    def _validation_modules(self) -> dict[str, HloModule]:
        """By URI, those that can be estimated and substituted."""
        config, found = self.config, {}
        for uri in drawn(config.validation, config.max_validation, seed=0):
            module = find_benchmarks(uri)[0].load()
            (estimate,) = self._estimator.estimate_many([module])
            if estimate.is_ok and estimate.seconds > 0:
                found[uri] = module
        if not found:
            raise ArgumentError(
                f"no module of {config.validation} can be estimated by "
                f"{config.estimator}"
            )
        return found

    def _random_observations(self) -> list[Any]:
        env = self.config.make_env()
        rng = np.random.default_rng(self.config.seed)
        observation, _ = env.reset(seed=self.config.seed)
        seen = [observation]
        for _ in range(_NORMALIZING - 1):
            allowed = np.flatnonzero(env.action_masks())
            observation, _, terminated, truncated, _ = env.step(
                int(rng.choice(allowed))
            )
            if terminated or truncated:
                observation, _ = env.reset()
            seen.append(observation)
        return seen

    def _speedups(self, improve: Improve) -> list[float]:
        """Of the validation modules, by estimate; 1 where it fails."""
        found = []
        for module in self._modules.values():
            try:
                found.append(improve(module).speedup)
            except HloEnvError:
                found.append(1.0)
        return found

    def _checkpoint(self) -> None:
        """Evaluates the agent, and saves it and the run."""
        self.network.eval()
        agent = SubstitutionAgent(self.network, self.config, {})
        score = geometric_mean(
            self._speedups(lambda module: agent.improve(module, self._estimator))
        )
        self._score = score
        is_best = not score <= self._best  # also the first
        self._best = score if is_best else self._best
        progress = self._progress()
        self._rows.append(asdict(progress))
        self._log("validation", {"speedup": score}, progress.step)
        notes = {"step": progress.step, "validation_score": score}
        agent = SubstitutionAgent(self.network, self.config, notes)
        agent.save(self.folder / LAST)
        if is_best:
            agent.save(self.folder / BEST)
        counters = {
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

    def _write_report(self, agent: SubstitutionAgent) -> dict[str, float]:
        """Compares the best agent with others; their speed-ups, by estimate."""
        config, estimator = self.config, self._estimator
        rng = np.random.default_rng(config.seed)

        def at_random(module: HloModule) -> Substituted:
            env = config.make_env(module)
            return play(
                env,
                lambda _: int(rng.choice(np.flatnonzero(env.action_masks()))),
                estimator,
            )

        def greedily(module: HloModule) -> Substituted:
            expander = Expander(max_candidates=config.max_candidates)
            budget = Budget(config.max_steps)
            return greedy(module, estimator, expander=expander, budget=budget)

        methods: dict[str, Improve] = {
            "agent": lambda module: agent.improve(module, estimator),
            "random": at_random,
            "greedy": greedily,
        }
        speedups = {name: self._speedups(each) for name, each in methods.items()}
        means = {name: geometric_mean(each) for name, each in speedups.items()}
        report = {
            "estimator": config.estimator,
            "modules": list(self._modules),
            "methods": {
                name: {"speedup": means[name], "speedups": speedups[name]}
                for name in methods
            },
        }
        with replacing(self.folder / REPORT) as draft:
            draft.write_text(json.dumps(report, indent=1))
        return means

    def _progress(self) -> SubstitutionProgress:
        return SubstitutionProgress(
            # The last rollout may go beyond.
            step=min(self._ppo.step, self.config.steps),
            episode_return=self._episode_return,
            entropy=self._entropy,
            score=self._score,
            best_score=self._best,
            seconds=self._before_s + time.monotonic() - self._began,
        )

    def _log(self, group: str, values: dict[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)
