# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit by hloenv's rules: other forms of operations, loops as one kernel."""

from __future__ import annotations

import dataclasses
import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError
from hloenv.jax import timed_call
from hloenv.jax.compare import Comparison
from support import jax_outputs
from support.jit_functions import (
    FASTER,
    IMAGE,
    KERNEL,
    MATRIX,
    NOISES,
    SLOWER,
    depthwise,
    filtered,
    normal,
)

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]


def test_a_depthwise_convolution_takes_another_form():
    fast = hloenv.jit(depthwise)
    for _ in range(2):
        assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (one,) = fast.decided
    assert one.route == "stablehlo"
    assert sum(one.accepted.values()) == 1
    assert one.interval[0] > 1.02
    assert "on the module as jax lowers it: 1 of " in fast.explain()
    assert "float32[3,3,1,32]" in fast.explain()


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_a_resize_becomes_gathers(verdicts, method):
    def resized(x):
        return jax.image.resize(x, (1, 56, 56, 32), method)

    verdicts += [FASTER]
    fast = hloenv.jit(resized)
    assert_same(fast(IMAGE), jax.jit(resized)(IMAGE))
    (one,) = fast.decided
    assert one.accepted == {"dot-forms/sparse": 2}  # one reads what the other returns
    counts = one.applied.opcode_counts()
    assert "dot" not in counts


def test_a_gradient_of_a_resize_becomes_gathers(verdicts):
    """It gets the weights as arguments of a call."""

    def loss(x):
        return (jax.image.resize(x, (1, 56, 56, 32), "bilinear") ** 2).sum()

    verdicts += [FASTER]
    fast = hloenv.jit(jax.grad(loss))
    assert_same(fast(IMAGE), jax.jit(jax.grad(loss))(IMAGE))
    (one,) = fast.decided
    assert one.accepted == {"dot-forms/sparse": 4}


def test_operations_that_follow_each_other_all_take_another_form(verdicts):
    def chained(kernel, x):
        for _ in range(3):
            x = depthwise(kernel, x)
        return x

    verdicts += [FASTER]
    fast = hloenv.jit(chained)
    assert_same(fast(KERNEL, IMAGE), jax.jit(chained)(KERNEL, IMAGE))
    (one,) = fast.decided
    assert one.accepted == {"convolution-forms/taps": 3}
    assert "convolution" not in one.applied.opcode_counts()


def test_what_another_form_and_the_caller_read(verdicts):
    """The minima read the maxima as they were, until these have their form, too."""

    def window(x, end, op):
        return jax.lax.reduce_window(x, end, op, (5, 5), (1, 1), "SAME")

    def fn(x):
        largest = window(x, -jnp.inf, jax.lax.max)
        return window(largest, jnp.inf, jax.lax.min), largest

    verdicts += [FASTER] * 9
    x = normal(128, 128)
    fast = hloenv.jit(fn)
    for _ in range(2):
        assert_same(fast(x), jax.jit(fn)(x))
    (one,) = fast.decided
    assert "reduce-window" not in one.applied.opcode_counts()


def test_a_small_loop_becomes_one_kernel(verdicts):
    verdicts += [FASTER, SLOWER, SLOWER]
    fast = hloenv.jit(jax.grad(filtered))
    for _ in range(2):
        assert_same(fast(MATRIX, NOISES), jax.jit(jax.grad(filtered))(MATRIX, NOISES))
    (one,) = fast.decided
    assert one.route == "jaxlib"
    assert one.num_accepted >= 1
    assert "the module that jaxlib has optimized" in fast.explain()


def test_both_at_once(verdicts):
    def both(kernel, x, matrix, noises):
        return depthwise(kernel, x), jax.grad(filtered)(matrix, noises)

    # Kernels, then both.
    both_gain = dataclasses.replace(FASTER, speedup=9.0, interval=(8.9, 9.1))
    verdicts += [FASTER, both_gain, SLOWER, SLOWER]
    fast = hloenv.jit(both)
    args = KERNEL, IMAGE, MATRIX, NOISES
    for _ in range(2):
        assert_same(fast(*args), jax.jit(both)(*args))
    (one,) = fast.decided
    assert one.then is not None
    assert (one.route, one.then.route) == ("stablehlo", "jaxlib")
    assert verdicts == []


def test_plain_where_no_rule_applies():
    fast = hloenv.jit(lambda x: jnp.tanh(x @ x))
    fast(normal(64, 64))
    assert fast.decided == []
    assert "no rule applies" in fast.explain()


def test_a_slower_version_is_not_used(verdicts):
    verdicts += [SLOWER]
    fast = hloenv.jit(depthwise)
    for _ in range(2):
        assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert [each.is_used for each in fast.considered] == [False]
    assert "it is slower" in fast.explain()


def test_transformations_of_a_decided_function(verdicts):
    verdicts += [FASTER]
    fast, plain = hloenv.jit(depthwise), jax.jit(depthwise)
    fast(KERNEL, IMAGE)
    assert len(fast.decided) == 1

    def loss(fn):
        return lambda kernel, x: (fn(kernel, x) ** 2).sum()

    images = jnp.stack([IMAGE, 2 * IMAGE])
    for transform in (
        lambda fn: jax.grad(loss(fn), (0, 1))(KERNEL, IMAGE),
        lambda fn: jax.jit(jax.value_and_grad(loss(fn)))(KERNEL, IMAGE),
        lambda fn: jax.vmap(fn, (None, 0))(KERNEL, images),
        lambda fn: jax.vmap(jax.grad(loss(fn)), (None, 0))(KERNEL, images),
        lambda fn: jax.grad(lambda k: jax.vmap(loss(fn), (None, 0))(k, images).sum())(
            KERNEL
        ),
        lambda fn: jax.jvp(fn, (KERNEL, IMAGE), (KERNEL, IMAGE)),
        lambda fn: jax.jit(lambda k, x: fn(k, fn(k, x)))(KERNEL, IMAGE),
        lambda fn: jax.lax.scan(
            lambda x, _: (fn(KERNEL, x) / 9, None), IMAGE, None, length=3
        )[0],
        lambda fn: jax.checkpoint(lambda k: fn(k, IMAGE))(KERNEL),
        lambda fn: jax.linear_transpose(lambda x: fn(KERNEL, x), IMAGE)(IMAGE),
    ):
        for one, other in zip(
            jax.tree.leaves(transform(fast)),
            jax.tree.leaves(transform(plain)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-2)
    # Inside another function it is the plain one: decide the outer function.
    text = jax.jit(lambda k, x: fast(k, x)).lower(KERNEL, IMAGE).as_text()
    assert "stablehlo.convolution" in text
    assert_same(fast(KERNEL, IMAGE), plain(KERNEL, IMAGE))


def test_arguments_and_results_of_all_kinds(verdicts):
    """Static arguments, unused ones, keys, weak types, numbers, pytrees."""

    def fn(key, params, scale, mode, *, times):
        noise = jax.random.normal(key, params["x"].shape)
        y = depthwise(params["kernel"], params["x"] + 0.01 * noise)
        return {"y": y * scale, "key": jax.random.split(key)[0], "scale": scale}, (
            y if mode == "all" else times
        )

    verdicts += [FASTER] * 3
    fast = hloenv.jit(fn, static_argnums=3, static_argnames="times")
    plain = jax.jit(fn, static_argnums=3, static_argnames="times")
    params = {"kernel": KERNEL, "unused": np.ones(3), "x": IMAGE}
    for mode, times, scale in (
        ("all", 2, 2.0),
        ("one", 3, 2.0),
        ("all", 2, jnp.float32(2)),
        ("all", 2, 2.0),
    ):
        ours, ours_key = _without_key(
            fast(jax.random.key(3), params, scale, mode, times=times)
        )
        theirs, theirs_key = _without_key(
            plain(jax.random.key(3), params, scale, mode, times=times)
        )
        assert_same(ours, theirs)
        assert ours_key == theirs_key
    assert len(fast.decided) == 3, fast.explain()


def _without_key(result):
    first, second = result
    key = first.pop("key")
    return (first, second), key


def test_donations_are_kept(verdicts):
    verdicts += [FASTER]

    def step(kernel, x):
        return kernel - 0.1 * jax.grad(lambda k: (depthwise(k, x) ** 2).mean())(kernel)

    fast = hloenv.jit(step, donate_argnums=0)
    kernel = KERNEL.copy()
    result = fast(kernel, IMAGE)
    assert kernel.is_deleted()
    (one,) = fast.decided
    assert one.route == "stablehlo"
    assert_same(result, jax.jit(step)(KERNEL, IMAGE))
    again = fast(result, IMAGE)
    assert result.is_deleted()
    assert again.shape == kernel.shape


def test_donations_are_timed_on_copies():
    fast = hloenv.jit(depthwise, donate_argnums=1, budget=0.5)
    image = IMAGE.copy()
    expected = jax.jit(depthwise)(KERNEL, IMAGE)
    assert_same(fast(KERNEL, image), expected)
    (one,) = fast.decided
    assert one.speedup > 1.02
    assert image.is_deleted()


def test_without_a_budget_nothing_is_timed(monkeypatch):
    monkeypatch.setattr(timed_call, "compare", None)
    fast = hloenv.jit(depthwise, budget=0)
    assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (one,) = fast.decided
    assert one.speedup is None


def test_where_all_rules_lose_those_that_gain_alone_are_taken(verdicts, monkeypatch):
    def three(kernel, x, matrices, scores):
        products = matrices @ matrices.swapaxes(1, 2)
        return depthwise(kernel, x), products, scores.argmax(-1)

    args = KERNEL, IMAGE, normal(256, 3, 3), normal(64, 1000)
    best = Comparison(speedup=3.0, interval=(2.9, 3.1))
    # All; each alone; the two that are faster alone, together.
    verdicts += [SLOWER, FASTER, SLOWER, FASTER, best]
    first = hloenv.jit(three)
    first(*args)
    assert verdicts == []
    (one,) = first.decided
    assert (one.num_accepted, one.speedup) == (2, 3.0)
    assert_same(first(*args), jax.jit(three)(*args))

    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(three)
    assert_same(second(*args), jax.jit(three)(*args))
    (again,) = second.decided
    assert (again.accepted, again.speedup) == (one.accepted, 3.0)


def test_where_all_rules_lose_those_of_convolutions_are_tried_together(
    verdicts, monkeypatch
):
    def step(kernel, x, scores):
        def loss(kernel):
            return (depthwise(kernel, x) ** 2).sum()

        return jax.grad(loss)(kernel), scores.argmax(-1)

    args = KERNEL, IMAGE, normal(64, 1000)
    verdicts += [SLOWER, FASTER]  # all; those of convolutions
    fast = hloenv.jit(step)
    fast(*args)
    assert verdicts == []
    (one,) = fast.decided
    assert set(one.accepted) == {"convolution-forms/taps", "convolution-forms/rows"}
    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(step)
    assert_same(second(*args), jax.jit(step)(*args))
    assert [each.accepted for each in second.decided] == [one.accepted]


def test_where_all_rules_lose_kernels_alone_are_tried(verdicts):
    def both(kernel, x, matrix, noises):
        return depthwise(kernel, x), jax.grad(filtered)(matrix, noises)

    args = KERNEL, IMAGE, MATRIX, NOISES
    verdicts += [FASTER, SLOWER, SLOWER, SLOWER, SLOWER]
    fast = hloenv.jit(both)
    fast(*args)
    assert verdicts == []
    assert [each.route for each in fast.decided] == ["jaxlib"]


def test_expanded_scatters_get_their_copies(verdicts):
    """On jaxlib's module, which has its own copies already."""

    def fn(x, w):
        index = jnp.array([1, 3, 3])
        return jax.lax.fori_loop(
            0, 400, lambda i, c: (c * 0.9).at[index].add(w[:3] * c[i % 4]), x
        )

    verdicts += [FASTER, SLOWER, SLOWER]
    x, w = 0.3 * normal(8, 8), 0.3 * normal(8, 8, seed=1)
    fast = hloenv.jit(fn)
    for _ in range(2):
        assert_same(fast(x, w), jax.jit(fn)(x, w))
    (one,) = fast.decided
    assert one.accepted == {"single-kernel/loop_plain_scatters": 1}


def test_functions_that_call_python_stay_plain():
    def fn(kernel, x):
        y = depthwise(kernel, x)
        total = jax.pure_callback(
            lambda v: np.float32(v.sum()), jax.ShapeDtypeStruct((), np.float32), y
        )
        return y, total

    fast = hloenv.jit(fn)
    y, total = fast(KERNEL, IMAGE)
    np.testing.assert_allclose(total, y.sum(), rtol=1e-3)
    assert fast.decided == []
    assert "calls Python" in fast.explain()


def test_static_arguments_of_equal_value_and_other_type(verdicts):
    def fn(kernel, x, mode):
        return depthwise(kernel, x) * (1 if mode is True else 5)

    verdicts += [FASTER] * 3
    fast = hloenv.jit(fn, static_argnums=2)
    for mode in (True, 1, 1.0, True):
        expected = jax.jit(fn, static_argnums=2)(KERNEL, IMAGE, mode)
        assert_same(fast(KERNEL, IMAGE, mode), expected)
    assert len(fast.decided) == 3


def test_settings_of_jax_are_part_of_the_signature(verdicts):
    def fn(kernel, x):
        return depthwise(kernel, x), jnp.zeros(3).astype(float)

    verdicts += [FASTER] * 2
    fast = hloenv.jit(fn)
    fast(KERNEL, IMAGE)
    with jax.enable_x64(True):
        assert_same(fast(KERNEL, IMAGE), jax.jit(fn)(KERNEL, IMAGE))
        assert fast(KERNEL, IMAGE)[1].dtype == np.float64
    assert fast(KERNEL, IMAGE)[1].dtype == np.float32


def test_a_slow_function_is_not_compared_beyond_the_budget(monkeypatch):
    calls = []

    def slow(plain, seconds, running, **_):
        calls.append(seconds)
        return "a comparison takes longer than the budget"

    monkeypatch.setattr(timed_call, "exceeds", slow)
    monkeypatch.setattr(timed_call, "compare", None)
    fast = hloenv.jit(depthwise, budget=0.001)
    assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert fast.decided == []
    assert "longer than the budget" in fast.explain()
    assert calls == [0.001]


def test_a_function_that_is_gone_leaves_no_arrays(verdicts):
    verdicts += [FASTER]

    def use():
        constant = jnp.full((1, 28, 28, 32), 3.0)
        reference = weakref.ref(constant)
        fast = hloenv.jit(lambda k, x: depthwise(k, x) + constant)
        fast(KERNEL, IMAGE)
        assert len(fast.decided) == 1
        return reference

    reference = use()
    gc.collect()
    assert reference() is None


def test_auto_has_its_own_passes():
    with pytest.raises(ArgumentError, match="policy='auto' decides its own passes"):
        hloenv.jit(depthwise, passes="algsimp")


def test_what_is_written_twice_gets_one_form(verdicts):
    def fn(x):
        return jnp.argsort(x) + jnp.argsort(x), jnp.cos(x) * jnp.cos(x)

    verdicts += [FASTER]
    x = normal(10_000)
    fast = hloenv.jit(fn)
    for _ in range(2):
        assert_same(fast(x), jax.jit(fn)(x))
    (one,) = fast.decided
    assert one.accepted == {"sort-forms/packed": 1, "math-forms/periodic": 1}
