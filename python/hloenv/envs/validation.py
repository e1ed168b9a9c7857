# SPDX-License-Identifier: Apache-2.0
"""Checks of an episode, without what the environment remembers of it."""

from __future__ import annotations

from typing import Any

from ..errors import HloEnvError
from ..hlo.module import HloModule
from .episode import Episode, EpisodeOverError
from .pass_memo import without_dead_code
from .state import EpisodeState


def replay(env: Episode, start: HloModule) -> tuple[HloModule, str]:
    """Runs the passes of an episode on its first module.

    Returns:
        The module that they give, and which of them fails; "" if none does.
    """
    module = without_dead_code(start)
    path: list[HloModule] = []
    # What failed ended the episode.
    for action in env.actions[: -1 if env.error else None]:
        if action > len(env.passes):
            module = path.pop() if path else module
        elif action < len(env.passes):
            try:
                result = env.runner()(module, env.passes[action])
            except HloEnvError as error:
                return module, f"{env.action_name(action)} fails: {error}"
            following = without_dead_code(result.module)
            if result.changed and following.fingerprint() != module.fingerprint():
                path.append(module)
                module = following
    return module, ""


def kind_of(error: str) -> str:
    """The type of an error of an episode; its message may differ between processes."""
    return error.partition(":")[0]


def problems_of_repeat(
    twin: Any, state: EpisodeState, claimed: EpisodeState, *, has_reward: bool
) -> list[str]:
    """What differs where an episode is repeated in another environment.

    Args:
        twin: the other environment.
        state: of the episode.
        claimed: what its reward and its error are said to be.
        has_reward: whether the reward is the same each time.
    """
    problems = []
    if kind_of(claimed.error) != kind_of(state.error):
        problems.append(
            f"the last step failed by {state.error or 'nothing'!r}, not by "
            f"{claimed.error or 'nothing'!r}"
        )
    if not has_reward:
        return problems
    try:
        twin.apply(state)
    except EpisodeOverError as error:
        return [*problems, str(error)]
    except HloEnvError as error:
        return [*problems, f"it cannot be repeated: {error}"]
    found = twin.state
    if not abs(found.reward - claimed.reward) <= 1e-9:
        problems.append(f"the reward is {found.reward}, not {claimed.reward}")
    if kind_of(found.error) != kind_of(state.error):
        problems.append(
            f"the last step fails by {found.error or 'nothing'!r}, not by "
            f"{state.error or 'nothing'!r}"
        )
    return problems


def compare_outputs(module: HloModule, start: HloModule) -> list[str]:
    """Compiles and runs both; what is wrong with the outputs of `module`."""
    from ..measurement.config import Settings
    from ..measurement.measurer import Measurer

    if module.fingerprint() == start.fingerprint():
        return []
    try:
        with Measurer(Settings(repeats=1)) as measurer:
            (result,) = measurer.measure([module], baseline=start)
    except HloEnvError as error:
        return [f"the start cannot be compiled: {error}"]
    if result.error is not None:
        return [str(result.error)]
    return []
