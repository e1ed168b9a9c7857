# SPDX-License-Identifier: Apache-2.0
"""Sums with a scatter into zeros as scatters into the array."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="reduce-forms", rule="scatter_into")


def case(rows=1000, width=64, count=60, dtype=np.float32):
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
        (lambda x, i, u: x - (-gradient(x, i, u) / 4) * 2, case()),
        (lambda x, i, u: gradient(x, i, u) / 2 + 2 * x, case()),
        (lambda x, i, u: x - gradient(x, i % 9, u), case()),
        (
            lambda x, i, u: 3 * jnp.zeros_like(x).at[i].add(u) + x,
            case(dtype=np.int32),
        ),
        (
            lambda x, i, u: (
                x.reshape(1000, 4, 16)
                - gradient(
                    x.reshape(1000, 4, 16),
                    i.reshape(6, 10),
                    u.reshape(6, 10, 4, 16),
                )
            ),
            case(),
        ),
        (lambda x, i, u: x - gradient(x, i.astype(np.uint32), u), case()),
    ],
)
def test_results_are_equal_bit_for_bit(fn, arrays):
    module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["scatter_into"]
    check_decided(module, alternatives.apply([1]), *arrays)


@pytest.mark.compile
def test_several_scatters_are_taken_together():
    """Of a table that is read at three places, as of words and of their contexts."""

    def step(x, i, u):
        loss = lambda x: (x[i] * x[i[::-1] // 2] * u - x[i + 1] * u).sum()  # noqa: E731
        return x - 0.25 * jax.grad(loss)(x)

    x, i, u = case(rows=3000)
    module, alternatives = captured(step, x % 8, i, u)
    assert rules(alternatives) == ["scatter_into"]
    check_decided(module, alternatives.apply([1]), x % 8, i, u)


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.compile
def test_many_small_updates_of_one_row_are_not_lost(engine):
    def step(x, i, u):
        return x - 0.5 * gradient(x, i, u)

    x = np.ones((32_000, 16), np.float32)
    i, u = np.zeros(2000, np.int32), np.full((2000, 16), 2e-8, np.float32)
    _, alternatives = captured(step, x, i, u)
    decided = alternatives.apply([1])
    (found,) = hloenv.compile(decided, engine=engine, isolate=False)(x, i, u)
    np.testing.assert_allclose(1 - np.asarray(found)[0], 2e-5, rtol=4e-3)


@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        # What is scattered has another reader; into other numbers; another operation.
        (lambda x, i, u: (g := gradient(x, i, u), x - g), case()),
        (lambda x, i, u: x - jnp.ones_like(x).at[i].add(u), case()),
        (lambda x, i, u: x - jnp.zeros_like(x).at[i].set(u), case()),
        # A sum that is used at once; subtracted from; times an array, or a number that
        # may be infinite, or is.
        (lambda x, i, u: jnp.sqrt(x + 2 * gradient(x, i, u)), case()),
        (lambda x, i, u: gradient(x, i, u) - x, case()),
        (lambda x, i, u: x - x * gradient(x, i, u), case()),
        (lambda x, i, u: x - u[0, 0] * gradient(x, i, u), case()),
        (lambda x, i, u: x - np.float32(np.inf) * gradient(x, i, u), case()),
        (lambda x, i, u: x - gradient(x, i, u) / 0, case()),
        # Many updates; no rows; short ones; rounded sums; what XLA does itself.
        (lambda x, i, u: x - gradient(x, i, u), case(count=70)),
        (lambda x, i, u: x - jnp.zeros_like(x).at[i, i % 64].add(u[:, 0]), case()),
        (lambda x, i, u: x - gradient(x, i, u), case(width=15, rows=1200)),
        (lambda x, i, u: x - gradient(x, i, u), case(dtype=np.float16)),
        (lambda x, i, u: x + gradient(x, i, u), case()),
    ],
)
def test_others_are_left(fn, arrays):
    _, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == []
