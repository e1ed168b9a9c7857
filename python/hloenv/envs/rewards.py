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

import numpy as np

from .._registry import Registry
from ..cost.base import Estimator, estimate_of
from ..cost.registry import DEFAULT_ESTIMATOR, describe_estimator, get_estimator
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
        value: of a module of an episode, what a positive reward decreases; where that
            is measured, its estimate by the kernel cache.
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


class RewardError(ArgumentError):
    """A reward, perhaps a user's, is no finite number."""


def reward_now(env: Episode, reward: RewardSpace, name: str) -> float:
    """The reward of the step that the environment has just made.

    Raises:
        RewardError: `reward.compute` does not return a finite number.
    """
    value: Any = reward.compute(env)
    number = np.asarray(value)
    if number.shape != () or number.dtype.kind not in "biuf" or not np.isfinite(number):
        raise RewardError(
            f"the reward {name!r} is {value!r}; `compute` must return a finite number "
            "after every step"
        )
    return float(number)


_LOG = "natural logarithm of a speed-up"
_PERCENT = "percent of the start's time"
# Reward of a step without a measurement, where most have none (X-RLflow's).
_BETWEEN = 0.1
# All environments of the process share an estimator.
_ESTIMATING = threading.Lock()
_REGISTRY: Registry[RewardSpace | Callable[[str], RewardSpace]] = Registry(
    "reward", "rewards", ArgumentError
)


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
    """The reward of a name, or of a family: "estimate:roofline", "measured:5".

    Raises:
        ArgumentError: no reward has this name, or what follows the colon is not valid.
    """
    made, spec = _REGISTRY.find(name)
    if isinstance(made, RewardSpace):
        return made
    return made(spec or "")


def list_rewards(*, families: bool = False) -> dict[str, str]:
    """Names and summaries of all rewards; or of the families."""
    names = _REGISTRY.names(families=families)
    return {name: _REGISTRY.describe(name).summary for name in names}


def _share_saved(value: Value) -> Any:
    """Reward: the decrease of a value, as a share of its value at the start."""

    def compute(env: Episode) -> float:
        if env.node is env.previous:
            return 0.0
        start = value(env, env.start)
        saved = _before(env, value) - value(env, env.node)
        return saved / start if start > 0 and math.isfinite(saved) else 0.0

    return compute


def _log_ratio(value: Value) -> Any:
    """Reward: log of a value before the step over the value after it."""

    def compute(env: Episode) -> float:
        if env.node is env.previous:
            return 0.0
        before, after = _before(env, value), value(env, env.node)
        is_known = before > 0 and after > 0 and math.isfinite(before / after)
        return math.log(before / after) if is_known else 0.0

    return compute


def _before(env: Episode, value: Value) -> float:
    """Of the latest node before the step that has a value; NaN if none has."""
    before = env.nodes[: len(env.actions)]
    values = (value(env, node) for node in reversed(before))
    return next((each for each in values if math.isfinite(each)), math.nan)


def _improvement(value: Value) -> Any:
    """Reward: log of the least value so far over that after the step, if it is less.

    The rewards of an episode add up to what its best module has gained, whatever the
    steps after it; steps that undo each other gain nothing (as in ECO-DQN, Barrett et
    al., 2020).
    """

    def compute(env: Episode) -> float:
        if env.node is env.previous:
            return 0.0
        before = (value(env, node) for node in env.nodes[: len(env.actions)])
        least = min((each for each in before if each > 0), default=math.nan)
        now = value(env, env.node)
        is_less = now > 0 and math.isfinite(least) and now < least
        return math.log(least / now) if is_less else 0.0

    return compute


def _seconds(make_estimator: Callable[[], Estimator]) -> Value:
    """The estimated time of a module."""

    def value(env: Episode, node: Node) -> float:
        if make_estimator not in node.values:
            module = env.module_of(node)
            with _ESTIMATING:
                estimate = estimate_of(make_estimator(), module)
            node.values[make_estimator] = float(estimate.seconds)
        return node.values[make_estimator]

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
def _estimator(name: str) -> Estimator:
    from ..measurement.store import Store

    return get_estimator(name, store=Store())


def _kernel_cache() -> Estimator:
    return _estimator(DEFAULT_ESTIMATOR)


_KERNELS_S = _seconds(_kernel_cache)


@cache
def _by_estimator(name: str) -> RewardSpace:
    is_exact = not describe_estimator(name).is_random
    value = _seconds(lambda: _estimator(name))
    return RewardSpace(_log_ratio(value), _LOG, value, deterministic=is_exact)


def _steps(name: str, spec: str) -> int:
    """The number of steps in "measured:5"."""
    if not (spec.isascii() and spec.isdecimal() and int(spec) >= 1):
        kind = name.partition(":")[0]
        raise ArgumentError(f"{name} must be {kind}:STEPS, such as {kind}:5")
    return int(spec)


@cache
def _measured_every(spec: str) -> RewardSpace:
    every = _steps(f"measured:{spec}", spec)

    def compute(env: Episode) -> float:
        found = _measured(env, every)
        return 0.0 if found is None else found[1] - found[0]

    return RewardSpace(compute, _LOG, _KERNELS_S, deterministic=False)


def _measured(env: Episode, every: int) -> tuple[float, float] | None:
    """Logs of the speed-up at the last measurement and now; None if it is not due."""
    is_due = env.is_over or len(env.actions) % every == 0
    if env.error or not is_due:
        return None
    before = env.measured
    if env.node.fingerprint != env.measured_node.fingerprint:
        now = _log_speedup(env)
        if now is None:  # as if it were not due
            return None
        env.measured, env.measured_node = now, env.node
    return before, env.measured


@cache
def _saved_by(name: str) -> RewardSpace:
    is_exact = not describe_estimator(name).is_random
    value = _seconds(lambda: _estimator(name))
    share = _share_saved(value)
    return RewardSpace(
        lambda env: 100.0 * share(env),
        _PERCENT,
        value,
        range=(-math.inf, 100.0),
        deterministic=is_exact,
    )


@cache
def _improved_by(name: str) -> RewardSpace:
    is_exact = not describe_estimator(name).is_random
    value = _seconds(lambda: _estimator(name))
    return RewardSpace(
        _improvement(value), _LOG, value, range=(0.0, math.inf), deterministic=is_exact
    )


@cache
def _saved_measured(spec: str) -> RewardSpace:
    every = _steps(f"saved_measured:{spec}", spec)

    def compute(env: Episode) -> float:
        found = _measured(env, every)
        if found is None:
            return _BETWEEN
        return 100.0 * (math.exp(-found[0]) - math.exp(-found[1]))

    return RewardSpace(compute, _PERCENT, _KERNELS_S, deterministic=False)


def _run_time(env: Episode) -> float:
    if not env.is_over or env.error or env.node.fingerprint == env.start.fingerprint:
        return 0.0
    return _log_speedup(env) or 0.0


def _log_speedup(env: Episode) -> float | None:
    """Of the module now over the start's, measured; None where that fails."""
    from ..measurement.measurer import Measurer

    with Measurer() as measurer:
        (result,) = measurer.measure([env.module], baseline=env.module_of(env.start))
    env.extra_info["runtime"] = {
        "speedup": result.speedup,
        "speedup_interval": result.speedup_interval,
        "error": "" if result.error is None else result.error.message,
    }
    return math.log(result.speedup) if result.is_ok else None


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
    "op_count_improved",
    "Log of the least number of instructions so far over those after the step, if they "
    "are fewer.",
    unit="natural logarithm of a ratio of instructions",
    compute=_improvement(_op_count),
    range=(0.0, math.inf),
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
    "Log of the speed-up by the step, by the static estimate at hloenv's rates; "
    "estimate:roofline takes those of `hloenv calibrate`.",
    unit=_LOG,
    compute=_log_ratio(_seconds(_roofline)),
    value=_seconds(_roofline),
)
register_reward(
    "kernel_cache",
    "Log of the speed-up by the step, by the measured times of kernels: "
    "estimate:kernel-cache by another name.",
    unit=_LOG,
    compute=_log_ratio(_KERNELS_S),
    value=_KERNELS_S,
    deterministic=False,
)
register_reward(
    "runtime",
    "At the end, log of the measured speed-up over the start; info has its interval.",
    unit=_LOG,
    compute=_run_time,
    value=_KERNELS_S,
    deterministic=False,
    is_terminal=True,
)
_REGISTRY.add(
    "estimate:NAME",
    "Log of the speed-up by the step, by the estimator of this name.",
    _by_estimator,
)
_REGISTRY.add(
    "measured:STEPS",
    "Every so many steps and at the end, log of the measured speed-up over the module "
    "of the last measurement; 0 in between.",
    _measured_every,
)
_REGISTRY.add(
    "saved:NAME",
    "Time that the step saves, in percent of the start's, by the estimator of this "
    "name.",
    _saved_by,
)
_REGISTRY.add(
    "improved:NAME",
    "Log of the speed-up by the step over the best module of the episode so far, by "
    "the estimator of this name; 0 where it is not faster.",
    _improved_by,
)
_REGISTRY.add(
    "saved_measured:STEPS",
    "Every so many steps and at the end, the measured time that the steps since the "
    "last measurement save, in percent of the start's; 0.1 in between.",
    _saved_measured,
)
