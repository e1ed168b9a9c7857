# SPDX-License-Identifier: Apache-2.0
"""loop-forms: several iterations of a loop in each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture, decisions_for_rule, rules

pytestmark = pytest.mark.jax

NAME = "loop-forms"


def captured(fn, *arrays):
    module = hloenv.HloModule.from_jax(fn, *arrays)
    module = hloenv.run_passes(module, "call-inliner", "dce").module
    return module, hloenv.HloEnv(module).get_alternatives(NAME)


def check_equal(module, decided, *arrays):
    wanted = hloenv.interpret(module, *arrays)
    found = hloenv.interpret(decided, *arrays)
    for a, b in zip(wanted, found, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def scan(length, *, reverse=False):
    def fn(x, w):
        def step(state, row):
            state = jnp.tanh(state @ w + row)
            return state, (state.sum(), row.max())

        return jax.lax.scan(step, x[0], x[:length], reverse=reverse)

    return fn


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [2, 3, 8, 9, 16, 21])
@pytest.mark.parametrize("rule", ["unrolled", "pairs"])
def test_results_are_those_of_the_loop(rule, length, reverse):
    rng = np.random.default_rng(length)
    x = rng.standard_normal((21, 4), dtype=np.float32)
    w = rng.standard_normal((4, 4), dtype=np.float32)
    module, alternatives = captured(scan(length, reverse=reverse), x, w)
    assert sorted(rules(alternatives)) == ["pairs", "unrolled"]
    decided = alternatives.apply(decisions_for_rule(alternatives, rule))
    factor = {"unrolled": 8, "pairs": 2}[rule]
    assert decided.opcode_counts().get("while", 0) == int(length > factor)
    dots = decided.opcode_counts()["dot"]
    assert dots == (length if length <= factor else factor + length % factor)
    check_equal(module, decided, x, w)


def test_a_loop_that_starts_elsewhere_and_uses_its_index():
    def fn(x):
        return jax.lax.fori_loop(
            5,
            24,
            lambda i, s: s * 2 + jax.lax.dynamic_index_in_dim(x, i, 0, False),
            x[0],
        )

    x = np.arange(96, dtype=np.int32).reshape(24, 4)
    module, alternatives = captured(fn, x)
    for rule in ("unrolled", "pairs"):
        decided = alternatives.apply(decisions_for_rule(alternatives, rule))
        check_equal(module, decided, x)


def test_only_the_innermost_loops():
    def fn(x):
        def inner(s, _):
            return jnp.sin(s), None

        def outer(s, row):
            s = jax.lax.scan(inner, s + row, None, length=10)[0]
            return s, s

        return jax.lax.scan(outer, x[0], x)

    x = np.linspace(0, 1, 36, dtype=np.float32).reshape(12, 3)
    module, alternatives = captured(fn, x)
    assert sorted(rules(alternatives)) == ["pairs", "unrolled"]
    decided = alternatives.apply(decisions_for_rule(alternatives, "unrolled"))
    assert decided.opcode_counts()["while"] == 2
    check_equal(module, decided, x)


@pytest.mark.compile
def test_gradients_of_a_recurrent_layer_compile():
    def loss(w, x):
        return scan(20)(x, w)[1][0].sum()

    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 4), dtype=np.float32)
    w = rng.standard_normal((4, 4), dtype=np.float32) / 2
    module, alternatives = captured(jax.grad(loss), w, x)
    assert rules(alternatives).count("unrolled") == 2
    decided = alternatives.apply(decisions_for_rule(alternatives, "unrolled"))
    check_equal(module, decided, w, x)
    wanted, found = (
        hloenv.compile(each, isolate=False)(w, x) for each in (module, decided)
    )
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)


LOOP = """HloModule m
c {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(LIMIT)
  ROOT r = pred[] compare(i, n), direction=DIRECTION
}
b {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  step = s32[] constant(STEP)
  next = s32[] add(i, step)
  x = f32[4] get-tuple-element(p), index=1
  y = f32[4] BODY
  ROOT r = (s32[], f32[4]) tuple(next, y)
}
ENTRY e {
  x = f32[4] parameter(0)
  start = s32[] START
  t = (s32[], f32[4]) tuple(start, x)
  w = (s32[], f32[4]) while(t), condition=c, body=b
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""
USUAL = {
    "LIMIT": "20",
    "DIRECTION": "LT",
    "STEP": "1",
    "START": "constant(0)",
    "BODY": "sine(x)",
}


@pytest.mark.parametrize(
    ("changes", "is_offered"),
    [
        ({}, True),
        ({"START": "constant(-3)", "LIMIT": "7"}, True),
        ({"START": "constant(-2147483648)", "LIMIT": "2147483647"}, True),
        ({"LIMIT": "0"}, False),
        ({"LIMIT": "1"}, False),
        ({"LIMIT": "-5"}, False),
        ({"STEP": "2"}, False),
        ({"STEP": "-1"}, False),
        ({"DIRECTION": "LE"}, False),
        ({"DIRECTION": "NE"}, False),
        ({"START": "parameter(1)"}, False),
        ({"BODY": "rng(zero, one), distribution=rng_uniform"}, False),
        ({"BODY": 'custom-call(x), custom_call_target="f"'}, True),
        (
            {
                "BODY": 'custom-call(x), custom_call_target="f", '
                "custom_call_has_side_effect=true"
            },
            False,
        ),
    ],
)
def test_what_is_offered(changes, is_offered):
    text = LOOP
    if "rng" in changes.get("BODY", ""):
        text = text.replace(
            "  y =", "  zero = f32[] constant(0)\n  one = f32[] constant(1)\n  y ="
        )
    for name, value in {**USUAL, **changes}.items():
        text = text.replace(name, value)
    expected = ["pairs", "unrolled"] if is_offered else []
    assert sorted(rules(capture(text, NAME))) == expected


def test_a_loop_whose_state_has_one_array_twice():
    text = LOOP.replace("(s32[], f32[4])", "(s32[], f32[4], f32[4])")
    text = text.replace("tuple(start, x)", "tuple(start, x, x)")
    text = text.replace("tuple(next, y)", "tuple(next, y, z)")
    text = text.replace("  y =", "  z = f32[4] get-tuple-element(p), index=2\n  y =")
    for name, value in {**USUAL, "BODY": "subtract(x, z)"}.items():
        text = text.replace(name, value)
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    x = np.arange(4, dtype=np.float32)
    check_equal(
        module, alternatives.apply(decisions_for_rule(alternatives, "unrolled")), x
    )


def test_xla_knows_how_often_the_new_loop_runs():
    text = LOOP
    for name, value in USUAL.items():
        text = text.replace(name, value)
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    decided = alternatives.apply(decisions_for_rule(alternatives, "unrolled"))
    counted = hloenv.run_passes(decided, "while-loop-trip-count-annotator").module
    assert '"known_trip_count":{"n":"2"}' in counted.to_text().replace(" ", "")
