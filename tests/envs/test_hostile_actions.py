# SPDX-License-Identifier: Apache-2.0
"""Actions of types that no environment takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import hloenv
import hloenv.envs
from envs.modules import small
from hloenv.errors import ArgumentError
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
