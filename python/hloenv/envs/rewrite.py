# SPDX-License-Identifier: Apache-2.0
"""Rewrites: which alternatives to accept, one at a time or all of a position at once.

Both environments decide at the decision points of a space (`hloenv.search.SPACES`), in
the order of XLA's pipeline. Where nothing is decided, XLA decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from .._typing import Int64Array
from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..rewrite.game import DecisionPoint
from .candidate_actions import CandidateActions
from .candidates import Candidates
from .integers import check_limit, is_integer
from .rewrite_base import DEFAULT_BENCHMARK, RewriteBase

DEFAULT_SPACE = "early-and-fusion"


class RewriteEnv(CandidateActions, RewriteBase):
    """Accepts or rejects one alternative in each step.

    ## Action space
    `Discrete(max_candidates + 1)`: 0 ends the round: what is decided is applied, and
    the next decision point comes. 1 + y decides one alternative, as row y of
    `candidates()` says. Rows that are not there, or masked, change nothing. Each
    alternative is decided at most once; XLA decides the others. Steps may take rows
    beyond `max_candidates`, too.

    ## Observation space
    The one named by `observation`: "candidates" is rows of features with a mask,
    "alternatives" what a graph network sees.

    ## Starting state
    A module of `benchmark`, drawn at random; `reset(options={"benchmark": uri})`
    chooses one. Decision points without alternatives are left out.

    ## Rewards
    The one named by `reward`: `hloenv.envs.list_rewards()`. More is better. The start
    is XLA's default. "estimate:NAME" takes any estimator of `hloenv.cost`.

    ## Episode end
    `terminated` when the last round has ended, or when a pass fails (`info["error"]`);
    `truncated` after `max_steps` actions.

    ## Information
    `benchmark` (URI), `op_count`, `changed`, `round` (decision points behind),
    `alternatives` (of this round), `action_mask`, and `error` where a pass failed.

    ## Arguments
    See `__init__`.

    ## Version history
    v0: first version.
    """

    NO_CANDIDATE: ClassVar[str] = "apply"

    def __init__(
        self,
        benchmark: str | HloModule = DEFAULT_BENCHMARK,
        *,
        space: str | Sequence[DecisionPoint] = DEFAULT_SPACE,
        observation: str = "candidates",
        reward: str = "roofline",
        max_steps: int = 50,
        max_candidates: int = 1024,
        render_mode: str | None = None,
    ) -> None:
        """Makes the environment.

        Args:
            benchmark: URI of the modules that episodes start from, or a module.
            space: what is decided where: the name of a space, or decision points.
            observation: name of the observation.
            reward: name of the reward.
            max_steps: actions after which an episode is truncated.
            max_candidates: size of the declared action space.
            render_mode: None, "ansi" or "rgb_array".

        Raises:
            ArgumentError: no such benchmark, observation or reward; a space without
                decision points.
            UnknownSpaceError: no such space.
        """
        check_limit("max_candidates", max_candidates)
        self.max_candidates = max_candidates
        super().__init__(
            space,
            benchmark=benchmark,
            observation=observation,
            reward=reward,
            max_steps=max_steps,
            max_rows=max_candidates,
            render_mode=render_mode,
        )
        self.action_space = spaces.Discrete(max_candidates + 1)

    def check_action(self, action: Any) -> int:
        """The number of an action that `step` would take now."""
        self.check_running()
        rows = self.candidates()
        limit = max(self.max_candidates, 0 if rows is None else len(rows))
        if not is_integer(action) or not 0 <= action <= limit:
            raise ArgumentError(
                f"an action must be an integer from 0 to {limit}, got {action!r}"
            )
        return int(action)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """[max_candidates + 1] what decides something that is open; 0 always may."""
        self.check_begun()
        masks = np.zeros(self.num_actions, np.bool_)
        masks[0] = True
        if (rows := self.candidates()) is not None:
            kept = rows.allowed[: self.max_candidates]
            masks[1 : 1 + len(kept)] = kept
        return masks

    def _rows(self) -> Candidates:
        return self.table().open_rows(self._decisions, self._is_decided)

    def _act(self, number: Any) -> None:
        rows = self.candidates()
        if rows is None:
            return
        if number == 0:
            self._end_round()
        elif number <= len(rows) and rows.allowed[number - 1]:
            alternative = rows.alternative[number - 1]
            decisions = self._decisions.copy()
            decisions[alternative] = rows.choice[number - 1]
            self._take(decisions)
            self._is_decided[alternative] = True


class RewriteAllEnv(RewriteBase):
    """Decides all alternatives of one position in each step.

    ## Action space
    `MultiDiscrete`: for each alternative 0, as XLA decides, or 1 + c for its choice c,
    0 of which is the original. It has `max_alternatives` elements, of which those
    behind the last alternative are ignored, of up to `max_choices` choices; a choice
    that is not there, or masked, stands for 0. Steps also take a vector with one
    element for each alternative, which has no limits but must be right.

    ## Observation space, starting state, rewards, information
    As `RewriteEnv`. `action_mask` has `max_choices + 1` flags for each element.

    ## Episode end
    `terminated` after the last decision point, or when a pass fails.

    ## Arguments
    See `__init__`.

    ## Version history
    v0: first version.
    """

    def __init__(
        self,
        benchmark: str | HloModule = DEFAULT_BENCHMARK,
        *,
        space: str | Sequence[DecisionPoint] = DEFAULT_SPACE,
        observation: str = "candidates",
        reward: str = "roofline",
        max_alternatives: int = 256,
        max_choices: int = 4,
        render_mode: str | None = None,
    ) -> None:
        """Makes the environment.

        Args:
            benchmark: URI of the modules that episodes start from, or a module.
            space: what is decided where: the name of a space, or decision points.
            observation: name of the observation.
            reward: name of the reward.
            max_alternatives: alternatives of the declared action space.
            max_choices: of each of them, the original included.
            render_mode: None, "ansi" or "rgb_array".

        Raises:
            ArgumentError: no such benchmark, observation or reward; a space without
                decision points.
            UnknownSpaceError: no such space.
        """
        check_limit("max_alternatives", max_alternatives)
        check_limit("max_choices", max_choices, least=2)
        self.max_choices = max_choices
        self.max_alternatives = max_alternatives
        super().__init__(
            space,
            benchmark=benchmark,
            observation=observation,
            reward=reward,
            max_steps=None,
            max_rows=max_alternatives * (max_choices + 1),
            render_mode=render_mode,
        )
        self.action_space = spaces.MultiDiscrete([max_choices + 1] * max_alternatives)

    @property
    def num_actions(self) -> int:
        """0: the actions have no numbers."""
        return 0

    def action_name(self, action: Any) -> str:
        """Name of an action: its elements."""
        return ",".join(map(str, action))

    def action_of(self, name: str) -> Int64Array:
        """The action of a name."""
        try:
            return np.array([int(each) for each in name.split(",") if each], np.int64)
        except ValueError:
            raise ArgumentError(
                f"the state has the action {name!r}; actions here are integers, joined "
                "by commas"
            ) from None

    def check_action(self, action: Any) -> tuple[int, ...]:
        """The positions that `step` would take now, one for each alternative."""
        self.check_running()
        rows = self.candidates()
        count = 0 if rows is None else len(rows.first)
        try:
            array = np.asarray(action)
        except ValueError:  # lists of several lengths
            array = np.array(None)
        if array.size == 0:
            array = array.astype(np.int64)
        is_vector = array.ndim == 1 and array.dtype.kind in "iu"
        if not is_vector or len(array) not in (count, self.max_alternatives):
            raise ArgumentError(
                f"an action must be {count} integers, one for each alternative, or "
                f"{self.max_alternatives}, got {action!r:.80}"
            )
        if rows is None:
            return ()
        positions = np.zeros(count, np.int64)
        positions[: len(array)] = array[:count]
        limits = self.table().alternatives.num_choices
        is_wrong = (positions < 0) | (positions > limits)
        if is_wrong.any() and len(array) != self.max_alternatives:
            raise ArgumentError(
                f"the action has {positions[is_wrong][0]} for alternative "
                f"{np.flatnonzero(is_wrong)[0]}, which takes 0 to "
                f"{limits[is_wrong][0]}"
            )
        positions[is_wrong] = 0
        positions[~rows.allowed[rows.first + positions]] = 0
        return tuple(positions.tolist())

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """[max_alternatives * (max_choices + 1)] what may be taken; 0 always may."""
        self.check_begun()
        masks = np.zeros((self.max_alternatives, self.max_choices + 1), np.bool_)
        masks[:, 0] = True
        if (rows := self.candidates()) is not None:
            position = rows.choice + 1
            fits = (rows.alternative < self.max_alternatives) & (
                position <= self.max_choices
            )
            masks[rows.alternative[fits], position[fits]] = rows.allowed[fits]
        return masks.reshape(-1)

    def _act(self, number: Any) -> None:
        rows = self.candidates()
        if rows is None:
            return
        self._take(rows.decisions(np.array(number, np.int64)))
        self._end_round()
