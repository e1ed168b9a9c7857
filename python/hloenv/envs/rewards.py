# SPDX-License-Identifier: Apache-2.0
"""Named rewards: what a step is worth.

    register_reward("depth", "...", unit="...", compute=lambda env: ...)

`compute(env)` is called after each step, with the node before it as `env.previous`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .._registry import Registry
from ..cost.base import Estimator
from ..cost.roofline import Roofline
from ..errors import ArgumentError

if TYPE_CHECKING:
    from .episode import Episode
    from .pass_memo import Node


Value: TypeAlias = "Callable[[Episode, Node], float]"


@dataclass(frozen=True)
class RewardSpace:
    """One way to reward a step.

    Attributes:
        compute: the reward of the step that the environment has just made.
        value: of a module of an episode, what a positive reward decreases.
        unit: of the reward.
        range: smallest and largest reward of one step.
        deterministic: whether the same actions give the same rewards.
        is_terminal: whether only the last step of an episode is rewarded. Then an
            episode that reaches its length is terminated, not truncated: nothing is
            to be expected after that reward.
    """

    compute: Callable[[Episode], float]
    unit: str
    value: Value
    range: tuple[float, float] = (-math.inf, math.inf)
    deterministic: bool = True
    is_terminal: bool = False


# All environments of the process share an estimator.
_ESTIMATING = threading.Lock()
_REGISTRY: Registry[RewardSpace] = Registry("reward", "rewards", ArgumentError)


def register_reward(
    name: str,
    summary: str,
    *,
    unit: str,
    compute: Callable[[Episode], float],
    value: Value | None = None,
    range: tuple[float, float] = (-math.inf, math.inf),
    deterministic: bool = True,
    is_terminal: bool = False,
) -> None:
    """Registers a reward; more is better.

    `value(env, node)` is what is to be small in the end, by default the number of
    instructions: of the modules of several episodes, the least is the best.

    Raises:
        ValueError: the name is taken.
    """
    reward = RewardSpace(
        compute, unit, value or _op_count, range, deterministic, is_terminal
    )
    _REGISTRY.add(name, summary, reward)


def get_reward(name: str) -> RewardSpace:
    """The reward of a name.

    Raises:
        ArgumentError: no reward has this name.
    """
    return _REGISTRY.find(name)[0]


def list_rewards() -> dict[str, str]:
    """Names and summaries of all rewards."""
    return _REGISTRY.summaries()


def _share_saved(value: Value) -> Any:
    """Reward: the decrease of a value, as a share of its value at the start."""

    def compute(env: Episode) -> float:
        if env.node is env.previous:
            return 0.0
        start = value(env, env.start)
        saved = value(env, env.previous) - value(env, env.node)
        return saved / start if start > 0 else 0.0

    return compute


def _log_ratio(value: Value) -> Any:
    """Reward: log of a value before the step over the value after it."""

    def compute(env: Episode) -> float:
        if env.node is env.previous:
            return 0.0
        before, after = value(env, env.previous), value(env, env.node)
        is_known = before > 0 and after > 0
        return math.log(before / after) if is_known else 0.0

    return compute


def _seconds(make_estimator: Callable[[], Estimator]) -> Value:
    """The estimated time of a module."""

    def value(env: Episode, node: Node) -> float:
        module = env.module_of(node)
        with _ESTIMATING:
            (estimate,) = make_estimator().estimate_many([module])
        return float(estimate.seconds)

    return value


def _op_count(_: Episode, node: Node) -> float:
    return float(node.op_count)


def _flops(env: Episode, node: Node) -> float:
    return env.cost_of(node).flops


def _bytes(env: Episode, node: Node) -> float:
    return env.cost_of(node).bytes


@cache
def _roofline() -> Estimator:
    return Roofline()


@cache
def _kernel_cache() -> Estimator:
    from ..cost.kernel_cache import KernelCache
    from ..measurement.store import Store

    return KernelCache(store=Store())


@cache
def _learned() -> Estimator:
    from ..cost.learned.estimator import LearnedCost

    return LearnedCost()


def _run_time(env: Episode) -> float:
    from ..measurement.measurer import Measurer

    if not env.is_over or env.error:
        return 0.0
    with Measurer() as measurer:
        (result,) = measurer.measure([env.module], baseline=env.module_of(env.start))
    env.extra_info["runtime"] = {
        "speedup": result.speedup,
        "speedup_interval": result.speedup_interval,
        "error": "" if result.error is None else result.error.message,
    }
    return math.log(result.speedup) if result.is_ok else 0.0


register_reward(
    "op_count",
    "Minus the instructions, as a share of those at the start.",
    unit="share of the start's instructions",
    compute=lambda env: -env.node.op_count / max(env.start.op_count, 1),
    range=(-math.inf, 0.0),
)
register_reward(
    "op_count_delta",
    "Instructions that the step removed, as a share of those at the start.",
    unit="share of the start's instructions",
    compute=_share_saved(_op_count),
    range=(-math.inf, 1.0),
)
register_reward(
    "op_count_log",
    "Log of the instructions before the step over those after it.",
    unit="natural logarithm of a ratio of instructions",
    compute=_log_ratio(_op_count),
)
register_reward(
    "flops",
    "Floating-point operations that the step removed, as a share of the start's.",
    unit="share of the start's flops",
    compute=_share_saved(_flops),
    value=_flops,
    range=(-math.inf, 1.0),
)
register_reward(
    "bytes",
    "Bytes accessed that the step removed, as a share of the start's.",
    unit="share of the start's bytes",
    compute=_share_saved(_bytes),
    value=_bytes,
    range=(-math.inf, 1.0),
)
register_reward(
    "roofline",
    "Log of the speed-up by the step, by the static estimate.",
    unit="natural logarithm of a speed-up",
    compute=_log_ratio(_seconds(_roofline)),
    value=_seconds(_roofline),
)
register_reward(
    "kernel_cache",
    "Log of the speed-up by the step, by the measured times of kernels.",
    unit="natural logarithm of a speed-up",
    compute=_log_ratio(_seconds(_kernel_cache)),
    value=_seconds(_kernel_cache),
    deterministic=False,
)
register_reward(
    "learned",
    "Log of the speed-up by the step, by the learned cost model of the package.",
    unit="natural logarithm of a speed-up",
    compute=_log_ratio(_seconds(_learned)),
    value=_seconds(_learned),
)
register_reward(
    "runtime",
    "At the end, log of the measured speed-up over the start; info has its interval.",
    unit="natural logarithm of a speed-up",
    compute=_run_time,
    deterministic=False,
    is_terminal=True,
)
