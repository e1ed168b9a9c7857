# SPDX-License-Identifier: Apache-2.0
"""What trainings by PPO share: imitation, evaluations, checkpoints, resuming."""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ..envs.base import CompilerEnv
from . import imitation, run_state
from .curve import write_curve
from .graph_ppo import GraphPPO, Update
from .networks import RewriteNetwork
from .rewrite_config import RewriteConfig
from .substitution_config import SubstitutionConfig

_RESUME = "resume.safetensors"
REPORT, BEST, LAST = "report.json", "best.safetensors", "last.safetensors"
# Observations of random episodes from which features are normalized.
_NORMALIZING = 64
# Of one episode: many modules matter more than long episodes.
_PER_EPISODE = 2


@dataclass(frozen=True)
class Progress:
    """A training run now.

    Attributes:
        step: demonstrations, passes of imitation and steps of PPO so far.
        phase: "demonstrations", "imitation" or "ppo".
        loss: of imitation; nan in the other phases.
        episode_return: of PPO, mean of the latest episodes; nan before the first.
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


class PPORun(ABC):
    """A training and the files in its folder.

    Attributes:
        config: of the run.
        folder: of the files.
        ppo: what learns.
        score: of the latest evaluation, `best` of the best one; NaN before the first.
        episode_return, entropy: of the latest update.
        phase: "demonstrations", "imitation" or "ppo".
        num_shown: demonstrations so far.
        epochs, loss: of imitation; its passes so far, and the loss of the latest.
        rows: of the curve.
    """

    config: RewriteConfig | SubstitutionConfig

    def __init__(
        self,
        folder: Path,
        ppo: GraphPPO,
        *,
        evaluate_every: int,
        report: Callable[[Progress], None],
        writer: Any,
    ) -> None:
        """Begins; `restore` continues. A subclass sets `config` before.

        Args:
            folder: of the files.
            ppo: what learns.
            evaluate_every: steps from one evaluation to the next.
            report: called with `progress()` after each part.
            writer: TensorBoard's, or None.
        """
        self.folder, self.ppo = folder, ppo
        self.score = self.best = math.nan
        self.episode_return = self.entropy = math.nan
        self.phase, self.num_shown = "demonstrations", 0
        self.epochs, self.loss = 0, math.nan
        self.rows: list[dict[str, Any]] = []
        self._evaluate_every = evaluate_every
        self._report, self._writer = report, writer
        self._began, self._before_s = time.monotonic(), 0.0

    @abstractmethod
    def evaluate(self) -> float:
        """Score of the network on the validation modules; more is better."""

    @abstractmethod
    def save(self, path: Path, notes: dict[str, Any]) -> None:
        """Writes a checkpoint of the network."""

    @abstractmethod
    def notes_of(self, path: Path) -> dict[str, Any]:
        """The notes of a checkpoint."""

    def progress(self) -> Progress:
        """The run now."""
        config, step = self.config, self.num_shown
        if self.phase == "imitation":
            step = config.demonstrations + self.epochs
        elif self.phase == "ppo":
            step = config.total - config.steps + self.ppo.step
        return Progress(
            # The last rollout may go beyond.
            step=min(step, config.total),
            phase=self.phase,
            loss=self.loss,
            episode_return=self.episode_return,
            entropy=self.entropy,
            score=self.score,
            best_score=self.best,
            seconds=self.seconds,
        )

    @property
    def seconds(self) -> float:
        """Of training, those of earlier processes included."""
        return self._before_s + time.monotonic() - self._began

    def imitate(
        self,
        examples: Sequence[imitation.Example],
        *,
        epochs: int,
        rate: float,
        evaluate_every: int | None = None,
    ) -> None:
        """Trains the network to decide as in examples; it starts over after a crash.

        Args:
            examples: of good decisions.
            epochs: passes over them.
            rate: learning rate.
            evaluate_every: passes from one evaluation to the next; the network is then
                the best of those evaluated. None to evaluate nothing.
        """
        ppo, self.phase = self.ppo, "imitation"
        if isinstance(ppo.network, RewriteNetwork):
            ppo.network.normalize([each.observation for each in examples])
        unit = 1.0
        if ppo.config.normalize_rewards:  # as PPO's values will be
            ppo.moments.add(np.array([each.value for each in examples]))
            unit = ppo.moments.deviation
        optimizer = torch.optim.Adam(ppo.network.parameters(), lr=rate)
        best, weights = -math.inf, None
        for epoch in range(epochs):
            self.loss = imitation.imitate(
                ppo.network,
                examples,
                optimizer=optimizer,
                generator=ppo.generator,
                unit=unit,
            )
            self.epochs = epoch + 1
            self.log("imitation", {"loss": self.loss}, epoch)
            is_last = self.epochs == epochs
            if evaluate_every and (is_last or self.epochs % evaluate_every == 0):
                self._evaluated()
                self.rows.append(asdict(self.progress()))
                if self.score > best:
                    best, weights = self.score, copy.deepcopy(ppo.network.state_dict())
            self.tell()
        if weights is not None:
            ppo.network.load_state_dict(weights)
        self.loss = math.nan

    def learn(self, steps: int) -> None:
        """Trains until PPO has made so many steps, with evaluations."""
        self.phase = "ppo"
        evaluated = self.ppo.step

        def learned(update: Update) -> None:
            nonlocal evaluated
            self.log("ppo", asdict(update), update.step)
            self.episode_return, self.entropy = update.episode_return, update.entropy
            self.tell()
            if update.step - evaluated >= self._evaluate_every:
                self.checkpoint()
                evaluated = update.step

        self.ppo.train(steps, learned)
        if self.ppo.step > evaluated:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Evaluates the network, and saves it and the run."""
        self._evaluated()
        is_best = math.isnan(self.best) or self.score > self.best
        self.best = self.score if is_best else self.best
        progress = self.progress()
        self.rows.append(asdict(progress))
        notes = {"step": progress.step, "validation_score": self.score}
        self.save(self.folder / LAST, notes)
        if is_best:
            self.save(self.folder / BEST, notes)
        counters = {"score": self.score, "seconds": progress.seconds, "rows": self.rows}
        run_state.save(self.folder / _RESUME, self.ppo, counters)
        write_curve(self.folder, self.rows)
        self._report(progress)

    def _evaluated(self) -> None:
        self.ppo.network.eval()
        self.score = self.evaluate()
        self.log("validation", {"speedup": self.score}, self.progress().step)

    def restore(self) -> None:
        """Continues the run in the folder, if it has one.

        Raises:
            CheckpointError: a file is damaged.
        """
        if (self.folder / BEST).exists():
            # It may be newer than the state, after a crash between the two.
            self.best = self.notes_of(self.folder / BEST)["validation_score"]
        if not (self.folder / _RESUME).exists():
            return
        counters = run_state.load(self.folder / _RESUME, self.ppo)
        self.score, self.rows = counters["score"], counters["rows"]
        self._before_s = counters["seconds"]

    def tell(self) -> None:
        """Reports the progress."""
        self._report(self.progress())

    def log(self, group: str, values: dict[str, float], step: int) -> None:
        """Writes figures for TensorBoard."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)


def random_observations(env: CompilerEnv, seed: int) -> list[Any]:
    """Of random episodes, to normalize features by."""
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    seen = [observation]
    for number in range(1, _NORMALIZING):
        if number % _PER_EPISODE == 0:
            observation, _ = env.reset()
            seen.append(observation)
            continue
        if isinstance(env.action_space, spaces.Discrete):
            action = int(rng.choice(np.flatnonzero(env.action_masks())))
        else:
            action = env.action_space.sample()
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
        seen.append(observation)
    return seen
