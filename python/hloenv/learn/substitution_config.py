# SPDX-License-Identifier: Apache-2.0
"""Settings of `hloenv train substitution`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..cost.registry import describe_estimator
from ..envs.substitution import SubstitutionEnv
from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..hlo.pass_text import parse_pass
from ..hlo.passes import Pass, Pipeline
from ..runtime.executable import check_engine
from ..substitution.candidates import DEFAULT_PASSES
from .config_file import FileConfig, check_width

AGENTS = {"shared": "substitution_graph", "xrlflow": "candidate_graphs"}
_REWARDS = {"shared": "improved", "xrlflow": "saved"}


@dataclass(frozen=True)
class SubstitutionConfig(FileConfig):
    """One training run of an agent that substitutes.

    Attributes:
        agent: "shared": one scorer for all candidates, on one alternative graph;
            "xrlflow": the network of X-RLflow, on whole candidate graphs.
        train: URI of the modules that episodes start from.
        validation: URI of those that choose the best checkpoint.
        estimator: of the cost of a module, by name.
        engine: the XLA whose times the estimator has, as in `hloenv.compile`, where it
            has such; rewards have the wheel's.
        reward: of a step; empty for "improved:" and the estimator, whose return is the
            gain of the best module, or for X-RLflow's "saved:" with that agent.
        demonstrations: greedy searches over modules of `train` that are imitated first;
            0 for none.
        search_seconds: after which such a search ends where it is.
        imitation_epochs: passes over the states of these searches.
        imitation_rate: learning rate of these passes.
        passes: candidate passes whose choices are the substitutions; also those that a
            Python file registers (`hloenv.rule`).
        steps: of PPO, afterwards.
        max_steps: length of an episode.
        max_candidates: of one module; further ones are left out.
        num_envs: environments that are stepped together.
        ppo: settings of `hloenv.learn.graph_ppo.PPOConfig`, in place of its defaults.
        width: of the shared scorer's network.
        rounds: of its message passing.
        seed: of the network, the episodes and the drawn actions.
        evaluate_every: steps from one evaluation, and checkpoint, to the next.
        max_validation: modules of the validation set that are used.
        device: of the network: "cpu", "cuda", or "auto" for the GPU, if there is one.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"steps", "device", "ppo"})

    agent: str = "shared"
    train: str = "hloenv://dataset/train?max_instructions=600"
    validation: str = "hloenv://dataset/validation?max_instructions=600"
    estimator: str = "operators"
    engine: str = "wheel"
    reward: str = ""
    demonstrations: int = 80
    search_seconds: float = 600.0
    imitation_epochs: int = 20
    imitation_rate: float = 1e-3
    passes: tuple[str, ...] = DEFAULT_PASSES
    steps: int = 20_000
    max_steps: int = 50
    max_candidates: int = 200
    num_envs: int = 4
    ppo: dict[str, Any] = field(default_factory=dict)
    width: int = 64
    rounds: int = 3
    seed: int = 0
    evaluate_every: int = 2_000
    max_validation: int = 40
    device: str = "auto"

    def __post_init__(self) -> None:
        """Checks what the environment and the network do not check."""
        if self.agent not in AGENTS:
            raise ArgumentError(
                f"agent must be one of {', '.join(AGENTS)}, got {self.agent!r}"
            )
        if not self.passes:
            raise ArgumentError("passes must name one candidate pass or more")
        self.pipelines()
        check_engine(self.engine)
        self.check_no_file("estimator", "reward")
        describe_estimator(self.estimator)
        self.check_least(0, "seed", "steps", "demonstrations", "imitation_epochs")
        self.check_least(1, "max_steps", "max_candidates", "num_envs")
        self.check_least(1, "rounds", "evaluate_every", "max_validation")
        check_width(self.width)
        self.check_finite("imitation_rate", "search_seconds")
        for name in ("imitation_rate", "search_seconds"):
            if not getattr(self, name) > 0:
                raise ArgumentError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ArgumentError(
                f"device must be auto, cpu or cuda, got {self.device!r}"
            )

    def pipelines(self) -> list[Pass | Pipeline]:
        """`passes`, with their options.

        Raises:
            UnknownPassError, PassOptionError: no such pass or option.
        """
        return [parse_pass(each) for each in self.passes]

    @property
    def imitates(self) -> bool:
        """Whether the network imitates searches before PPO."""
        return self.demonstrations > 0 and self.imitation_epochs > 0

    @property
    def total(self) -> int:
        """What a run counts: demonstrations, passes of imitation, steps of PPO."""
        imitation = self.demonstrations + self.imitation_epochs
        return self.steps + (imitation if self.imitates else 0)

    @property
    def reward_of_step(self) -> str:
        """`reward`, or the agent's."""
        return self.reward or f"{_REWARDS[self.agent]}:{self.estimator}"

    @property
    def ppo_settings(self) -> dict[str, Any]:
        """`ppo`, with the agent's defaults."""
        # X-RLflow's network does not see how many steps are left.
        return {"bootstraps": self.agent == "xrlflow"} | self.ppo

    def make_env(
        self, benchmark: str | HloModule | None = None, *, room: int = 0
    ) -> SubstitutionEnv:
        """The environment; of `train` by default.

        Args:
            benchmark: of its episodes.
            room: of candidates of small modules, as in `SubstitutionEnv`.

        Raises:
            ArgumentError: no such benchmark or reward.
        """
        return SubstitutionEnv(
            benchmark or self.train,
            observation=AGENTS[self.agent],
            passes=self.pipelines(),
            reward=self.reward_of_step,
            max_steps=self.max_steps,
            max_candidates=self.max_candidates,
            room=room,
        )
