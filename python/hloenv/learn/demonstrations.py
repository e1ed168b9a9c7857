# SPDX-License-Identifier: Apache-2.0
"""Imitation of one order of passes, before an agent learns from its reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import Float64Array, Int64Array
from ..envs.base import CompilerEnv
from ..errors import ArgumentError, ForkError, HloEnvError
from ..hlo.pass_text import parse_pass, spelled
from ..hlo.passes import Pipeline
from .baselines import fixed_order

# States in a step of the optimizer.
_BATCH = 256


@dataclass(frozen=True)
class Demonstrations:
    """Steps of episodes in which an order of passes runs.

    Attributes:
        observations: before each step.
        actions: [steps] numbers of the passes.
        returns: [steps] discounted sums of the rewards from the step on.
    """

    observations: list[Any]
    actions: Int64Array
    returns: Float64Array


def returns_of(rewards: Sequence[float], gamma: float) -> list[float]:
    """Of each step, its reward and the discounted ones that follow."""
    total, totals = 0.0, list[float]()
    for reward in reversed(rewards):
        total = reward + gamma * total
        totals.append(total)
    return totals[::-1]


def order_of(env: CompilerEnv, text: str) -> tuple[list[int], int]:
    """The numbers of the passes of a pipeline, and how many rounds it runs at most.

    Args:
        env: whose actions they are.
        text: of the pipeline, as of --pass: "cse+algsimp*".

    Raises:
        ArgumentError: one of the passes is no action.
        UnknownPassError, PassOptionError: there is no such pass or option.
    """
    parsed = parse_pass(text)
    if not isinstance(parsed, Pipeline):
        return [env.action_of(spelled(parsed))], 1
    actions = [env.action_of(spelled(each)) for each in parsed.passes]
    return actions, parsed.max_iterations if parsed.fixed_point else 1


def demonstrate(
    env: CompilerEnv,
    text: str,
    benchmarks: Sequence[str],
    *,
    gamma: float,
    max_bytes: int = 1 << 30,
) -> Demonstrations:
    """Runs an order on modules, without the passes that change nothing there.

    Args:
        env: which is reset.
        text: of the order, as `order_of` takes it.
        benchmarks: URIs of the modules; one on which a pass fails is left out.
        gamma: by which later rewards are discounted.
        max_bytes: of all observations.

    Raises:
        ArgumentError: the order changes none of the modules; or what is observed takes
            more than `max_bytes`.
        ForkError: XLA cannot run in this process.
    """
    order, rounds = order_of(env, text)
    observations, actions, returns = list[Any](), list[int](), list[float]()
    size = 0
    for uri in benchmarks:
        try:
            episode = _play(env, order, rounds, uri)
        except (ForkError, ArgumentError):
            raise
        except HloEnvError:
            continue
        if env.error:
            continue
        size += sum(num_bytes(each[0]) for each in episode)
        if size > max_bytes:
            raise ArgumentError(
                f"the observations of {len(benchmarks)} demonstrations take more than "
                f"{max_bytes >> 20} MiB; imitate fewer (demonstrations), or none "
                '(imitate = "")'
            )
        observations += [each[0] for each in episode]
        actions += [each[1] for each in episode]
        returns += returns_of([each[2] for each in episode], gamma)
    if not actions:
        raise ArgumentError(f"the order {text!r} changes no module of the train set")
    return Demonstrations(observations, np.array(actions, np.int64), np.array(returns))


def _play(
    env: CompilerEnv, order: Sequence[int], rounds: int, uri: str
) -> list[tuple[Any, int, float]]:
    """Observation, action and reward of each step."""
    observation, _ = env.reset(options={"benchmark": uri})
    steps = list[tuple[Any, int, float]]()
    for number in fixed_order(env, order, max_rounds=rounds).passes:
        after, reward, terminated, truncated, _ = env.step(number)
        steps.append((observation, number, reward))
        observation = after
        if terminated or truncated:
            break
    return steps


def num_bytes(observation: Any) -> int:
    """The size of an observation, which is an array or a dictionary of arrays."""
    arrays = observation.values() if isinstance(observation, dict) else [observation]
    return sum(each.nbytes for each in arrays)


def imitate(
    policy: Any, shown: Demonstrations, *, epochs: int, rate: float, seed: int
) -> None:
    """Trains a policy with a value function on demonstrations.

    Args:
        policy: of Stable-Baselines3; changed in place.
        shown: what to imitate.
        epochs: passes over the steps.
        rate: learning rate.
        seed: of the order in which the steps are drawn.
    """
    import torch

    rng = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), rate)
    policy.set_training_mode(True)
    for _ in range(epochs):
        drawn = rng.permutation(len(shown.actions))
        for first in range(0, len(drawn), _BATCH):
            chosen = drawn[first : first + _BATCH]
            observed = _stacked([shown.observations[i] for i in chosen])
            batch, _ = policy.obs_to_tensor(observed)
            actions = torch.from_numpy(shown.actions[chosen])
            returns = torch.from_numpy(shown.returns[chosen]).float()
            values, likelihoods, _ = policy.evaluate_actions(batch, actions)
            loss = -likelihoods.mean() + 0.5 * (values[:, 0] - returns).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
    policy.set_training_mode(False)


def _stacked(observations: Sequence[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {
            key: np.stack([each[key] for each in observations])
            for key in observations[0]
        }
    return np.stack(observations)
