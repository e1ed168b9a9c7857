# SPDX-License-Identifier: Apache-2.0
"""Calls of functions of hloenv.jit: what passes through, how they end."""

from __future__ import annotations

import gc
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloenv.jax import jit
from support.run_child import run_python

pytestmark = [pytest.mark.jax, pytest.mark.compile]

# Decides otherwise than XLA, and uses the result without a comparison.
DECIDED = {"policy": "reject-all", "passes": "algsimp", "budget": 0}


def halved(x, scale=1.0):
    return x / 2 * scale


@pytest.mark.parametrize("options", [{}, DECIDED])
def test_errors_of_the_function_pass_and_later_calls_run(options):
    fast = jit(lambda x, y: x / 2 + y, **options)
    x = jnp.ones(3)
    for _ in range(2):
        np.testing.assert_allclose(fast(x, x), 1.5)
        with pytest.raises(TypeError, match="shapes"):
            fast(x, jnp.ones(4))
        with pytest.raises(TypeError, match="argument"):
            fast(x)


@pytest.mark.parametrize("options", [{}, DECIDED])
def test_keywords_pass_through(options):
    fast = jit(halved, **options)
    x = jnp.ones(3)
    for _ in range(3):
        np.testing.assert_allclose(fast(x), 0.5)
        np.testing.assert_allclose(fast(x, scale=4.0), 2.0)
        np.testing.assert_allclose(fast(scale=6.0, x=x), 3.0)
    assert len(fast.considered) == 3


def test_a_call_holds_no_references_afterwards():
    fast = jit(halved, **DECIDED)
    x = np.ones(3, np.float32)
    fast(x)
    before = sys.getrefcount(x)
    for _ in range(100):
        fast(x)
    assert sys.getrefcount(x) - before < 50


def test_a_function_that_refers_to_its_jitted_self_is_collected():
    class Holder:
        fast = None

    def make():
        holder = Holder()
        holder.fast = jit(lambda x: x / (2 if holder.fast else 1))
        holder.fast(jnp.ones(3))
        return weakref.ref(holder), weakref.ref(holder.fast)

    found = make()
    jax.clear_caches()
    gc.collect()
    assert [each() for each in found] == [None, None]


def test_one_that_was_not_initialized_says_so():
    kind = type(jit(halved))
    with pytest.raises(TypeError, match="not initialized"):
        kind.__new__(kind)(1.0)


def test_after_an_interrupt_the_next_call_is_plain_and_considered(monkeypatch):
    fast = jit(halved, remember=False)
    x = jnp.ones(3)
    fast(x)
    fast._num_compiled = -1  # what an interrupted decision leaves

    def first(*_):
        raise AssertionError("this is not the first call")

    monkeypatch.setattr(type(fast), "_call_first", first)
    np.testing.assert_allclose(fast(x), 0.5)
    assert fast._num_compiled == 1


def test_a_decided_function_inside_another_is_plain():
    inner = jit(halved, **DECIDED)
    x = jnp.ones(3)
    inner(x)
    before = inner.num_injected
    np.testing.assert_allclose(jax.jit(lambda x: inner(x) + 1)(x), 1.5)
    np.testing.assert_allclose(jax.grad(lambda x: inner(x).sum())(x), 0.5)
    np.testing.assert_allclose(jax.vmap(inner)(x), 0.5)
    assert inner.num_injected == before


def test_an_output_that_is_nan_is_compared_as_equal():
    x = jnp.array([1.0, jnp.nan, -1.0])
    fast = jit(lambda x: jnp.log(x / 2), policy="reject-all", passes="algsimp")
    for _ in range(2):
        np.testing.assert_array_equal(fast(x), jnp.log(x / 2))
    (one,) = fast.considered
    assert "outputs" not in one.reason


def test_a_function_whose_outputs_are_all_nan_stays_plain():
    kernel, image = jnp.ones((3, 3, 1, 32)), jnp.full((1, 28, 28, 32), jnp.nan)

    def depthwise(kernel, image):
        return jax.lax.conv_general_dilated(
            image,
            kernel,
            (1, 1),
            "SAME",
            feature_group_count=32,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    fast = jit(depthwise, remember=False)
    assert np.isnan(fast(kernel, image)).all()
    assert fast.decided == []
    assert "NaN" in fast.considered[0].reason


# In a forked process jax itself waits for ever when it compiles.
FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import jax.numpy as jnp
import numpy as np
import hloenv
fast = hloenv.jit(lambda x: x / 2, **{options})
x = jnp.ones(8)
fast(x)
pid = os.fork()
if not pid:
    os._exit(0 if np.asarray(fast(x))[0] == 0.5 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("options", [{}, DECIDED])
def test_a_forked_process_calls_what_was_compiled(options):
    child = run_python("-c", FORK.format(options=options), timeout=60)
    assert (child.returncode, child.stderr) == (0, "")
