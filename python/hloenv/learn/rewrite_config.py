# SPDX-License-Identifier: Apache-2.0
"""Settings of `hloenv train rewrite`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..cost.registry import DEFAULT_ESTIMATOR, describe_estimator
from ..envs.rewrite import RewriteAllEnv, RewriteEnv
from ..envs.rewrite_base import RewriteBase
from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..search import describe_search
from ..search.spaces import get_space
from .config_file import FileConfig, check_width

MODES = ("all", "one")


@dataclass(frozen=True)
class RewriteConfig(FileConfig):
    """One training run of a policy of rewrites.

    Attributes:
        mode: "all": all alternatives of a position are decided at once; "one": one
            after the other.
        space: what is decided where, as in `hloenv.search.SPACES`.
        train: URI of the modules that episodes start from.
        validation: URI of those that choose the best checkpoint.
        estimator: of the run times that are rewarded, by name.
        reward: of a step; empty for the logarithm of the estimated speed-up.
        demonstrations: modules whose decisions are searched and imitated.
        search: that finds the decisions to imitate.
        estimates: of each of these searches.
        imitation_epochs: passes over the states of the demonstrations.
        imitation_rate: learning rate of these passes.
        evaluate_passes: from one evaluation to the next; the best network goes on.
        steps: of PPO, afterwards.
        max_steps: length of an episode, in mode "one".
        num_envs: environments that are stepped together.
        ppo: settings of `hloenv.learn.graph_ppo.PPOConfig`, in place of its defaults.
        width: of the network.
        rounds: of message passing.
        seed: of the networks, the episodes and the drawn actions.
        evaluate_every: steps of PPO from one evaluation, and checkpoint, to the next.
        max_validation: modules of the validation set that are used.
        workers: child processes that search for demonstrations.
        use_ray: whether these searches run on Ray.
        device: of the network: "cpu", "cuda", or "auto" for the GPU, if there is one.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset(
        {"steps", "workers", "use_ray", "device", "ppo"}
    )

    mode: str = "all"
    space: str = "forms-to-fusion"
    train: str = "hloenv://dataset/train?max_instructions=600"
    validation: str = "hloenv://dataset/validation?max_instructions=600"
    estimator: str = DEFAULT_ESTIMATOR
    reward: str = ""
    demonstrations: int = 400
    search: str = "hill-climb"
    estimates: int = 120
    imitation_epochs: int = 20
    imitation_rate: float = 1e-3
    evaluate_passes: int = 5
    steps: int = 20_000
    max_steps: int = 50
    num_envs: int = 8
    ppo: dict[str, Any] = field(default_factory=dict)
    width: int = 64
    rounds: int = 3
    seed: int = 0
    evaluate_every: int = 2_000
    max_validation: int = 40
    workers: int = 1
    use_ray: bool = False
    device: str = "auto"

    def __post_init__(self) -> None:
        """Checks what the environment and the network do not check."""
        if self.mode not in MODES:
            raise ArgumentError(
                f"mode must be one of {', '.join(MODES)}, got {self.mode!r}"
            )
        if not get_space(self.space).stops:
            raise ArgumentError(f"the space {self.space!r} has no decision points")
        self.check_no_file("estimator", "reward", "search")
        describe_estimator(self.estimator)
        describe_search(self.search)
        self.check_least(0, "demonstrations", "imitation_epochs", "steps", "seed")
        self.check_least(1, "estimates", "max_steps", "num_envs", "rounds")
        self.check_least(1, "evaluate_every", "evaluate_passes")
        self.check_least(1, "max_validation", "workers")
        check_width(self.width)
        self.check_finite("imitation_rate")
        if not self.imitation_rate > 0:
            raise ArgumentError(
                f"imitation_rate must be > 0, got {self.imitation_rate}"
            )
        if self.device not in ("auto", "cpu", "cuda"):
            raise ArgumentError(
                f"device must be auto, cpu or cuda, got {self.device!r}"
            )

    @property
    def total(self) -> int:
        """What a run counts: demonstrations, passes of imitation, steps of PPO."""
        return self.demonstrations + self.imitation_epochs + self.steps

    @property
    def reward_name(self) -> str:
        """The reward of a step."""
        return self.reward or f"estimate:{self.estimator}"

    def make_env(self, benchmark: str | HloModule | None = None) -> RewriteBase:
        """The environment; of `train` by default.

        Raises:
            ArgumentError: no such benchmark or reward.
        """
        given: dict[str, Any] = {
            "space": self.space,
            "observation": "alternatives",
            "reward": self.reward_name,
        }
        if self.mode == "one":
            return RewriteEnv(
                benchmark or self.train, max_steps=self.max_steps, **given
            )
        return RewriteAllEnv(benchmark or self.train, **given)
