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
from .config_file import MAX_LAYERS, MAX_WIDTH, FileConfig

# The best that `scripts/reports/run_pass_order.py` finds on 80 modules of train: built
# pass by pass, then by 300 random edits.
FIXED_ORDER = (
    "while-loop-invariant-code-motion+constant_folding+cse+"
    "while-loop-constant-sinking+simplify-conditional+reshape-mover+"
    "tuple-simplifier+call-inliner+constant_folding+cse+transpose-folding+"
    "algsimp+simplify-while-loops+gather_expander*"
)
AUTO = "auto"


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
        imitate: an order of passes, as of --pass ("cse+algsimp*"), that the agent is
            taught before it learns from its reward; empty for none; not for dqn.
            "auto" is `FIXED_ORDER` for agents whose reward counts instructions, whose
            passes are the usual ones, and who do not observe graphs. The value function
            learns the rewards of the order without shaping.
        demonstrations: modules of `train` on which this order is shown.
        imitation_epochs: passes over their steps.
        imitation_rate: learning rate of these passes.
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
    imitate: str = AUTO
    demonstrations: int = 800
    imitation_epochs: int = 60
    imitation_rate: float = 1e-3
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
        self.check_least(1, "demonstrations", "imitation_epochs")
        if not 0 < self.imitation_rate <= 1:
            raise ArgumentError(
                f"imitation_rate must be above 0 and at most 1, got "
                f"{self.imitation_rate}"
            )
        if len(self.network) > MAX_LAYERS or not all(
            1 <= each <= MAX_WIDTH for each in self.network
        ):
            raise ArgumentError(
                f"network must be at most {MAX_LAYERS} widths from 1 to {MAX_WIDTH}, "
                f"got {len(self.network)}: {self.network[:MAX_LAYERS]}"
            )
        if self.order and not algorithm.has_critic:
            raise ArgumentError(
                f"{self.algorithm} has no probabilities that could imitate an order: "
                "leave imitate out"
            )
        if self.critic_observation and not algorithm.has_critic:
            raise ArgumentError(
                f"{self.algorithm} has no value function: leave critic_observation out"
            )

    @property
    def order(self) -> str:
        """The order of passes that is imitated; empty for none."""
        if self.imitate != AUTO:
            return self.imitate
        is_usual = self.reward.startswith("op_count") and not self.passes
        can_imitate = get_algorithm(self.algorithm).has_critic
        # Which take long to learn from.
        has_graphs = any(
            each.startswith("graph") for each in self.observations.split("+")
        )
        return FIXED_ORDER if is_usual and can_imitate and not has_graphs else ""

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
