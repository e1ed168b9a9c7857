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


LAYOUTS = """HloModule m
c {
  p = (s32[], f32[2,3]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
b {
  p = (s32[], f32[2,3]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[2,3]{1,0} get-tuple-element(p), index=1
  y = f32[2,3]{1,0} BODY
  ROOT r = (s32[], f32[2,3]{1,0}) tuple(next, y)
}
ENTRY e {
  x = f32[2,3]{1,0} parameter(0)
  start = s32[] constant(0)
  t = (s32[], f32[2,3]{1,0}) tuple(start, x)
  w = (s32[], f32[2,3]{1,0}) while(t), condition=c, body=b
  ROOT r = f32[2,3]{LAYOUT} get-tuple-element(w), index=1
}
"""


@pytest.mark.parametrize(
    "body", ["constant({{1,2,3},{4,5,6}})", "bitcast(x)", "sine(x)"]
)
def test_results_keep_their_layout(body):
    text = LAYOUTS.replace("BODY", body)
    assert rules(capture(text.replace("LAYOUT", "0,1"), NAME)) == []
    module = hloenv.HloModule.from_text(text.replace("LAYOUT", "1,0"))
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    decided = alternatives.apply(decisions_for_rule(alternatives, "unrolled"))
    check_equal(module, decided, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_conditions_with_effects_and_used_roots_are_left_alone():
    text = LOOP
    for name, value in USUAL.items():
        text = text.replace(name, value)
    assert rules(capture(text, NAME)) != []
    outfeed = (
        "c {\n  q = (s32[], f32[4]) parameter(0)\n"
        "  j = s32[] get-tuple-element(q), index=0\n  tok = token[] after-all()\n"
        "  o = token[] outfeed(j, tok), outfeed_shape=s32[]\n"
    )
    first = "c {\n  p = (s32[], f32[4]) parameter(0)\n"
    effects = text.replace(
        first + "  i = s32[] get-tuple-element(p), index=0\n",
        outfeed + "  i = s32[] get-tuple-element(q), index=0\n",
    )
    assert "outfeed(" in effects
    assert rules(capture(effects, NAME)) == []
    used = text.replace(
        "  ROOT r = (s32[], f32[4]) tuple(next, y)\n}",
        "  ROOT r = (s32[], f32[4]) tuple(next, y)\n"
        "  d = s32[] get-tuple-element(r), index=0\n}",
    )
    assert used != text
    assert rules(capture(used, NAME)) == []


def test_iterations_with_large_arrays_are_not_alive_together():
    def fn(xs):
        return jax.lax.map(
            lambda x: jnp.sort(jnp.exp(x[:, None] * x[None, :]), 1)[:, 2048], xs
        )

    _, alternatives = captured(fn, np.ones((16, 4096), np.float32))
    assert "unrolled" not in rules(alternatives)


def test_constants_are_not_repeated():
    big = np.random.default_rng(0).random((15, 100_000), np.float32)

    def fn(x):
        return jax.lax.fori_loop(0, 15, lambda i, s: s + jnp.asarray(big)[i] * s, x)

    module, alternatives = captured(fn, np.ones(100_000, np.float32))
    decided = alternatives.apply(decisions_for_rule(alternatives, "unrolled"))
    assert len(module.to_proto()) > big.nbytes
    assert len(decided.to_proto()) < 2.5 * len(module.to_proto())


def test_fused_operations_count():
    """A few instructions may be fusions of many."""

    def fn(x):
        def body(_, s):
            for _ in range(200):
                s = jnp.sqrt(s) + s * 0.5
            return s

        return jax.lax.fori_loop(0, 24, body, x)

    module, alternatives = captured(fn, np.ones(4, np.float32))
    assert rules(alternatives) == ["pairs"]
    fused = hloenv.run_passes(module, "fusion").module
    assert fused.opcode_counts()["fusion"] > 0
    assert "unrolled" not in rules(hloenv.HloEnv(fused).get_alternatives(NAME))
