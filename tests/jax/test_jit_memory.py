# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit compares large results and large arguments in bounded memory."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hloenv
from hloenv.jax import compare as jax_compare
from hloenv.jax import decider, numpy_calls, outputs, shared, timed_call
from hloenv.jax.compare import compare
from hloenv.jax.outputs import compare_bitwise
from hloenv.runtime import moved as moved_module
from hloenv.runtime.compare import compare_outputs
from support.jit_functions import depthwise

pytestmark = pytest.mark.jax


def difference(one, other):
    return compare(lambda: one, lambda: other, seconds=0.001)


def test_the_comparison_of_a_large_result_takes_little_memory():
    result = jnp.linspace(0.0, 1.0, 1 << 22)  # 16 MiB
    tracemalloc.start()  # numpy's arrays, and not those of jax
    assert difference(result, result).is_equal
    assert compare_bitwise([result], [result])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * result.nbytes


VALUES = np.random.default_rng(0).standard_normal(1000)
# The first slices have much smaller values than the others.
RISING = VALUES * np.linspace(0, 1000, 1000) ** 2


@pytest.mark.parametrize(
    "expected",
    [
        VALUES,
        VALUES.astype(np.float32).reshape(10, 100),
        RISING.astype(np.float32),
        RISING[::-1].astype(np.float32),
        np.where(VALUES > 1, np.inf, VALUES).astype(np.float32),
        np.where(VALUES > 1, np.nan, VALUES),
        np.full(1000, np.nan, np.float32),
        np.zeros(1000, np.float32),
        (VALUES + 1j * RISING).astype(np.complex64),
        VALUES.astype(ml_dtypes.bfloat16),
        RISING.astype(np.int32),
        VALUES > 0,
    ],
)
@pytest.mark.parametrize("change", [0.0, 1e-9, 1e-6, 1e-3, 0.3, np.nan])
def test_slices_are_compared_as_the_whole(expected, change, monkeypatch):
    monkeypatch.setattr(moved_module, "_SLICE", 64)
    kind = expected.dtype.kind
    for at in (3, 500, 997):
        actual = expected.copy()
        if kind == "b" or (kind == "i" and np.isnan(change)):
            actual.flat[at] ^= True
        else:
            with np.errstate(all="ignore"):
                actual.flat[at] = actual.flat[at] + change * expected.flat[500]
        whole = compare_outputs([expected], [actual])
        text = outputs.difference([expected], [actual])
        assert text == ("" if whole.is_equal else str(whole))


def test_the_worst_of_several_leaves_is_named(monkeypatch):
    monkeypatch.setattr(moved_module, "_SLICE", 64)
    expected = [np.ones(5), np.ones((10, 100)), np.zeros((0, 3)), np.ones(70)]
    actual = [each.copy() for each in expected]
    actual[1][7, 3] = 3.0
    actual[3][69] = 2.0
    text = outputs.difference(expected, actual)
    assert text == str(compare_outputs(expected, actual))
    assert "worst is output 1 at [7, 3]" in text


KERNEL, IMAGE = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((1, 28, 28, 32))


def step(kernel, x, state):
    return depthwise(kernel, x), jax.tree.map(lambda each: each * 0.9, state)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("options", "what"),
    [({}, "results"), ({"donate_argnums": 2}, "donated arguments")],
)
def test_large_results_and_donated_arguments_are_not_copied(options, what, monkeypatch):
    monkeypatch.setattr(timed_call, "compare", None)
    limit = IMAGE.nbytes + 4000
    monkeypatch.setattr(jax_compare, "_MAX_COMPARED_BYTES", limit)
    if what == "donated arguments":
        monkeypatch.setattr(jax_compare, "_result_bytes", lambda results: 0)
    fast = hloenv.jit(step, remember=False, **options)
    image, state = fast(KERNEL, IMAGE, [jnp.ones(limit // 4), jnp.ones(100)])
    assert image.shape == IMAGE.shape
    assert np.all(state[1] == np.float32(0.9))
    assert fast.decided == []
    assert f"its {what} take" in fast.explain()


def test_only_donated_arguments_are_copied():
    fn = jax.jit(
        lambda a, b, c, d: (b + a, d * c), donate_argnums=1, donate_argnames="d"
    )
    a, b, c, d = (jnp.full(1000 * i, float(i)) for i in (1, 1, 4, 4))
    call = jax_compare.Consuming(fn, (a, b), {"c": c, "d": d})
    assert call.size_bytes == b.nbytes + d.nbytes
    for _ in range(2):
        assert call()[1][0] == 16
    assert not any(each.is_deleted() for each in (a, b, c, d))
    args, kwargs = call._copy()
    assert args[0] is a
    assert args[1] is not b
    assert kwargs["c"] is c
    assert kwargs["d"] is not d


def test_modules_with_large_constants_are_not_kept(monkeypatch):
    weights = jnp.arange(300.0 * 300).reshape(300, 300)
    fast = hloenv.jit(lambda x: jnp.tanh(x @ weights), remember=False)
    fast(jnp.ones((2, 300)))
    small = hloenv.jit(lambda x: jnp.tanh(x), remember=False)
    small(jnp.ones((2, 300)))
    (large,), (kept,) = fast.considered, small.considered
    assert (large.module.name, large.applied.name) == ("not_kept", "not_kept")
    assert kept.module.opcode_counts()["tanh"] == 1
    assert large.reason == kept.reason
    assert "no rule applies" in fast.explain()


def test_the_number_of_signatures_that_are_kept_is_limited(monkeypatch):
    faster = jax_compare.Comparison(speedup=2.0, interval=(1.9, 2.1))
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: faster)
    monkeypatch.setattr(decider, "_MAX_SIGNATURES", 4)
    monkeypatch.setattr(shared, "_MAX_SHARED", 4)
    references = []

    class Static:
        pass

    def fn(kernel, x, static):
        return depthwise(kernel, x) if static is None else x

    fast = hloenv.jit(fn, static_argnums=2, remember=False)
    fast(KERNEL, IMAGE, None)
    (plan,) = fast._decider.plans.values()
    for _ in range(10):
        static = Static()
        references.append(weakref.ref(static))
        fast(KERNEL, IMAGE, static)
    assert len(fast._decider.plans) == 4
    assert plan in fast._decider.plans.values()
    assert len(fast.considered) <= 5
    jax.clear_caches()
    del static
    gc.collect()
    assert sum(each() is not None for each in references) <= 4
    # The plan that is in use is still there for another compilation of its trace.
    fast(jax.device_put(KERNEL, jax.devices()[0]), IMAGE, None)


def test_the_number_of_numpy_versions_is_limited(monkeypatch):
    monkeypatch.setattr(numpy_calls, "_MAX_VERSIONS", 3)
    fast = hloenv.jit(lambda x: x + 1, outputs="numpy")
    for size in (1, 2, 3, 4, 5, 1, 2):
        assert fast(np.ones(size, np.float32)).sum() == 2 * size
    assert len(fast._versions) == 3
