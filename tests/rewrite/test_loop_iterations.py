# SPDX-License-Identifier: Apache-2.0
"""Four iterations of a loop over large arrays in each."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="fusion-cuts", rule="iterations")


def arrays(size=1 << 18):
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 9, size, np.int32) for _ in range(2)]


def times(x, y, op, trips=10):
    return jax.lax.fori_loop(0, trips, lambda _, s: (s[1], op(s[0])), (x, y))


def swapped(x, y, trips=10):
    return times(x, y, lambda x: x * 3 + 1, trips)


@pytest.mark.compile
@pytest.mark.parametrize("trips", [8, 10, 11, 33])
def test_results_are_those_of_the_loop(trips):
    x, y = arrays()
    module, alternatives = captured(lambda x, y: swapped(x, y, trips), x, y)
    assert rules(alternatives) == ["iterations"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["multiply"] == 4 + trips % 4
    check_decided(module, decided, x, y)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: swapped(x, y, 7),  # few iterations
        lambda x, y: times(x, y, lambda x: jnp.cumsum(x)),  # not element by element
        lambda x, y: times(x, y, lambda x: x[::-1]),
        lambda x, y: times(x, y, lambda x: jnp.sin(x).astype(jnp.int32)),  # expensive
        lambda x, y: jax.lax.fori_loop(0, 10, lambda _, x: x * 3 + y, x),  # one array
        lambda x, y: times(x, y, lambda x: x - x.max()),  # a number of all of them
    ],
)
def test_other_loops_are_left(fn):
    _, alternatives = captured(fn, *arrays())
    assert rules(alternatives) == []


@pytest.mark.compile
def test_a_loop_that_starts_elsewhere_and_uses_its_index():
    def fn(x, y):
        def step(i, state):
            x, y, scale = state
            return y + i * scale, x * 3 - i, scale + 2

        return jax.lax.fori_loop(3, 17, step, (x, y, jnp.int32(1)))

    x, y = arrays()
    module, alternatives = captured(fn, x, y)
    assert rules(alternatives) == ["iterations"]
    check_decided(module, alternatives.apply([1]), x, y)


@pytest.mark.parametrize(("operations", "is_offered"), [(20, True), (30, False)])
def test_much_work_is_left(operations, is_offered):
    def op(x):
        for k in range(operations):
            x = x * 3 if k % 2 else x + k
        return x

    _, alternatives = captured(lambda x, y: times(x, y, op), *arrays())
    assert rules(alternatives) == ["iterations"] * is_offered


def test_small_arrays_are_left():
    _, alternatives = captured(swapped, *arrays(1 << 12))
    assert rules(alternatives) == []
