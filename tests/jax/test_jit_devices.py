# SPDX-License-Identifier: Apache-2.0
"""Functions of hloenv.jit on several devices: jax has one trace for all of them."""

from __future__ import annotations

import os
import sys

import jax
import jax.numpy as jnp
import pytest

import hloenv
from support.jit_functions import depthwise

pytestmark = [pytest.mark.jax, pytest.mark.compile]

TWO_DEVICES = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
}
PRELUDE = """
import warnings
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import hloenv
from hloenv.jax import timed_call
from support.jit_functions import FASTER, depthwise, small_loop, square

def compare(plain, other, *, seconds, **_):
    jax.block_until_ready((plain(), other()))
    return FASTER

timed_call.compare = compare
warnings.simplefilter("error")
mesh = Mesh(jax.devices(), "x")
SPECS = PartitionSpec(), PartitionSpec("x")

def same(ours, theirs):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.sharding.is_equivalent_to(other.sharding, one.ndim)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

K, X = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((2, 28, 28, 32))
"""


def test_a_form_for_one_device_is_not_partitioned(run_child):
    run_child(
        PRELUDE
        + """
fast = hloenv.jit(depthwise, remember=False)
fast(K, X)
assert len(fast.decided) == 1
for spec in SPECS:
    sharded = jax.device_put(X, NamedSharding(mesh, spec))
    same(fast(K, sharded), jax.jit(depthwise)(K, sharded))
    assert "stablehlo.convolution" in fast._decided.lower(K, sharded).as_text()
elsewhere = jax.device_put((K, X), jax.devices()[1])
same(fast(*elsewhere), jax.jit(depthwise)(*elsewhere))
assert "stablehlo.convolution" not in fast._decided.lower(*elsewhere).as_text()
same(fast(K, X), jax.jit(depthwise)(K, X))
""",
        env=TWO_DEVICES,
    )


def test_the_wheels_code_runs_on_one_device_only(run_child):
    run_child(
        PRELUDE
        + """
def smoothed(rows):
    def step(state, row):
        state = jnp.tanh(state * 0.9 + row)
        return state, state.sum()
    return jax.lax.scan(step, jnp.zeros(20_000), rows)

fast = hloenv.jit(smoothed, remember=False)
rows = jnp.ones((4, 20_000))
fast(rows)
assert [each.engine for each in fast.decided] == ["wheel"]
for spec in (PartitionSpec(), PartitionSpec(None, "x")):
    sharded = jax.device_put(rows, NamedSharding(mesh, spec))
    same(fast(sharded), jax.jit(smoothed)(sharded))
    assert "hloenv_run" not in fast._decided.lower(sharded).as_text()
elsewhere = jax.device_put(rows, jax.devices()[1])
same(fast(elsewhere), jax.jit(smoothed)(elsewhere))
same(fast(rows), jax.jit(smoothed)(rows))
assert "hloenv_run" in fast._decided.lower(rows).as_text()
""",
        env=TWO_DEVICES,
    )


def test_kernels_for_one_device_on_others(run_child):
    run_child(
        PRELUDE
        + """
fast = hloenv.jit(small_loop, remember=False)
x = square(4)
fast(x)
assert len(fast.decided) == 1
for spec in SPECS:
    sharded = jax.device_put(x, NamedSharding(mesh, spec))
    before = fast.num_injected
    same(fast(sharded), jax.jit(small_loop)(sharded))
    assert fast.num_injected == before
elsewhere = jax.device_put(x, jax.devices()[1])
same(fast(elsewhere), jax.jit(small_loop)(elsewhere))
assert fast.num_injected == before + 1
""",
        env=TWO_DEVICES,
    )


def test_one_device_is_decided_after_two(run_child):
    run_child(
        PRELUDE
        + """
fast = hloenv.jit(depthwise, remember=False)
sharded = jax.device_put(X, NamedSharding(mesh, PartitionSpec("x")))
for _ in range(2):
    fast(K, sharded)
assert fast.decided == [] and "2 devices" in fast.explain()
for _ in range(2):
    same(fast(K, X), jax.jit(depthwise)(K, X))
assert len(fast.decided) == 1 and not fast.considered[0].is_used
same(fast(K, sharded), jax.jit(depthwise)(K, sharded))
""",
        env=TWO_DEVICES,
    )


def test_a_decided_function_is_lowered_for_other_platforms():
    fast = hloenv.jit(depthwise, remember=False, budget=0)
    args = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((1, 28, 28, 32))
    fast(*args)
    assert len(fast.decided) == 1
    traced = fast._decided.trace(*args)
    texts = [
        traced.lower(lowering_platforms=(platform,)).as_text()
        for platform in ("cpu", "cuda")
    ]
    assert ["stablehlo.convolution" in text for text in texts] == [False, True]
    jax.block_until_ready(fast(*args))


def test_where_an_inner_function_places_values(run_child):
    run_child(
        PRELUDE
        + """
from jax.sharding import SingleDeviceSharding
second = SingleDeviceSharding(jax.devices()[1])
inner = jax.jit(lambda k, x: depthwise(k, x), out_shardings=second)
function = lambda k, x: inner(k, x)
fast = hloenv.jit(function, remember=False)
for _ in range(2):
    found, wanted = fast(K, X), jax.jit(function)(K, X)
    assert (found.devices(), found.committed) == (wanted.devices(), wanted.committed)
assert fast.decided == []
assert "places values" in fast.explain()
""",
        env=TWO_DEVICES,
    )
