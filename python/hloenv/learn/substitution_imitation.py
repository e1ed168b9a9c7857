# SPDX-License-Identifier: Apache-2.0
"""Greedy searches over substitutions, as examples for a network.

A greedy search estimates every candidate in every state. A network that repeats its
choices needs no estimate: it decides a module in a fraction of the time.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from .._typing import BoolArray, Float64Array
from ..cost.base import Estimator, estimates_of
from ..envs.substitution import SubstitutionEnv
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from .imitation import Example

# A candidate is right if it saves at least this share of what the best one saves, and
# the best one saves at least so much of the cost: the order of substitutions in
# different places is of no matter.
_SHARE = 0.5
_LEAST = 1e-4
# Of the steps of a later walk over the same module, those that take any candidate.
_WANDERING = 0.2


def examples_of(
    make_env: Callable[[str], SubstitutionEnv],
    uris: Sequence[str],
    count: int,
    estimator: Estimator,
    rng: np.random.Generator,
    tell: Callable[[int], None] = lambda _: None,
) -> list[Example]:
    """The states of greedy searches, and which candidates are right there.

    The first search of each module is greedy in every step. Further ones, where there
    are fewer modules than searches, take any candidate now and then, so that the
    network sees states beside the path.

    Args:
        make_env: the environment of a module.
        uris: of the modules.
        count: searches in all.
        estimator: of the cost of a module.
        rng: of the drawn candidates.
        tell: called with the number of searches so far.

    Raises:
        ArgumentError: none of the modules can be estimated and substituted.
    """
    found: list[Example] = []
    for number in range(count):
        uri = uris[number % len(uris)]
        wandering = _WANDERING if number >= len(uris) else 0.0
        # Where a pass fails on the module, or it cannot be estimated, there is none.
        with contextlib.suppress(HloEnvError):
            found += _walk(make_env(uri), estimator, rng, wandering)
        tell(number + 1)
    if not found:
        raise ArgumentError(
            f"none of the {len(uris)} modules to imitate a search on can be estimated "
            "and substituted; give others, or demonstrations = 0"
        )
    return found


def _walk(
    env: SubstitutionEnv,
    estimator: Estimator,
    rng: np.random.Generator,
    wandering: float,
) -> list[Example]:
    """One search."""
    observation, _ = env.reset()
    (cost,) = _costs(estimator, [env.module])
    if not math.isfinite(cost):
        raise ArgumentError(f"module {env.module.name!r} cannot be estimated")
    states, rewards = [], []
    while not env.is_over and env.candidates():
        costs = _costs(estimator, [each.module for each in env.candidates()])
        right = _right(cost, costs)
        states.append((observation, right))
        action = 0 if right[0] else 1 + int(np.argmin(costs))
        if rng.random() < wandering:
            allowed = np.flatnonzero(np.isfinite(costs))
            action = 1 + int(rng.choice(allowed)) if len(allowed) else 0
        cost = costs[action - 1] if action else cost
        observation, reward, *_ = env.step(action)
        rewards.append(reward)
    to_go = np.cumsum(rewards[::-1])[::-1].tolist()
    return [
        Example(observed, right, np.ones(1, np.int64), value)
        for (observed, right), value in zip(states, to_go, strict=True)
    ]


def _right(cost: float, costs: Float64Array) -> BoolArray:
    """[1 + candidates] of No-Op and the candidates, those that are right."""
    saved = cost - costs
    best = float(saved.max())
    is_worth = best > _LEAST * cost
    return np.concatenate([[not is_worth], is_worth & (saved >= _SHARE * best)])


def _costs(estimator: Estimator, modules: Sequence[HloModule]) -> Float64Array:
    """Seconds of each module; infinite where it cannot be estimated."""
    estimates = estimates_of(estimator, modules)
    seconds = [each.seconds if each.is_ok else math.inf for each in estimates]
    return np.array(seconds, np.float64)
