# SPDX-License-Identifier: Apache-2.0
"""Trains an agent on Substitution-v0: imitation of greedy searches, then PPO.

A folder of a run has `config.json`; `demonstrations.jsonl`, the searches to imitate;
`curve.csv`, a row for each evaluation;
`best.safetensors`, the agent that was best on the validation modules, and
`last.safetensors`; `report.json`, the best agent beside a random one and greedy search;
`resume.safetensors`, from which a run continues; `tensorboard/`, where TensorBoard is
installed. No file is executed when it is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import geometric_mean
from typing import Any, cast

import numpy as np
import torch

from .._files import replacing
from ..cost.base import Estimator, estimate_of
from ..cost.learned.threads import one_thread
from ..cost.registry import open_estimator
from ..dataset.benchmarks import find_benchmarks
from ..envs.vector import GraphVectorEnv
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from ..measurement.store import Store
from ..runtime.executable import Engine
from ..substitution.candidates import Expander
from ..substitution.search import Budget, Substituted, greedy
from .graph_ppo import GraphPPO
from .networks import RewriteNetwork
from .ppo_run import BEST, REPORT, PPORun, Progress, random_observations
from .run_setup import device_of, drawn, halves, ppo_config_of, writer_in
from .substitution_agent import (
    SubstitutionAgent,
    load_substitution_agent,
    network_of,
    play,
)
from .substitution_config import SubstitutionConfig
from .substitution_imitation import Walk, examples_of, read_walks, search, write_walks

WALKS = "demonstrations.jsonl"  # of the searches to imitate
# Of the steps of a later search of a module, those that take any candidate.
_WANDERING = 0.2

Improve = Callable[[HloModule], Substituted]


def train_substitution(
    config: SubstitutionConfig,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> SubstitutionAgent:
    """Trains an agent that substitutes; on a CPU, a seed gives the same agent.

    Args:
        config: of the run.
        folder: of its files; made if it does not exist.
        resume: continues the run in the folder, also after a crash.
        report: called after each part of the run.

    Returns:
        The best checkpoint on the validation modules.

    Raises:
        ArgumentError: the folder has a run already, or to resume, none, or one with
            another configuration; no validation module can be estimated.
        TrainingError: the network diverged.
    """
    with ExitStack() as stack, one_thread():
        return _Run(config, Path(folder), report, stack, resume=resume).train()


class _Run(PPORun):
    config: SubstitutionConfig

    def __init__(
        self,
        config: SubstitutionConfig,
        folder: Path,
        report: Callable[[Progress], None],
        stack: ExitStack,
        *,
        resume: bool,
    ) -> None:
        self.config = config
        config.check_folder(folder, resume=resume)
        self.env = config.make_env()
        ppo_config = ppo_config_of(config.ppo_settings)
        device = device_of(config.device)
        store = stack.enter_context(Store())
        self._estimator: Estimator = stack.enter_context(
            open_estimator(
                config.estimator, store=store, engine=cast(Engine, config.engine)
            )
        )
        modules = self._validation_modules()
        self._modules, self._reported = map(dict, halves(list(modules.items())))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.network = network_of(config).to(device)
        config.write_to(folder)
        envs = GraphVectorEnv([self.env.fork] * config.num_envs)
        stack.callback(envs.close)
        ppo = GraphPPO(
            *(self.network, envs, ppo_config),
            seed=config.seed,
            scalar_actions=True,
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

    def train(self) -> SubstitutionAgent:
        """Learns from where the run is, and compares the best agent with others."""
        config = self.config
        if not self.rows:
            if config.imitates:
                self._imitate()
            else:
                self.phase = "ppo"
                if isinstance(self.network, RewriteNetwork):
                    seen = random_observations(config.make_env(), config.seed)
                    self.network.normalize(seen)
            self.checkpoint()
        self.learn(config.steps)
        agent = load_substitution_agent(self.folder / BEST)
        if "validation" not in agent.notes:
            # The record of the training goes with the agent.
            notes = agent.notes | {"validation": self._write_report(agent)}
            agent = SubstitutionAgent(agent.network, agent.config, notes)
            agent.save(self.folder / BEST)
        return agent

    def _imitate(self) -> None:
        config = self.config
        env, gamma = config.make_env(), self.ppo.config.gamma
        examples = []
        for walk in self._walks():
            try:
                examples += examples_of(env, walk, gamma) if walk.uri else []
            except ArgumentError:
                raise  # the file is of another version
            except HloEnvError:
                continue  # a pass fails on this module
        if not examples:
            raise ArgumentError(
                f"no search can be imitated on the modules of {config.train}: they "
                "cannot be estimated and substituted; give others, or demonstrations = "
                "0"
            )
        self.imitate(
            examples, epochs=config.imitation_epochs, rate=config.imitation_rate
        )

    def _walks(self) -> list[Walk]:
        """The searches; those that the file has not yet are made.

        The first search of each module is greedy in every step.
        """
        config, path = self.config, self.folder / WALKS
        uris = drawn(config.train, config.demonstrations, seed=config.seed)
        walks = read_walks(path)
        for number in range(len(walks), config.demonstrations):
            uri = uris[number % len(uris)]
            walk = Walk("")
            with suppress(HloEnvError):  # a pass fails, or it cannot be estimated
                walk = search(
                    *(config.make_env(), uri, self._estimator),
                    np.random.default_rng([config.seed, number]),
                    wandering=_WANDERING if number >= len(uris) else 0.0,
                    seconds=config.search_seconds,
                )
            walks.append(walk)
            write_walks(path, walks)
            self.num_shown = number + 1
            self.tell()
        return walks

    # --- parts of PPORun

    def evaluate(self) -> float:
        """Geometric mean of the speed-ups."""
        agent = SubstitutionAgent(self.network, self.config, {})
        return geometric_mean(
            self._speedups(
                self._modules, lambda module: agent.improve(module, self._estimator)
            )
        )

    def save(self, path: Path, notes: dict[str, Any]) -> None:
        """Writes an agent."""
        SubstitutionAgent(self.network, self.config, notes).save(path)

    def notes_of(self, path: Path) -> dict[str, Any]:
        """Of an agent."""
        return load_substitution_agent(path).notes

    # --- evaluation

    def _validation_modules(self) -> dict[str, HloModule]:
        """By URI, those that can be estimated and substituted."""
        config, found = self.config, {}
        for uri in drawn(config.validation, config.max_validation, seed=0):
            module = find_benchmarks(uri)[0].load()
            estimate = estimate_of(self._estimator, module)
            if estimate.is_ok and estimate.seconds > 0:
                found[uri] = module
        if not found:
            raise ArgumentError(
                f"no module of {config.validation} can be estimated by "
                f"{config.estimator}"
            )
        return found

    def _speedups(
        self, modules: Mapping[str, HloModule], improve: Improve
    ) -> list[float]:
        """Of the modules, by estimate; 1 where it fails."""
        found = []
        for module in modules.values():
            try:
                found.append(improve(module).speedup)
            except HloEnvError:
                found.append(1.0)
        return found

    def _write_report(self, agent: SubstitutionAgent) -> dict[str, float]:
        """Compares the best agent with others; their speed-ups, by estimate.

        On validation modules that did not choose it.
        """
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
            expander = Expander(
                config.pipelines(), max_candidates=config.max_candidates
            )
            budget = Budget(config.max_steps, config.search_seconds)
            return greedy(module, estimator, expander=expander, budget=budget)

        methods: dict[str, Improve] = {
            "agent": lambda module: agent.improve(module, estimator),
            "random": at_random,
            "greedy": greedily,
        }
        speedups = {
            name: self._speedups(self._reported, each) for name, each in methods.items()
        }
        means = {name: geometric_mean(each) for name, each in speedups.items()}
        report = {
            "estimator": config.estimator,
            "modules": list(self._reported),
            "methods": {
                name: {"speedup": means[name], "speedups": speedups[name]}
                for name in methods
            },
        }
        with replacing(self.folder / REPORT) as draft:
            draft.write_text(json.dumps(report, indent=1))
        return means
