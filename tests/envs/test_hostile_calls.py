# SPDX-License-Identifier: Apache-2.0
"""What no environment takes: actions of wrong types, calls out of order, options."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import hloenv
import hloenv.envs
from envs.modules import small
from hloenv.envs import EpisodeOverError
from hloenv.errors import ArgumentError, HloEnvError
from substitution.modules import sum_of_products

Make = Callable[..., Any]
NAMES = ("Rewrite", "RewriteAll", "Substitution", "PassOrder")
OF_NUMBERS = ("Rewrite", "Substitution", "PassOrder")
HOSTILE = {
    "none": None,
    "text": "1",
    "bytes": b"1",
    "real": 1.5,
    "whole real": 1.0,
    "nan": float("nan"),
    "infinity": float("inf"),
    "complex": 1 + 0j,
    "true": True,
    "numpy true": np.True_,
    "numpy real": np.float32(1),
    "huge": 10**400,
    "negative": -1,
    "list": [1, 2, 3],
    "ragged": [[1], [1, 2]],
    "dictionary": {"action": 1},
    "object": object(),
    "module": hloenv,
    "array of nan": np.full(3, np.nan),
    "matrix": np.zeros((2, 2), np.int64),
    "array of text": np.array(["a"]),
    "array of objects": np.array([None, object()]),
    "array of booleans": np.ones(3, np.bool_),
    "time": np.timedelta64(1),
    "array of times": np.ones(3, "timedelta64[s]"),
}


def module_of(name: str) -> hloenv.HloModule:
    return sum_of_products() if name == "Substitution" else small()


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Any] = []

    def make(name: str, **arguments: Any) -> Any:
        given = {"benchmark": module_of(name)} | arguments
        env: Any = gymnasium.make(f"hloenv/{name}-v0", **given).unwrapped
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


def first(env: Any) -> Any:
    """An action that changes nothing."""
    return 0 if env.num_actions else np.zeros(env.max_alternatives, np.int64)


@pytest.mark.parametrize("given", HOSTILE)
@pytest.mark.parametrize("name", NAMES)
def test_actions_of_wrong_types_are_refused(name: str, given: str, make: Make) -> None:
    env = make(name)
    env.reset(seed=0)
    for call in (env.step, env.check_action):
        with pytest.raises(ArgumentError, match=r"an action must be|the action has 3"):
            call(HOSTILE[given])
    assert env.actions == []
    assert not env.is_over


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_numbers_of_all_integer_types_are_taken(name: str, make: Make) -> None:
    env = make(name)
    for given in (1, np.int8(1), np.uint64(1), np.array(1, np.int32)):
        env.reset(seed=0)
        assert env.check_action(given) == 1
    with pytest.raises(ArgumentError, match="from 0 to"):
        env.step(np.uint64(2**63))


@pytest.mark.parametrize("name", NAMES)
def test_calls_out_of_order_are_refused(name: str, make: Make) -> None:
    env = make(name, reward="op_count_delta")
    for call in (env.action_masks, lambda: env.step(0), lambda: env.observe("cost")):
        with pytest.raises(EpisodeOverError, match="call reset"):
            call()
    env.reset(seed=0)
    for _ in range(60):
        _, _, terminated, truncated, _ = env.step(first(env))
        if terminated or truncated:
            break
    assert terminated or truncated
    for _ in range(2):
        with pytest.raises(EpisodeOverError, match="call reset"):
            env.step(first(env))
    env.reset()
    env.step(first(env))


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_may_be_closed_twice(name: str, make: Make) -> None:
    env = make(name)
    env.close()
    env.reset(seed=0)
    env.step(first(env))
    env.close()
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_two_environments_are_independent(name: str, make: Make) -> None:
    one, other = make(name), make(name)
    one.reset(seed=0)
    other.reset(seed=0)
    before = other.module.fingerprint()
    one.step(1 if name in OF_NUMBERS else np.ones(3, np.int64))
    one.close()
    assert other.module.fingerprint() == before
    assert other.actions == []
    other.step(first(other))
    assert len(one.actions) == len(other.actions) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"benchmarks": "x"},
        {"benchmark": "hloenv://nowhere"},
        {"benchmark": ""},
        {"benchmark": 3},
        {"benchmark": b"hloenv://dataset"},
        {"benchmark": ["hloenv://dataset/train"]},
        {3: 4},
        {3: 4, "x": 1},
        [1],
        "benchmark",
        7,
    ],
    ids=str,
)
@pytest.mark.parametrize("name", NAMES)
def test_options_that_do_not_exist_are_refused(
    name: str, options: Any, make: Make
) -> None:
    env = make(name)
    with pytest.raises(HloEnvError):
        env.reset(seed=0, options=options)
    env.reset(seed=0)
    env.step(first(env))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("Rewrite", "max_candidates"),
        ("Rewrite", "max_steps"),
        ("RewriteAll", "max_alternatives"),
        ("RewriteAll", "max_choices"),
        ("Substitution", "max_candidates"),
        ("Substitution", "max_steps"),
        ("PassOrder", "max_steps"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, "many", True], ids=str)
def test_limits_are_integers(name: str, limit: str, value: Any, make: Make) -> None:
    with pytest.raises(ArgumentError, match=f"{limit} must be an integer >= "):
        make(name, **{limit: value})


@pytest.mark.parametrize("value", [3, None, "", b"cost", ["cost"]], ids=str)
@pytest.mark.parametrize("part", ["observation", "reward"])
@pytest.mark.parametrize("name", NAMES)
def test_parts_are_names(name: str, part: str, value: Any, make: Make) -> None:
    with pytest.raises(ArgumentError, match=f"no {part} "):
        make(name, **{part: value})
