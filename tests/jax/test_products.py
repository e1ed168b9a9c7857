# SPDX-License-Identifier: Apache-2.0
"""Products of bf16 that jaxlib compiles and cannot run are not used."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax import auto, timed_call, trials
from hloenv.runtime.jaxlib.products import has_product_without_code
from support.jit_functions import FASTER, MATRIX, NOISES, depthwise, filtered

pytestmark = [pytest.mark.jax, pytest.mark.compile]

MODULE = """HloModule m
%fused (p: bf16[4,8], q: bf16[8,4]) -> f32[4,4] {{
  %p = bf16[4,8]{{1,0}} parameter(0)
  %q = bf16[8,4]{{1,0}} parameter(1)
  ROOT %d = f32[4,4]{{1,0}} dot(%p, %q), lhs_contracting_dims={{1}}
}}

ENTRY %main (x: {kind}[4,8], y: {kind}[8,4]) -> f32[4,4] {{
  %x = {kind}[4,8]{{1,0}} parameter(0)
  %y = {kind}[8,4]{{1,0}} parameter(1)
  ROOT %r = f32[4,4]{{1,0}} {op}
}}
"""
FUSION = 'fusion(%x, %y), kind=kCustom, calls=%fused, config="__ynn_fusion"'
DOT = "dot(%x, %y), lhs_contracting_dims={1}"


@pytest.mark.parametrize(
    ("kind", "op", "expected"),
    [
        ("bf16", FUSION, False),
        ("bf16", DOT, True),
        ("f32", DOT, True),  # the other one, which no library has taken
        ("bf16", "fusion(%x, %y), kind=kLoop, calls=%fused", True),
    ],
)
def test_which_modules_have_such_products(kind, op, expected):
    text = MODULE.format(kind=kind, op=op)
    assert has_product_without_code(text) == expected


def test_sums_of_f32_have_code():
    arrays = jnp.ones((64, 64)), jnp.ones((64, 64))
    text = jax.jit(jnp.matmul).lower(*arrays).compile().as_text()
    assert " dot(" in text
    assert not has_product_without_code(text)


@pytest.mark.bf16_products
@pytest.mark.parametrize("budget", [0.0, 0.05])
def test_what_has_no_code_is_not_used(monkeypatch, budget):
    monkeypatch.setattr(trials, "has_product_without_code", lambda _: True)
    x = jnp.ones((128, 128), jnp.bfloat16)
    fast = hloenv.jit(lambda x: jnp.tanh(x @ x), remember=False, budget=budget)
    fast(x)
    np.testing.assert_array_equal(fast(x), jax.jit(lambda x: jnp.tanh(x @ x))(x))
    assert "no code for what it makes of a product" in fast.explain()


@pytest.mark.bf16_products
def test_the_wheel_gets_no_such_products(monkeypatch):
    found = []

    def noted(decided):
        found.append(decided)
        return decided

    def none(*_, **__):
        raise hloenv.errors.CompileError("a test")

    monkeypatch.setattr(auto, "for_wheel", noted)
    monkeypatch.setattr(auto, "compiled_by_wheel", none)
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: FASTER)

    def fn(w, x, kernel, image):
        def step(state, _):
            return jnp.tanh(state @ w), state.mean()

        return jax.lax.scan(step, x, None, length=9), depthwise(kernel, image)

    w, x = (jnp.ones((128, 128), jnp.bfloat16) / 128 for _ in range(2))
    kernel, image = jnp.ones((3, 3, 1, 32)), jnp.ones((1, 28, 28, 32))
    fast = hloenv.jit(fn, remember=False)
    fast(w, x, kernel, image)
    assert "dot-forms/wide" in fast.explain()
    (decided,) = found
    assert decided.accepted  # the other forms
    assert "dot-forms/wide" not in decided.accepted


def test_a_version_that_fails_leaves_the_others(monkeypatch):
    real, calls = timed_call.compare, []

    def compare(*args, **more):
        calls.append(1)
        if len(calls) == 2:
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: a test")
        return real(*args, **more)

    monkeypatch.setattr(timed_call, "compare", compare)

    def two(kernel, x, matrix, noises):
        return depthwise(kernel, x), jax.grad(filtered)(matrix, noises)

    kernel, image = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((1, 28, 28, 32))
    fast = hloenv.jit(two, remember=False)
    with warnings.catch_warnings():  # as it is not used, if no other version is faster
        warnings.simplefilter("ignore", hloenv.jax.FallbackWarning)
        fast(kernel, image, MATRIX, NOISES)
    assert len(calls) > 2
    assert "it failed: UNIMPLEMENTED: a test" in fast.explain()
