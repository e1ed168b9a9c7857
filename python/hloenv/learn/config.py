# SPDX-License-Identifier: Apache-2.0
"""What a training run is: a TOML file, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..envs.base import CompilerEnv
from ..envs.pass_order import PassOrderEnv
from ..errors import ArgumentError
from ..hlo.module import HloModule
from .algorithms import get_algorithm
from .config_file import MAX_WIDTH, FileConfig


@dataclass(frozen=True)
class TrainConfig(FileConfig):
    """One training run; by default, as for the agent that hloenv ships.

    Attributes:
        algorithm: one of `list_algorithms()`.
        train: URI of the benchmarks that episodes start from.
        validation: URI of those that choose the best checkpoint.
        observation: what the agent observes; "+" joins several.
        critic_observation: what the value function observes beside that; not for
            dqn.
        reward: of a step.
        shaping: whether the reward is shaped by a potential from flops and
            transcendentals.
        passes: texts of the passes, as of --pass; empty for all target-independent
            ones.
        dry_run: whether every pass is tried on every module, for exact masks of the
            actions.
        max_steps: length of an episode.
        has_horizon: whether that is part of the task, so that nothing is worth
            anything after it; else the value function says what would come.
        steps: of training.
        seed: of the networks, the episodes and the drawn actions.
        num_envs: environments that are stepped together.
        network: widths of the hidden layers.
        evaluate_every: steps from one evaluation, and checkpoint, to the next.
        max_validation: modules of the validation set that are used.
        arguments: of the algorithm's class; they replace the defaults.
    """

    algorithm: str = "maskable-ppo"
    train: str = "hloenv://all/train?max_instructions=1500"
    validation: str = "hloenv://all/validation?max_instructions=1500"
    observation: str = "op_counts_normalized+pass_counts"
    critic_observation: str = ""
    reward: str = "op_count_improved"
    shaping: bool = False
    passes: tuple[str, ...] = ()
    dry_run: bool = False
    max_steps: int = 45
    has_horizon: bool = True
    steps: int = 100_000
    seed: int = 0
    num_envs: int = 8
    network: tuple[int, ...] = (128, 128)
    evaluate_every: int = 10_000
    max_validation: int = 40
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks what the environment and the algorithm do not check."""
        algorithm = get_algorithm(self.algorithm)
        self.check_least(0, "seed")
        self.check_no_file("reward")
        if unknown := set(self.arguments) - set(algorithm.arguments()):
            raise ArgumentError(
                f"{self.algorithm} has no argument {sorted(unknown)[0]!r}; it has "
                f"{', '.join(algorithm.arguments())}"
            )
        self.check_least(1, "steps", "num_envs", "evaluate_every", "max_validation")
        if not all(1 <= each <= MAX_WIDTH for each in self.network):
            raise ArgumentError(
                f"widths in network must be from 1 to {MAX_WIDTH}, got {self.network}"
            )
        if self.critic_observation and not algorithm.has_critic:
            raise ArgumentError(
                f"{self.algorithm} has no value function: leave critic_observation out"
            )

    @property
    def observations(self) -> str:
        """All that the environment observes, for actor and critic."""
        names = [*self.observation.split("+"), *self.critic_observation.split("+")]
        return "+".join(dict.fromkeys(each for each in names if each))

    def make_env(self, benchmark: str | HloModule | None = None) -> CompilerEnv:
        """The environment; of `train` by default.

        Raises:
            ArgumentError: no such benchmark, observation, reward or pass.
        """
        return PassOrderEnv(
            benchmark or self.train,
            observation=self.observations,
            reward=self.reward,
            passes=self.passes or None,
            max_steps=self.max_steps,
            dry_run=self.dry_run,
        )
