# SPDX-License-Identifier: Apache-2.0
"""Which differences of outputs are rounding: those of arguments with other last bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloenv.jax import outputs
from hloenv.jax.outputs import difference
from hloenv.jax.wrapping import moved_arguments
from support.jit_auto import IMAGE, KERNEL, depthwise, normal

pytestmark = [pytest.mark.jax, pytest.mark.compile]


LARGE = np.linspace(-1, 1, 1000, dtype=np.float32)


def noise(seed, scale=1e-8):
    return np.float32(scale) * np.random.default_rng(seed).standard_normal(
        1000, np.float32
    )


def test_rounding_beside_large_outputs_is_no_difference():
    """As a gradient that is zero but for rounding, of a bias before a normalization."""
    expected, actual = (LARGE, noise(0)), (LARGE, noise(1))
    assert "differ" in difference(expected, actual)
    assert difference(expected, actual, moved=lambda: (LARGE, noise(2))) == ""
    # Where the last bits of the arguments do not move it, it is wrong.
    assert difference(expected, actual, moved=lambda: expected)


def test_outputs_that_follow_the_last_bits_of_the_arguments():
    one, other, moved = (LARGE + noise(seed, 1e-3) for seed in range(3))
    assert difference((one,), (other,))
    assert difference((one,), (other,), moved=lambda: (moved,)) == ""
    # More than rounding: what is right cannot be told.
    one, other, moved = (LARGE + noise(seed, 0.1) for seed in range(3))
    assert difference((one,), (other,), moved=lambda: (moved,))
    assert difference((one,), (LARGE * 2,), moved=lambda: (one + noise(3, 1e-3),))


def test_integers_do_not_follow_the_last_bits_of_the_arguments():
    one, other = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    assert difference((one,), (other,), moved=lambda: (other,))


def test_a_large_output_that_follows_the_last_bits(monkeypatch):
    monkeypatch.setattr(outputs, "_SLICE", 100)
    one, other, moved = (LARGE + noise(seed, 1e-3) for seed in range(3))
    assert difference((one,), (other,))
    assert difference((one,), (other,), moved=lambda: (moved,)) == ""


def test_arguments_are_moved_by_their_last_bits():
    key = jax.random.key(0)
    tree = {"a": jnp.ones(4), "b": np.ones(4), "c": 2.0, "d": jnp.arange(3), "e": key}
    moved = moved_arguments(jax, tree)
    for name in "ab":
        change = np.abs(np.asarray(moved[name]) - 1)
        assert (change > 0).all()
        assert (change < 1e-6).all()
    assert moved["c"] == 2.0
    np.testing.assert_array_equal(moved["d"], tree["d"])
    assert moved["e"] is key
    assert jax.tree.map(jnp.shape, moved) == jax.tree.map(jnp.shape, tree)


def test_a_gradient_through_a_normalization():
    """A bias before it has a gradient of rounding alone."""

    def loss(bias, kernel, x):
        y = depthwise(kernel, x) + bias
        y = (y - y.mean((0, 1, 2))) / jnp.sqrt(y.var((0, 1, 2)) + 1e-5)
        return (y**3).sum()

    arguments = normal(32), KERNEL, IMAGE
    gradient = jax.grad(loss, (0, 1))
    plain = jax.jit(gradient)(*arguments)
    other = jax.grad(loss, (0, 1))(*arguments)
    assert difference(plain, other)
    again = jax.jit(gradient)(*moved_arguments(jax, arguments))
    assert difference(plain, other, moved=lambda: again) == ""
