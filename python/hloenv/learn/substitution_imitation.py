# SPDX-License-Identifier: Apache-2.0
"""Greedy searches over substitutions, as examples for a network.

A greedy search estimates every candidate in every state. A network that repeats its
choices needs no estimate: it decides a module in a fraction of the time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .._files import replacing
from .._typing import BoolArray, Float64Array
from ..cost.base import Estimator, estimates_of
from ..envs.substitution import SubstitutionEnv
from ..errors import ArgumentError
from ..hlo.module import HloModule
from .demonstrations import returns_of
from .imitation import Example, read_lines

# A candidate is right if it saves at least this share of what the best one saves, and
# the best one saves at least so much of the cost: the order of substitutions in
# different places is of no matter.
_SHARE = 0.5
_MIN_GAIN = 1e-4
_CHUNK = 8  # modules that are estimated before a search looks at the clock


@dataclass(frozen=True)
class Walk:
    """One search.

    Attributes:
        uri: of the module; empty where it cannot be estimated or substituted.
        actions: of the steps.
        right: of each step, the actions that were right.
    """

    uri: str
    actions: tuple[int, ...] = ()
    right: tuple[tuple[int, ...], ...] = ()


def search(
    env: SubstitutionEnv,
    uri: str,
    estimator: Estimator,
    rng: np.random.Generator,
    *,
    wandering: float = 0.0,
    seconds: float = math.inf,
) -> Walk:
    """Takes the cheapest candidate in each step, until none saves anything.

    Args:
        env: which is reset; its rewards are not computed.
        uri: of the module.
        estimator: of the cost of a module.
        rng: of the drawn candidates.
        wandering: share of the steps that take any candidate, so that there are states
            beside the path.
        seconds: after which the search ends where it is.

    Raises:
        HloEnvError: a pass fails on the module, or it cannot be estimated.
    """
    env.skip_rewards()
    env.reset(options={"benchmark": uri})
    (cost,) = _costs(estimator, [env.module])
    if not math.isfinite(cost):
        raise ArgumentError(f"module {env.module.name!r} cannot be estimated")
    actions: list[int] = []
    right: list[tuple[int, ...]] = []
    end = time.monotonic() + seconds
    while not env.is_over and env.candidates():
        costs = _costs_until(end, estimator, [each.module for each in env.candidates()])
        if costs is None:
            break
        right.append(tuple(np.flatnonzero(_right(cost, costs)).tolist()))
        action = 0 if right[-1] == (0,) else 1 + int(np.argmin(costs))
        if rng.random() < wandering:
            allowed = np.flatnonzero(np.isfinite(costs))
            action = 1 + int(rng.choice(allowed)) if len(allowed) else 0
        cost = costs[action - 1] if action else cost
        actions.append(action)
        env.step(action)
    return Walk(uri, tuple(actions), tuple(right))


def examples_of(env: SubstitutionEnv, walk: Walk, gamma: float) -> list[Example]:
    """The states of a search, and which candidates are right there.

    Args:
        env: which is reset.
        walk: the search.
        gamma: by which later rewards are discounted.

    Raises:
        HloEnvError: a pass fails on the module.
        ArgumentError: the module has other candidates than when it was searched.
    """
    states, rewards = [], []
    observation, _ = env.reset(options={"benchmark": walk.uri})
    for action, right in zip(walk.actions, walk.right, strict=True):
        mask = np.zeros(1 + len(env.candidates()), np.bool_)
        if env.is_over or max(action, *right) >= len(mask):
            raise ArgumentError(
                f"the search of {walk.uri} is of another version of hloenv; delete its "
                "file"
            )
        mask[list(right)] = True
        states.append((observation, mask))
        observation, reward, *_ = env.step(action)
        rewards.append(reward)
    values = returns_of(rewards, gamma)
    return [
        Example(observed, right, np.ones(1, np.int64), value)
        for (observed, right), value in zip(states, values, strict=True)
    ]


def write_walks(path: Path, walks: Iterable[Walk]) -> None:
    """Writes searches, one line each, over what the file holds."""
    with replacing(path) as draft:
        lines = [json.dumps(asdict(each)) + "\n" for each in walks]
        draft.write_text("".join(lines), encoding="utf-8")


def read_walks(path: Path) -> list[Walk]:
    """The searches of a file; none where there is no file.

    Raises:
        CheckpointError: as `read_lines`.
    """
    return read_lines(
        path,
        lambda row: Walk(
            row["uri"],
            tuple(map(int, row["actions"])),
            tuple(tuple(map(int, each)) for each in row["right"]),
        ),
    )


def _costs_until(
    end: float, estimator: Estimator, modules: Sequence[HloModule]
) -> Float64Array | None:
    """The costs; None where they are not known by `end`, a time of the clock."""
    found = []
    for start in range(0, len(modules), _CHUNK):
        if time.monotonic() >= end:
            return None
        found.append(_costs(estimator, modules[start : start + _CHUNK]))
    return np.concatenate(found)


def _right(cost: float, costs: Float64Array) -> BoolArray:
    """[1 + candidates] of No-Op and the candidates, those that are right."""
    saved = cost - costs
    best = float(saved.max())
    is_worth = best > _MIN_GAIN * cost
    return np.concatenate([[not is_worth], is_worth & (saved >= _SHARE * best)])


def _costs(estimator: Estimator, modules: Sequence[HloModule]) -> Float64Array:
    """Seconds of each module; infinite where it cannot be estimated."""
    estimates = estimates_of(estimator, modules)
    seconds = [each.seconds if each.is_ok else math.inf for each in estimates]
    return np.array(seconds, np.float64)
