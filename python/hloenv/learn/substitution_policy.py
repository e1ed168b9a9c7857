# SPDX-License-Identifier: Apache-2.0
"""The policy of an agent that substitutes: one substitution in each round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..envs.substitution import SubstitutionEnv
from ..errors import ArgumentError
from ..policies.base import PolicySpecError
from .substitution_agent import SubstitutionAgent, load_substitution_agent

if TYPE_CHECKING:
    from .._typing import Int64Array
    from ..hlo.module import HloModule
    from ..hlo.passes import Pass, Pipeline
    from ..rewrite.alternatives import Alternatives
    from ..substitution.candidates import Candidate


# Instructions that a form of one operation may add to a small module, which trainings
# do not start from.
ROOM = 200


class SubstitutionPolicy:
    """Takes the agent's likeliest substitution, or keeps every original at the end.

    It decides once for each round of capture and decisions, and remembers the episode:
    a module that is not what the last round has made begins another.

    Attributes:
        agent: that chooses.
        usual_passes: the candidate passes that it knows, to be captured together.
        usual_rounds: the longest episode.
    """

    def __init__(self, agent: SubstitutionAgent) -> None:
        self.agent = agent
        self.usual_passes: tuple[Pass | Pipeline, ...] = tuple(
            self.agent.config.pipelines()
        )
        self.usual_rounds = self.agent.config.max_steps
        self._episode: _Episode | None = None

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices: of one alternative, or none.

        Raises:
            ArgumentError: the alternatives are not those of `usual_passes`.
            HloEnvError: a pass fails on the module.
        """
        decisions = alternatives.reject_all()
        if len(alternatives) == 0:
            return decisions
        module = alternatives.apply(decisions)
        fingerprint = module.fingerprint()
        episode = self._episode
        if episode is None or episode.fingerprint != fingerprint or episode.is_new:
            episode = self._episode = _Episode(self.agent, module)
        taken = episode.take()
        if taken is not None:
            index, choice = _place_of(taken, alternatives)
            decisions[index] = choice
        return decisions


class _Episode:
    """Of one module."""

    def __init__(self, agent: SubstitutionAgent, module: HloModule) -> None:
        self._env: SubstitutionEnv = agent.config.make_env(module, room=ROOM)
        self._env.skip_rewards()
        self._choose: Callable[[Any], int] = agent.chooser(self._env)
        self._observation, _ = self._env.reset()
        self._start = self.fingerprint

    @property
    def fingerprint(self) -> str:
        """Of the module now."""
        return self._env.module.fingerprint()

    @property
    def is_new(self) -> bool:
        """Whether the module is the start, to which no substitution leads back."""
        return self.fingerprint == self._start

    def take(self) -> Candidate | None:
        """The next substitution; None at the end."""
        if self._env.is_over:
            return None
        action = self._choose(self._observation)
        candidates = self._env.candidates()
        self._observation, *_ = self._env.step(action)
        return candidates[action - 1] if action else None


def _place_of(taken: Candidate, alternatives: Alternatives) -> tuple[int, int]:
    """The alternative and the choice of a candidate of the environment's capture."""
    for each in alternatives:
        if each.original == taken.original and taken.choice < len(each.choices):
            choice = each.choices[taken.choice]
            if taken.rule in (choice.rule, *choice.passes):
                return each.index, taken.choice
    raise ArgumentError(
        f"the agent substitutes {taken.name}, which is not among the alternatives: "
        "capture the passes of policy.usual_passes, all of them together"
    )


def make_from_checkpoint(path: str, _: int) -> SubstitutionPolicy:
    """The policy "substitution:CHECKPOINT", for any seed.

    Raises:
        PolicySpecError: there is no such file.
        CheckpointError: as `load_substitution_agent`.
    """
    try:
        return SubstitutionPolicy(load_substitution_agent(path))
    except FileNotFoundError as error:
        raise PolicySpecError(f"substitution:{path}: {error}") from None
