# SPDX-License-Identifier: Apache-2.0
"""Training: an algorithm, its environments, evaluations, checkpoints, resuming.

A folder of a run has `config.json`; `curve.csv`, a row for each evaluation;
`best.safetensors`, the agent that was best on the validation set, and
`last.safetensors`; `resume.zip`, with which Stable-Baselines3 goes on (read with
pickle: of one's own runs only); `tensorboard/`, where TensorBoard is installed.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from .._files import replacing
from ..dataset.benchmarks import find_benchmarks
from ..envs.wrappers import PotentialShaping
from ..errors import ArgumentError
from .agent import Agent, load_agent, policy_arguments, policy_class
from .algorithms import get_algorithm
from .config import TrainConfig
from .curve import CURVE, read_curve, write_curve
from .demonstrations import Demonstrations, demonstrate, imitate, num_bytes
from .evaluation import evaluate

_RESUME = "resume.zip"
_REPLAY = "replay.pkl"
_MAX_REPLAY_BYTES = 4 * 2**30
BEST = "best.safetensors"
LAST = "last.safetensors"


@dataclass(frozen=True)
class Progress:
    """A training run now.

    Attributes:
        step: steps so far.
        steps: of the whole run.
        episode_return: mean over the last episodes, without shaping; nan before the
            first has ended.
        entropy: of the policy, in nats; nan where the algorithm does not log it.
        score: the latest evaluation, `Evaluation.score` on the validation modules; less
            is better.
        best_score: the best evaluation.
        seconds: of training, those of earlier processes included.
    """

    step: int
    steps: int
    episode_return: float
    entropy: float
    score: float
    best_score: float
    seconds: float


def train(
    config: TrainConfig,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> Agent:
    """Trains an agent.

    Args:
        config: what to train.
        folder: for the files of the run; made if it does not exist.
        resume: whether to go on where an earlier run of the same configuration ended;
            it may have more steps.
        report: called after each rollout.

    Returns:
        The agent that was best on the validation set.

    Raises:
        ArgumentError: the folder has a run already, or, to resume, none or one of
            another configuration.
        OSError: a file cannot be written.
    """
    run = _Run(config, Path(folder), report, resume=resume)
    try:
        return run.train()
    finally:
        run.close()


class _Run:
    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        report: Callable[[Progress], None],
        *,
        resume: bool,
    ) -> None:
        self.config = config
        self.folder = folder
        self.report = report
        config.check_folder(folder, resume=resume)
        self.algorithm = get_algorithm(config.algorithm)
        self.env = config.make_env()
        validation = find_benchmarks(config.validation)
        rng = np.random.default_rng(0)  # the same modules for all seeds
        chosen = rng.permutation(len(validation))[: config.max_validation]
        self.validation = [validation[i].uri for i in sorted(chosen)]
        self.rows = self._read_curve() if resume else []
        self.best_score = math.inf
        self.model = self._resumed() if self.rows else self._new()
        self.shown = self._demonstrations() if config.order and not self.rows else None
        # Last: what fails above leaves nothing behind.
        config.write_to(folder)
        self._began = time.monotonic()
        self._seconds_before = float(self.rows[-1]["seconds"]) if self.rows else 0.0
        self._evaluated = int(self.rows[-1]["step"]) if self.rows else -1

    # --- the model

    def _new(self) -> Any:
        self._check_memory()
        return self.algorithm.load()(
            policy_class(self.config, self.env),
            self._vector_env(),
            seed=self._seed(0),
            device="cpu",
            policy_kwargs=policy_arguments(self.config),
            tensorboard_log=self._tensorboard(),
            **self._arguments,
        )

    def _resumed(self) -> Any:
        path = self.folder / _RESUME
        if not path.exists():
            raise ArgumentError(
                f"{self.folder} lacks {_RESUME}, without which its run cannot be "
                "resumed; start a new one in another folder"
            )
        vector = self._vector_env()
        try:
            model = self.algorithm.load().load(
                path,
                env=vector,
                device="cpu",
                custom_objects={"tensorboard_log": self._tensorboard()},
            )
        except Exception as error:  # zip, json and torch have no common root
            vector.close()
            raise ArgumentError(
                f"{path} is damaged, or not of this run ({type(error).__name__}); "
                "start a new run in another folder"
            ) from None
        # Not the episodes of the first process again.
        model.set_random_seed(self._seed(model.num_timesteps))
        if (self.folder / _REPLAY).exists():
            model.load_replay_buffer(self.folder / _REPLAY)
        # Not of the curve: the process may have ended before it wrote that.
        self.best_score = load_agent(self.folder / BEST).notes["validation_score"]
        return model

    def _check_memory(self) -> None:
        """A replay buffer keeps each observation twice."""
        if self.algorithm.has_critic:
            return
        size = self._arguments.get("buffer_size", 1_000_000)
        needed = 2 * size * num_bytes(self.env.observation_space.sample())
        if needed > _MAX_REPLAY_BYTES:
            raise ArgumentError(
                f"a replay buffer of {size:,} steps with {self.config.observations} "
                f"takes {needed / 2**30:.0f} GiB, more than "
                f"{_MAX_REPLAY_BYTES / 2**30:.0f}; give arguments.buffer_size"
            )

    @property
    def _arguments(self) -> dict[str, Any]:
        arguments = {**self.algorithm.defaults, **self.config.arguments}
        if not self.algorithm.has_critic:
            # "train_freq" counts steps of all environments together: one update for
            # each, of four steps by default.
            arguments.setdefault("gradient_steps", self.config.num_envs)
        return arguments

    def _vector_env(self) -> Any:
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv

        gamma = self._arguments.get("gamma", 0.99)

        def make() -> Any:
            env: Any = self.env.fork()  # all of them share its memo
            if self.config.has_horizon:
                env = _Horizon(env)
            env = Monitor(env)  # reports returns without shaping
            return PotentialShaping(env, gamma=gamma) if self.config.shaping else env

        return DummyVecEnv([make] * self.config.num_envs)

    def _seed(self, step: int) -> int:
        """Of a process that starts at a step.

        Stable-Baselines3 seeds its environments by this number and those after it: far
        from those of another run.
        """
        sequence = np.random.SeedSequence([self.config.seed, step])
        return int(sequence.generate_state(1)[0] >> 1)

    def _tensorboard(self) -> str | None:
        is_there = importlib.util.find_spec("tensorboard") is not None
        return str(self.folder / "tensorboard") if is_there else None

    # --- the loop

    def train(self) -> Agent:
        from stable_baselines3.common.callbacks import BaseCallback

        run = self

        class Callback(BaseCallback):
            def _on_step(self) -> bool:
                return True

            def _on_rollout_start(self) -> None:
                # Between the updates; not at the start, and at the end below.
                if run.steps_since_checkpoint >= run.config.evaluate_every:
                    run.checkpoint()

            def _on_rollout_end(self) -> None:
                run.report(run.progress())

        left = self.config.steps - self.model.num_timesteps
        if not self.rows:
            if self.shown is not None:
                imitate(
                    self.model.policy,
                    self.shown,
                    epochs=self.config.imitation_epochs,
                    rate=self.config.imitation_rate,
                    seed=self.config.seed,
                )
                self.shown = None
            self.checkpoint()
        if left > 0:
            self.model.learn(
                left,
                callback=Callback(),
                reset_num_timesteps=self.model.num_timesteps == 0,
                tb_log_name=self.config.algorithm,
            )
        if self.steps_since_checkpoint > 0:
            self.checkpoint()
        return load_agent(self.folder / BEST)

    def _demonstrations(self) -> Demonstrations:
        """Of the order of the configuration, on modules of the train set."""
        config, found = self.config, self.env.benchmarks
        drawn = np.random.default_rng(0).permutation(len(found))
        return demonstrate(
            self.env,
            config.order,
            [found[i].uri for i in drawn[: config.demonstrations]],
            gamma=self._arguments.get("gamma", 0.99),
        )

    @property
    def steps_since_checkpoint(self) -> int:
        """Steps since the last evaluation."""
        return int(self.model.num_timesteps) - self._evaluated

    def checkpoint(self) -> None:
        """Evaluates the agent, and saves it and the run."""
        agent = Agent(self.config, self.model.policy, {})
        score = evaluate(agent, self.validation, env=self.env).score
        self._evaluated = self.model.num_timesteps
        is_best = score < self.best_score
        self.best_score = min(score, self.best_score)
        row = asdict(self.progress(score))
        self.rows.append({key: str(value) for key, value in row.items()})
        notes = {"steps": self.model.num_timesteps, "validation_score": score}
        agent = Agent(self.config, self.model.policy, notes)
        agent.save(self.folder / LAST)
        if is_best:
            agent.save(self.folder / BEST)
        if not self.algorithm.has_critic:
            with replacing(self.folder / _REPLAY) as draft:
                self.model.save_replay_buffer(draft)
        with replacing(self.folder / _RESUME) as draft, draft.open("wb") as file:
            self.model.save(file)
        write_curve(self.folder, self.rows)

    def progress(self, score: float | None = None) -> Progress:
        """The run now; its score is that of the last evaluation by default."""
        episodes = self.model.ep_info_buffer or ()
        returns = [each["r"] for each in episodes]
        logger = getattr(self.model, "_logger", None)  # none before `learn`
        logged = {} if logger is None else logger.name_to_value
        if score is None:
            score = float(self.rows[-1]["score"])
        return Progress(
            step=self.model.num_timesteps,
            steps=self.config.steps,
            episode_return=float(np.mean(returns)) if returns else math.nan,
            entropy=-float(logged.get("train/entropy_loss", math.nan)),
            score=score,
            best_score=self.best_score,
            seconds=self._seconds_before + time.monotonic() - self._began,
        )

    def close(self) -> None:
        """Ends the child processes of the environments."""
        self.model.env.close()
        self.env.close()

    # --- files

    def _read_curve(self) -> list[dict[str, str]]:
        path = self.folder / CURVE
        return read_curve(path) if path.exists() else []  # none before an evaluation


class _Horizon(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Nothing is expected after the last step, of which the agent knows."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, False, info
