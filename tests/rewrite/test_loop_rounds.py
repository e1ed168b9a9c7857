# SPDX-License-Identifier: Apache-2.0
"""fusion-cuts/rounds: short loops over integers, as of random numbers, as one kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.forms import form_of

pytestmark = pytest.mark.jax

PASS, RULE = "fusion-cuts", "rounds"
OTHERS = "bounded", "halo", "iterations", "joined", "repeated", "spread", "summed"
KEY = jax.random.key(7)
KEYS = jax.random.split(jax.random.key(3), 40)


def inlined(fn, *args) -> hloenv.HloModule:
    """As hloenv.jit decides it."""
    module = hloenv.HloModule.from_jax(fn, *args)
    return hloenv.run_passes(module, "call-inliner", "tuple-simplifier", "cse").module


def rewritten(module) -> tuple[int, hloenv.HloModule]:
    """How many loops there are, and the module with their rounds."""
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives(
        hloenv.Pass(PASS, **dict.fromkeys(OTHERS, False))
    )
    return len(alternatives), alternatives.apply(np.ones(len(alternatives), np.int64))


def assert_same_bits(module, changed, *arrays) -> None:
    expected = hloenv.compile(module)(*arrays)
    for engine in ("wheel", "jaxlib"):
        found = hloenv.compile(changed, engine=engine, isolate=False)(*arrays)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def words(key) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


@pytest.mark.compile
@pytest.mark.parametrize(
    ("draw", "loops"),
    [
        (lambda k: jax.random.bits(k, (50, 70)), 1),
        (lambda k: jax.random.bits(k, (300,), jnp.uint8), 1),
        (lambda k: jax.random.bernoulli(k, 0.3, (1000,)), 1),
        (lambda k: jax.random.randint(k, (40, 50), -7, 1000), 2),
        (lambda k: jax.random.bits(k, (9, 3, 17, 5)), 1),
        (lambda k: jax.random.bits(jax.random.fold_in(k, 5), (3000,)), 1),
        (lambda k: jax.random.permutation(k, 2000), 2),
        (lambda k: jax.random.bits(k, (255,)), 0),  # few
        (lambda k: jax.random.key_data(jax.random.split(k, 500)), 0),  # both words
    ],
)
def test_random_bits_are_the_same(draw, loops):
    module = inlined(lambda data: draw(jax.random.wrap_key_data(data)), words(KEY))
    count, changed = rewritten(module)
    assert count == loops
    before, after = (each.opcode_counts().get("while", 0) for each in (module, changed))
    assert after == before - loops
    assert_same_bits(module, changed, words(KEY))


@pytest.mark.compile
def test_random_floats_are_the_same():
    def draw(data):
        return jax.random.uniform(jax.random.wrap_key_data(data), (64, 64))

    module = inlined(draw, words(KEY))
    count, changed = rewritten(module)
    assert count == 1
    assert_same_bits(module, changed, words(KEY))


@pytest.mark.compile
def test_bits_of_64_are_joined_from_two_words():
    with jax.enable_x64(True):
        module = inlined(
            lambda data: jax.random.bits(
                jax.random.wrap_key_data(data), (700,), jnp.uint64
            ),
            words(KEY),
        )
    count, changed = rewritten(module)
    assert count == 1
    assert_same_bits(module, changed, words(KEY))


@pytest.mark.compile
def test_each_row_may_have_a_key():
    def draw(data):
        keys = jax.random.wrap_key_data(data)
        return jax.vmap(lambda key: jax.random.bits(key, (30,)))(keys)

    module = inlined(draw, words(KEYS))
    count, changed = rewritten(module)
    assert count == 1
    assert_same_bits(module, changed, words(KEYS))


@pytest.mark.compile
def test_a_key_may_be_constant():
    module = inlined(lambda x: x + jax.random.bits(jax.random.key(5), (400,)), 0)
    count, changed = rewritten(module)
    assert count == 1
    assert_same_bits(module, changed, np.int32(3))


SMALLER = """HloModule m
body {{
  s = (s32[], u32[64,{n}], u32[64,{n}], u32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = u32[64,{n}] get-tuple-element(s), index=1
  y = u32[64,{n}] get-tuple-element(s), index=2
  k = u32[{n}] get-tuple-element(s), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {numbers}
  z = u32[64,{n}] xor(y, b)
  v = u32[64,{n}] add(x, z)
  ROOT t = (s32[], u32[64,{n}], u32[64,{n}], u32[{n}]) tuple(next, v, z, k)
}}
condition {{
  s = (s32[], u32[64,{n}], u32[64,{n}], u32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT r = pred[] compare(i, end), direction=LT
}}
ENTRY e {{
  a = u32[64,{n}] parameter(0)
  b = u32[64,{n}] parameter(1)
  k = u32[{n}] parameter(2)
  start = s32[] constant(0)
  t = (s32[], u32[64,{n}], u32[64,{n}], u32[{n}]) tuple(start, a, b, k)
  l = (s32[], u32[64,{n}], u32[64,{n}], u32[{n}]) while(t), condition=condition, body=body
  x = u32[64,{n}] get-tuple-element(l), index=1
  y = u32[64,{n}] get-tuple-element(l), index=2
  ROOT r = u32[64,{n}] xor(x, y)
}}
"""
ROW = "b = u32[64,{n}] broadcast(k), dimensions={{1}}"


@pytest.mark.compile
@pytest.mark.parametrize(
    ("n", "numbers", "count"),
    [
        (40, ROW, 1),
        (8, "q = u32[{n}] multiply(k, k)\n  " + ROW.replace("(k)", "(q)"), 1),
        # All of these would be computed again for each element.
        (40, "q = u32[{n}] multiply(k, k)\n  " + ROW.replace("(k)", "(q)"), 0),
        (
            40,
            "q = u32[1,1] slice(x), slice={{[0:1], [2:3]}}\n"
            "  p = u32[] reshape(q)\n"
            "  b = u32[64,{n}] broadcast(p), dimensions={{}}",
            0,
        ),
        (
            40,
            "q = u32[4] slice(k), slice={{[0:40:10]}}\n"
            "  p = u32[4,16] broadcast(q), dimensions={{0}}\n"
            "  o = u32[64] reshape(p)\n"
            "  b = u32[64,{n}] broadcast(o), dimensions={{0}}",
            0,
        ),
        (
            64,
            "b = u32[64,{n}] broadcast(x), dimensions={{1,0}}",
            0,
        ),
        (
            40,
            "p = (u32[64,{n}], u32[{n}]) tuple(x, k)\n"
            "  q = (u32[64,{n}], u32[{n}]) opt-barrier(p)\n"
            "  b = u32[64,{n}] get-tuple-element(q), index=0",
            0,
        ),
    ],
)
def test_smaller_arrays_are_read_and_not_computed(n, numbers, count):
    filled = SMALLER.format(n=n, numbers=numbers.format(n=n))
    module = hloenv.HloModule.from_text(filled)
    found, changed = rewritten(module)
    assert found == count
    assert_same_bits(module, changed, *numbers_of(module))


LOOP = """HloModule m
body {{
  s = (s32[], u32[{n}], {b}[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = u32[{n}] get-tuple-element(s), index=1
  y = {b}[{n}] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  z = {b}[{n}] {operation}
  w = u32[{n}] convert(z)
  v = u32[{n}] xor(x, w)
  ROOT t = (s32[], u32[{n}], {b}[{n}]) tuple(next, v, z)
}}
condition {{
  s = (s32[], u32[{n}], {b}[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant({end})
  ROOT r = pred[] compare(i, end), direction=LT
}}
ENTRY e {{
  a = u32[{n}] parameter(0)
  b = {b}[{n}] parameter(1)
  start = s32[] constant({start})
  t = (s32[], u32[{n}], {b}[{n}]) tuple(start, a, b)
  l = (s32[], u32[{n}], {b}[{n}]) while(t), condition=condition, body=body
  x = u32[{n}] get-tuple-element(l), index=1
  y = {b}[{n}] get-tuple-element(l), index=2
  c = u32[{n}] convert(y)
  {last}
}}
"""
JOINED = "ROOT r = u32[{n}] add(x, c)"


def loop(*, last=JOINED, operation="multiply(y, y)", **values) -> hloenv.HloModule:
    values = {"n": 300, "b": "s32", "start": 0, "end": 4} | values
    filled = {"last": last.format(**values), "operation": operation.format(**values)}
    return hloenv.HloModule.from_text(LOOP.format(**values, **filled))


def numbers_of(module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = []
    for each in module.input_specs():
        limits = np.iinfo(each.dtype)
        found.append(
            rng.integers(limits.min, limits.max, each.shape, each.dtype, endpoint=True)
        )
    return found


@pytest.mark.compile
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"b": "s64"},
        {"b": "u8"},
        {"b": "s16", "start": -3, "end": 5},
        {"operation": "subtract(y, y)"},
        {"operation": "shift-left(y, y)"},
        {"operation": "shift-right-arithmetic(y, y)"},
        {"b": "u32", "operation": "shift-right-logical(x, y)"},
        {"last": "ROOT r = s32[{n}] add(y, y)"},
        {"last": "ROOT r = u32[{n}] add(x, x)"},
        {"last": "q = u32[{n}] or(x, c)\n  ROOT r = (u32[{n}], u32[{n}]) tuple(q, q)"},
    ],
)
def test_other_loops_of_integers(values):
    module = loop(**values)
    count, changed = rewritten(module)
    assert count == 1
    assert_same_bits(module, changed, *numbers_of(module))


@pytest.mark.parametrize(
    "values",
    [
        {"n": 255},
        {"end": 9},
        {"b": "f32"},
        {"operation": "divide(y, y)"},
        {"last": "ROOT r = (u32[{n}], u32[{n}]) tuple(x, c)"},
        {"last": "q = u32[{n}] add(x, c)\n  ROOT r = (u32[{n}], u32[{n}]) tuple(q, x)"},
        {"last": "q = u32[{n}] add(x, c)\n  ROOT r = (u32[{n}], u32[{n}]) tuple(q, c)"},
        {
            "last": "p = u32[{n}] reverse(x), dimensions={{0}}\n"
            "  ROOT r = u32[{n}] add(p, c)"
        },
    ],
)
def test_what_is_left_alone(values):
    assert rewritten(loop(**values))[0] == 0


@pytest.mark.compile
def test_what_reads_the_bits_is_behind_the_kernel():
    """It would draw them again for each element of a cumulative sum."""

    def draw(data):
        key = jax.random.wrap_key_data(data)
        return jnp.cumsum(jax.random.bits(key, (64, 64)) >> 16, axis=1)

    module = inlined(draw, words(KEY))
    count, changed = rewritten(module)
    assert count == 1
    final = hloenv.finish(changed).to_text()
    assert "own_kernel" in final
    assert_same_bits(module, changed, words(KEY))


def test_known_forms_takes_them():
    text = inlined(
        lambda data: jax.random.normal(jax.random.wrap_key_data(data), (512, 64)),
        words(KEY),
    ).to_text()
    assert form_of(text, PASS) == RULE


@pytest.mark.compile
def test_jit_draws_the_same_numbers():
    def dropout(key, x):
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)

    x = jnp.ones((128, 64))
    fast = hloenv.jit(dropout, budget=0, remember=False)
    for key in (KEY, KEYS[0], KEYS[1]):
        np.testing.assert_array_equal(fast(key, x), jax.jit(dropout)(key, x))
    (used,) = fast.decided
    assert used.accepted == {f"{PASS}/{RULE}": 1}
