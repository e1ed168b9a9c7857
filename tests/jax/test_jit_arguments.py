# SPDX-License-Identifier: Apache-2.0
"""Options, arguments and results that hloenv.jit takes as jax.jit does."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax import timed_call
from hloenv.jax.wrapping import Options
from support.jax_outputs import assert_same
from support.jit_functions import FASTER, depthwise, small_loop, square

pytestmark = [pytest.mark.jax, pytest.mark.compile]

KERNEL, IMAGE = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((1, 28, 28, 32))


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def _faster(monkeypatch):
    """Every version is faster, if its outputs are equal."""
    real = timed_call.compare

    def decided_by_test(plain, other, *, seconds, **_):
        result = real(plain, other, seconds=0.0)
        return FASTER if result.is_equal else result

    monkeypatch.setattr(timed_call, "compare", decided_by_test)


@pytest.mark.usefixtures("_faster")
@pytest.mark.parametrize("empty", [None, (), []])
def test_empty_options_count_as_absent(empty):
    given = {"donate_argnames": empty, "donate_argnums": empty}
    fast = hloenv.jit(small_loop, remember=False, **given)
    for size in (3, 4):
        fast(square(size))
    assert len(fast.decided) == 2


def test_indexes_and_names_are_options():
    for given in (0, (0,), [1], "x", ("x",)):
        assert Options({"donate_argnums": given}).donates
        assert Options({"static_argnums": given}).static
    assert Options({"static_argnums": (), "static_argnames": "x"}).static == {
        "static_argnums": (),
        "static_argnames": "x",
    }
    plain = {"static_argnums": None, "static_argnames": [], "donate_argnums": []}
    assert Options(plain).static == {}
    assert not Options(plain).donates


@jax.tree_util.register_pytree_node_class
class Vector:
    """Takes arrays only, and notes its children."""

    def __init__(self, array):
        self.array, self.rank = array, array.sum().ndim

    def tree_flatten(self):
        return (self.array,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@pytest.mark.usefixtures("_faster")
@pytest.mark.parametrize(
    "fn",
    [
        depthwise,
        lambda _, x: small_loop(
            square(4) * x[0, 0, 0, 0] + jnp.arange(x.shape[0]).sum()
        ),
    ],
)
def test_pytree_nodes_that_check_their_leaves(fn):
    def wrapped(kernel, vector):
        return Vector(fn(kernel, vector.array))

    fast = hloenv.jit(wrapped, remember=False)
    for images in (IMAGE, jnp.ones((2, 28, 28, 32))):
        ours = fast(KERNEL, Vector(images))
        assert isinstance(ours, Vector)
        assert_same(ours.array, wrapped(KERNEL, Vector(images)).array)
    assert len(fast.decided) == 2


def test_random_numbers_of_the_state_of_xla_are_not_compared():
    def fn(kernel, x):
        return depthwise(kernel, x) + jax.lax.rng_uniform(0.0, 1.0, x.shape)

    fast = hloenv.jit(fn, remember=False)
    fast(KERNEL, IMAGE)
    assert fast.decided == []
    assert "random numbers" in fast.explain()


@pytest.mark.usefixtures("_faster")
def test_gradients_of_integers():
    def loss(kernel, x, n):
        return (depthwise(kernel, x) ** 2).sum() * n

    gradient = jax.grad(loss, (0, 2), allow_int=True)
    fast = hloenv.jit(gradient, remember=False)
    args = KERNEL, IMAGE, jnp.int32(2)
    for _ in range(2):
        ours, theirs = fast(*args), jax.jit(gradient)(*args)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4)
        assert ours[1].dtype == theirs[1].dtype == jax.dtypes.float0
    assert len(fast.decided) == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_functions_with_effects_are_looked_at_once(ordered, monkeypatch):
    def fn(x):
        jax.debug.callback(lambda _: None, x.sum(), ordered=ordered)
        return x * 2

    fast = hloenv.jit(fn, remember=False)
    fast(jnp.ones(3))
    assert "side effects" in fast.explain()
    monkeypatch.setattr(type(fast), "_signature", None)
    for _ in range(3):
        fast(jnp.ones(3))


def test_an_argument_may_be_named_self():
    fast = hloenv.jit(lambda self, x: self * x, remember=False)
    assert fast(self=2.0, x=3.0) == 6
    assert fast.eval_shape(self=2.0, x=3.0).shape == ()
    assert fast.lower(self=2.0, x=3.0).as_text() == (
        fast.trace(self=2.0, x=3.0).lower().as_text()
    )
    numpy = hloenv.jit(lambda self, x: self * x, outputs="numpy")
    assert numpy(self=2.0, x=3.0) == 6
