# SPDX-License-Identifier: Apache-2.0
"""Checks of an episode, without what the environment remembers of it."""

from __future__ import annotations

from ..errors import HloEnvError
from ..hlo.module import HloModule
from .episode import Episode
from .pass_memo import without_dead_code


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
