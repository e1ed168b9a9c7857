# SPDX-License-Identifier: Apache-2.0
"""Sums with a scatter into zeros as scatters into the array."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="reduce-forms", rule="scatter_into")


def case(rows=600, width=64, count=50, dtype=np.float32):
    """A table, rows of it, some several times and some outside, and updates."""
    rng = np.random.default_rng(0)
    return (
        rng.integers(-99, 99, (rows, width)).astype(dtype),
        rng.integers(-2, rows + 2, count, np.int32),
        rng.integers(-9, 9, (count, width)).astype(dtype),
    )


def gradient(x, i, u):
    return jax.grad(lambda x: (x[i] * u).sum())(x)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        (lambda x, i, u: x - gradient(x, i, u), case()),
        (lambda x, i, u: x - 0.5 * gradient(x, i, u), case()),
        (lambda x, i, u: x - u[0, 0] * (-gradient(x, i, u) * 2), case()),
        (lambda x, i, u: gradient(x, i, u) + 2 * x, case()),
        (lambda x, i, u: x + jnp.zeros_like(x).at[i, i % 64].add(u[:, 0]), case()),
        (lambda x, i, u: jnp.zeros_like(x).at[i].add(u) + x, case(dtype=np.int32)),
    ],
)
def test_results_are_equal_bit_for_bit(fn, arrays):
    module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["scatter_into"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["scatter"] == 1
    check_decided(module, decided, *arrays)


@pytest.mark.compile
def test_several_scatters_are_taken_together():
    """Of a table that is read at three places, as of words and of their contexts."""

    def step(x, i, u):
        loss = lambda x: (x[i] * x[i[::-1] // 2] * u - x[i + 1] * u).sum()  # noqa: E731
        return x - 0.25 * jax.grad(loss)(x)

    x, i, u = case()
    module, alternatives = captured(step, x % 8, i, u)
    assert rules(alternatives) == ["scatter_into"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["scatter"] == 3
    check_decided(module, decided, x % 8, i, u)


@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        # What is scattered has another reader; into other numbers; another operation.
        (lambda x, i, u: (g := gradient(x, i, u), x - g), case()),
        (lambda x, i, u: x - jnp.ones_like(x).at[i].add(u), case()),
        (lambda x, i, u: x - jnp.zeros_like(x).at[i].set(u), case()),
        # A sum that is used at once; subtracted from; times an array; too many updates; rounded sums.
        (lambda x, i, u: jnp.sqrt(x + gradient(x, i, u)), case()),
        (lambda x, i, u: gradient(x, i, u) - x, case()),
        (lambda x, i, u: x - x * gradient(x, i, u), case()),
        (lambda x, i, u: x - gradient(x, i, u), case(count=400)),
        (lambda x, i, u: x - gradient(x, i, u), case(dtype=np.float16)),
    ],
)
def test_others_are_left(fn, arrays):
    _, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == []
