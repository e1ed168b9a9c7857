# SPDX-License-Identifier: Apache-2.0
"""Gymnasium wrappers for environments that derive from `CompilerEnv`.

Gymnasium's own wrappers work too, `gymnasium.wrappers.TimeLimit` for example; but a
reward that is paid at the end, such as "runtime", needs the environment's own
`max_steps`: the environment does not see that a wrapper ends its episode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ..dataset.benchmarks import find_benchmarks
from ..errors import ArgumentError
from .base import CompilerEnv
from .state import EpisodeState, append_csv, write_parquet

Potential = Callable[[CompilerEnv], float]


def _inner(env: gymnasium.Env[Any, Any]) -> CompilerEnv:
    inner = env.unwrapped
    if not isinstance(inner, CompilerEnv):
        raise ArgumentError(
            f"this wrapper needs an environment of hloenv.envs, got {inner!r}"
        )
    return inner


class IterateBenchmarks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Each `reset` takes the next benchmark, in order and again from the first."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], uris: Sequence[str] | None = None
    ) -> None:
        """Takes the benchmarks of `uris`, by default all of the environment."""
        super().__init__(env)
        self.benchmarks = (
            list(_inner(env).benchmarks)
            if uris is None
            else [each for uri in uris for each in find_benchmarks(uri)]
        )
        if not self.benchmarks:
            raise ArgumentError("uris must name at least one benchmark, got none")
        self._next = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As `Env.reset`; a seed starts over with the first benchmark."""
        if seed is not None:
            self._next = 0
        if not (options or {}).get("benchmark"):
            uri = self.benchmarks[self._next % len(self.benchmarks)].uri
            options = {**(options or {}), "benchmark": uri}
            self._next += 1
        return super().reset(seed=seed, options=options)


def cost_potential(env: CompilerEnv) -> float:
    """Minus the mean of flops and transcendentals, as shares of the start's."""
    now, start = env.cost_of(env.node), env.cost_of(env.start)
    shares = [
        after / before
        for after, before in (
            (now.flops, start.flops),
            (now.transcendentals, start.transcendentals),
        )
        if before > 0
    ]
    return -float(np.mean(shares)) if shares else 0.0


class PotentialShaping(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds gamma * potential(after) - potential(before) to each reward.

    The potential of a terminated episode is 0, so that the policies that are optimal
    for the discount `gamma` stay the same (Ng, Harada and Russell, 1999). `info` has
    the plain reward as "unshaped_reward".
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        potential: Potential = cost_potential,
        *,
        gamma: float = 0.99,
    ) -> None:
        """Takes the potential of a state, and the agent's discount."""
        super().__init__(env)
        self._potential = potential
        self._gamma = gamma
        self._before = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As `Env.reset`."""
        result = super().reset(seed=seed, options=options)
        self._before = self._potential(_inner(self.env))
        return result

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As `Env.step`, with the shaped reward."""
        observation, reward, terminated, truncated, info = super().step(action)
        after = 0.0 if terminated else self._potential(_inner(self.env))
        shaped = float(reward) + self._gamma * after - self._before
        self._before = after
        info = {**info, "unshaped_reward": float(reward)}
        return observation, shaped, terminated, truncated, info


class LogEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Logs the state of each episode that ends to a CSV file, or as Parquet.

    A path that ends with ".parquet" is a folder to which files are added, as pyarrow,
    pandas and polars read it; the last episodes are written by `close`.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        path: str | os.PathLike[str],
        *,
        every: int = 1000,
    ) -> None:
        """Makes the file where there is none.

        Args:
            env: to log.
            path: of the file, or of the folder.
            every: episodes of one Parquet file.
        """
        super().__init__(env)
        self._path = Path(path)
        self._every = every
        self._states: list[EpisodeState] = []
        self._is_parquet = self._path.suffix == ".parquet"
        if self._is_parquet:
            self._path.mkdir(parents=True, exist_ok=True)
        else:
            append_csv(self._path, [])

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As `Env.step`."""
        result = super().step(action)
        if result[2] or result[3]:
            self._log(_inner(self.env).state)
        return result

    def close(self) -> None:
        """As `Env.close`; writes what is not written yet."""
        if self._states:
            self._write()
        super().close()

    def _log(self, state: EpisodeState) -> None:
        if not self._is_parquet:
            append_csv(self._path, [state])
            return
        self._states.append(state)
        if len(self._states) >= self._every:
            self._write()

    def _write(self) -> None:
        write_parquet(self._path, self._states)
        self._states = []


class ValidateEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replays each episode that ends; `info["validation"]` has the result."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As `Env.step`."""
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info = {**info, "validation": _inner(self.env).validate()}
        return observation, reward, terminated, truncated, info
