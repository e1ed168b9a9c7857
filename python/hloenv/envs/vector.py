# SPDX-License-Identifier: Apache-2.0
"""Several environments at a time, whose observations may be graphs of any size.

Gymnasium's vector environments stack observations into arrays, which graphs do not
allow. Here they are lists. The environments run on threads: XLA's passes do not hold
Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .base import CompilerEnv

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class GraphVectorEnv:
    """Steps several environments, and resets those whose episode has ended.

    Attributes:
        envs: the environments.
        num_envs: how many.
    """

    def __init__(self, makers: Sequence[Callable[[], CompilerEnv]]) -> None:
        """Makes the environments.

        Raises:
            ArgumentError: there are none.
        """
        if not makers:
            raise ArgumentError("makers must have at least one function, got none")
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self._threads = ThreadPoolExecutor(self.num_envs, "hloenv-envs")

    def reset(self, *, seed: int | None = None) -> tuple[list[Any], list[Any]]:
        """Starts an episode in each, with seeds that `seed` determines.

        Those of different `seed` have nothing in common.

        Returns:
            Lists of observations and infos.
        """
        seeds: list[int | None] = [None] * self.num_envs
        if seed is not None:
            drawn = np.random.SeedSequence(seed).generate_state(self.num_envs)
            seeds = [int(each) for each in drawn]
        results = self._threads.map(
            lambda env, own: env.reset(seed=own), self.envs, seeds
        )
        observations, infos = zip(*results, strict=True)
        return list(observations), list(infos)

    def step(
        self, actions: Sequence[Any]
    ) -> tuple[
        list[Any],
        npt.NDArray[np.float64],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
        list[dict[str, Any]],
    ]:
        """One step in each.

        Where an episode ends, the observation is the first of the next one, and the
        info has the last as "final_observation" and "final_info".

        Raises:
            ArgumentError: an action is out of range; no environment was stepped.
        """
        if len(actions) != self.num_envs:
            raise ArgumentError(
                f"there must be one action for each of {self.num_envs} environments, "
                f"got {len(actions)}"
            )
        for env, action in zip(self.envs, actions, strict=True):
            env.check_action(action)  # so that all are stepped, or none
        results = list(self._threads.map(_step, self.envs, actions))
        observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        return (
            list(observations),
            np.array(rewards, np.float64),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            list(infos),
        )

    def close(self) -> None:
        """Closes the environments."""
        self._threads.shutdown()
        for env in self.envs:
            env.close()


def _step(env: CompilerEnv, action: Any) -> Step:
    observation, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        last = {"final_observation": observation, "final_info": info}
        observation, info = env.reset()
        info = {**info, **last}
    return observation, reward, terminated, truncated, info
