# SPDX-License-Identifier: Apache-2.0
"""single-kernel in jaxlib: through hloenv.jit, and on jaxlib's own modules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.hlo.module import read_trusted
from hloenv.jax import auto, injection, timed_call

pytestmark = [pytest.mark.jax, pytest.mark.compile]

MARK = "xla_cpu_small_call"


def dots(x, w):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w) @ w, c.sum()), x, None, 50)


def scatter(x, w):
    index = jnp.array([1, 3, 3])
    return jax.lax.fori_loop(
        0, 40, lambda i, c: (c * 0.9).at[index].add(w[:3] * c[i % 4]), x
    )


def branches(x, w):
    def step(c, i):
        return jax.lax.cond(i % 2 == 0, jnp.sin, lambda v: v @ w, c), i

    return jax.lax.scan(step, x, jnp.arange(30))


def nested(x, w):
    inner = lambda _, c: c @ w + 0.1  # noqa: E731
    return jax.lax.fori_loop(0, 20, lambda _, c: jax.lax.fori_loop(0, 3, inner, c), x)


def softmax(x, w):
    return jax.lax.fori_loop(0, 30, lambda _, c: jax.nn.softmax(c @ w), x)


FUNCTIONS = (
    dots,
    scatter,
    branches,
    nested,
    softmax,
    jax.grad(lambda x, w: softmax(x, w)[0, 0]),
)


@pytest.fixture
def arguments():
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal((8, 8)) * 0.3, jnp.float32) for _ in "ab"]


def check(wanted, got):
    for each, other in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_jit_makes_kernels_of_loops(fn, arguments):
    fast = hloenv.jit(
        fn, passes="single-kernel", policy="accept-all", until=None, budget=0
    )
    check(jax.jit(fn)(*arguments), fast(*arguments))
    (decided,) = fast.decided
    assert decided.num_accepted > 0
    assert MARK in decided.result.to_text()


# The position of jaxlib's module in its pipeline is not known.
@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_jaxlib_modules_are_decided_at_the_hook(fn, arguments):
    accepted = []

    def decide(proto: bytes) -> bytes:
        env = hloenv.HloEnv(read_trusted(proto))
        alternatives = env.get_alternatives("single-kernel")
        env.apply_alternatives(alternatives.decisions_for("single-kernel"))
        # The loops that replace scatters have no copies yet.
        env.run("copy-insertion")
        accepted.append(len(alternatives))
        return injection.to_jaxlib(env.module)

    wanted = jax.jit(fn)(*arguments)
    lowered = jax.jit(lambda *each: fn(*each)).lower(*arguments)
    unregister = injection.register(decide)
    try:
        compiled = lowered.compile(compiler_options=injection.fresh_options())
    finally:
        unregister()
    assert accepted[-1] > 0
    check(wanted, compiled(*arguments))


def test_a_losing_loop_stays(arguments):
    fast = hloenv.jit(
        dots, passes="single-kernel", policy="small-loops", until=None, budget=0.2
    )
    wide = jnp.ones((128, 128)) * 0.01
    fast(wide, wide)
    (considered,) = fast.considered
    assert (considered.num_alternatives, considered.num_accepted) == (1, 0)


def test_a_module_that_only_jaxlib_compiles_is_tried():
    """The wheel's XLA ends on such a scatter of jaxlib's."""

    def step(_, x):
        return jnp.tanh(jnp.take_along_axis(x, jnp.argsort(x, 0), 0))

    def loss(x):
        return jax.lax.fori_loop(0, 5, step, x).sum()

    x = jnp.asarray(np.random.default_rng(0).standard_normal((9, 13)), jnp.float32)
    fast = hloenv.jit(jax.grad(loss), remember=False)
    fast(x)
    np.testing.assert_allclose(fast(x), jax.grad(loss)(x), rtol=1e-5, atol=1e-6)
    assert "crashed" not in fast.explain()


@pytest.mark.parametrize(("call_ns", "is_tried"), [(1, True), (10**9, False)])
def test_kernels_that_save_nothing_of_a_call_are_not_compiled(
    arguments, monkeypatch, call_ns, is_tried
):
    compiled = []
    monkeypatch.setattr(timed_call, "time_of", lambda _: call_ns)
    monkeypatch.setattr(auto, "check_compiles", lambda *_, **__: compiled.append(1))
    fast = hloenv.jit(dots, remember=False)
    check(jax.jit(dots)(*arguments), fast(*arguments))
    assert bool(compiled) == is_tried
    reasons = [each.reason for each in fast.considered]
    assert ("no rule applies to a loop of jaxlib's module" in reasons) != is_tried
