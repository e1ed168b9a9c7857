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

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from ..errors import ArgumentError

# Of this package, perhaps wrapped.
Env = gymnasium.Env[Any, Any]
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class GraphVectorEnv:
    """Steps several environments, and resets those whose episode has ended.

    As Gymnasium's vector environments with `AutoresetMode.SAME_STEP`, but observations
    and infos are lists.

    Attributes:
        envs: the environments.
        num_envs: how many.
        single_observation_space: of each.
        single_action_space: of each.
        metadata: with the mode in which environments are reset.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, makers: Sequence[Callable[[], Env]]) -> None:
        """Makes the environments; they may be wrapped.

        Raises:
            ArgumentError: there are none.
        """
        if not makers:
            raise ArgumentError("makers must have at least one function, got none")
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self._threads = ThreadPoolExecutor(self.num_envs, "hloenv-envs")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Starts an episode in each, with seeds that `seed` determines.

        Those of different `seed` have nothing in common.

        Args:
            seed: of all random numbers.
            options: of the `reset` of each environment.

        Returns:
            Lists of observations and infos.
        """
        seeds: list[int | None] = [None] * self.num_envs
        if seed is not None:
            drawn = np.random.SeedSequence(seed).generate_state(self.num_envs)
            seeds = [int(each) for each in drawn]
        results = self._threads.map(
            lambda env, own: env.reset(seed=own, options=options), self.envs, seeds
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
        info has the last as "final_obs" and "final_info".

        Raises:
            ArgumentError: an action is out of range; no environment was stepped.
        """
        if len(actions) != self.num_envs:
            raise ArgumentError(
                f"there must be one action for each of {self.num_envs} environments, "
                f"got {len(actions)}"
            )
        for env, action in zip(self.envs, actions, strict=True):
            # So that all are stepped, or none.
            check(env, action)
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


def check(env: Env, action: Any) -> None:
    """Checks that the environment takes the action now.

    Raises:
        ArgumentError: it is out of range.
        EpisodeOverError: there is no episode.
    """
    inner: Any = env.unwrapped
    # A wrapper may have its own actions.
    if env.action_space is inner.action_space:
        inner.check_action(action)
    else:
        inner.check_running()


def _step(env: Env, action: Any) -> Step:
    observation, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        last = {"final_obs": observation, "final_info": info}
        observation, info = env.reset()
        info = {**info, **last}
    return observation, float(reward), terminated, truncated, info
