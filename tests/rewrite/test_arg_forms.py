# SPDX-License-Identifier: Apache-2.0
"""reduce-forms: the index of an extreme element as one reduction of integers."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from support.arg_reduce import DTYPES, arg_text
from support.captures import capture, check_compiled, rules

NAME = "reduce-forms"
# Of kinds of numbers that leave no room for the index.
RULES = {"f64": "keyed_index"}


def hard_numbers(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Many equal numbers, zeros of both signs, infinities and not-a-numbers."""
    rng = np.random.default_rng(seed)
    if "f" not in kind:
        info = np.iinfo(DTYPES[kind])
        few = [info.min, info.max, 0, 1, 2]
        return rng.choice(few[seed % 2 :], size=shape).astype(DTYPES[kind])
    few = [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan]
    allowed = few[: (2, 4, 6, 8)[seed % 4]] if seed % 5 else few[5:6]
    numbers = rng.choice(allowed, size=shape)
    return numbers.astype(DTYPES[kind])


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("kind", sorted(DTYPES))
def test_the_index_is_exact(kind, direction):
    for seed in range(12):
        shape, dimension = [((40, 9), 0), ((40, 9), 1), ((30,), 0)][seed % 3]
        module = hloenv.HloModule.from_text(arg_text(kind, direction, shape, dimension))
        alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
        assert rules(alternatives) == [RULES.get(kind, "packed_index")]
        numbers = hard_numbers(kind, shape, seed)
        (wanted,) = hloenv.interpret(module, numbers)
        (found,) = hloenv.interpret(alternatives.apply([1]), numbers)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("direction", ["GT", "LT"])
def test_it_compiles_and_gives_the_index_of_numpy(direction, kind):
    module = hloenv.HloModule.from_text(arg_text(kind, direction, (64, 300)))
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    numbers = np.random.default_rng(0).normal(size=(64, 300)).astype(DTYPES[kind])
    numbers[3, 7] = numbers[3, 9] = 9.0
    numbers[4, 7] = numbers[4, 9] = -9.0
    numbers[5, [8, 12]] = np.nan
    numbers[6] = -0.0
    numbers[6, 5] = 0.0
    (found,) = hloenv.compile(alternatives.apply([1]), isolate=False)(numbers)
    wanted = (np.argmax if direction == "GT" else np.argmin)(numbers, axis=1)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_computed_elements(kind):
    text = arg_text(kind).replace(
        f"x = {kind}[6,50] parameter(0)",
        f"y = {kind}[6,50] parameter(0)\n  x = {kind}[6,50] exponential(y)",
    )
    assert "exponential" in text
    check_compiled(text, NAME)


def test_doubles_are_compared_as_they_are_in_memory():
    """Fused with both reductions, they could be rounded differently in each."""
    text = arg_text("f64").replace(
        "x = f64[6,50] parameter(0)",
        "y = f64[6,50] parameter(0)\n  x = f64[6,50] exponential(y)",
    )
    decided = capture(text, NAME).apply([1])
    assert decided.opcode_counts()["call"] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("direction=GT", "direction=GE"),  # the last of equal elements
        ("compare(i, j), direction=LT", "compare(i, j), direction=GT"),
        ("or(better, isnan)", "or(better, better)"),  # the last number after NaN
        ("select(left, i, j)", "select(left, j, i)"),
        ("constant(-inf)", "constant(0)"),
        ("zero = s32[] constant(0)", "zero = s32[] constant(1)"),
        ("iota_dimension=1", "iota_dimension=0"),
        ("at = s32[] select(left, i, j)", "at = s32[] add(i, j)"),
        ("index=1", "index=0"),
        # The lower of 3 and 7, but not of 1 and 2.
        (
            "less = pred[] compare(i, j), direction=LT",
            "low = s32[] and(i, j)\n  less = pred[] compare(low, i), direction=EQ",
        ),
    ],
)
def test_not_offered(old, new):
    text = arg_text()
    assert old in text
    changed = text.replace(old, new)
    if new == "index=0":
        changed = changed.replace("ROOT at = s32[6]", "ROOT at = f32[6]")
    assert rules(capture(changed, NAME)) == []


def test_a_number_compared_with_an_index_is_not_offered():
    assert rules(capture(arg_text("s32"), NAME)) == ["packed_index"]
    odd = "odd = pred[] compare(a, j), direction=GT\n  less ="
    text = arg_text("s32").replace("less =", odd)
    at = "at = s32[] select(left, i, j)"
    assert at in text
    text = text.replace(at, f"f{at}\n  at = s32[] select(odd, j, fat)")
    assert rules(capture(text, NAME)) == []


@pytest.mark.parametrize("kind", ["f32", "bf16", "u8"])
def test_numbers_that_are_stored_transposed(kind):
    text = arg_text(kind)
    name = f"{kind}[6,50]"
    assert f"x = {name} parameter(0)" in text
    text = text.replace(f"x = {name}", f"x = {name}{{0,1}}")
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    numbers = hard_numbers(kind, (6, 50), 3)
    (wanted,) = hloenv.interpret(module, numbers)
    (found,) = hloenv.interpret(alternatives.apply([1]), numbers)
    np.testing.assert_array_equal(found, wanted)


def test_integers_that_have_no_key_of_32_bits():
    least = (str(np.iinfo(np.int32).min), str(np.iinfo(np.int64).min))
    text = arg_text("s32").replace(*least).replace("s32", "s64")
    assert "x = s64[" in text
    assert rules(capture(text, NAME)) == []


@pytest.mark.jax
def test_what_jax_makes():
    import jax.numpy as jnp

    def indices(x):
        return jnp.argmax(x, axis=-1), jnp.argmin(x, axis=0)

    x = np.zeros((20, 30), np.float32)
    env = hloenv.HloEnv(hloenv.HloModule.from_jax(indices, x))
    assert rules(env.get_alternatives(NAME)).count("packed_index") == 2


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.jax
@pytest.mark.parametrize("kind", ["f32", "bf16", "s32"])
def test_extremes_of_the_same_numbers_are_taken_along(kind, direction):
    import jax
    import jax.numpy as jnp

    is_max = direction == "GT"
    for seed in range(8):
        shape, axis = [((40, 9), 0), ((40, 9), 1), ((5, 6, 7), 1)][seed % 3]
        numbers = hard_numbers(kind, shape, seed)

        def fn(x, axis=axis):
            extreme, index = (jnp.max, jnp.argmax) if is_max else (jnp.min, jnp.argmin)
            first = extreme(x, axis)
            return index(x, axis), first, extreme(x, axis, keepdims=True)

        module = hloenv.run_passes(
            hloenv.HloModule.from_jax(jax.jit(fn), numbers), "call-inliner", "cse"
        ).module
        alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
        places = [
            i
            for i, each in enumerate(alternatives)
            if "packed_index" in [c.rule for c in each.choices]
        ]
        assert len(places) == 1
        decisions = [int(i in places) for i in range(len(alternatives))]
        decided = alternatives.apply(decisions)
        # One reduction is left.
        assert decided.opcode_counts()["reduce"] == 1
        for wanted, found in zip(
            hloenv.interpret(module, numbers),
            hloenv.interpret(decided, numbers),
            strict=True,
        ):
            np.testing.assert_array_equal(
                np.asarray(found, np.float64), np.asarray(wanted, np.float64)
            )


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_subnormal_numbers_are_zeros_as_to_the_backend(kind):
    least = {"f64": 2.2250738585072014e-308, "f16": 6.103515625e-05}
    tiny = least.get(kind, 1.1754943508222875e-38)
    few = np.array([tiny / 4, tiny / 2, -tiny / 4, 0.0, -0.0])
    numbers = np.random.default_rng(0).choice(few, size=(40, 9)).astype(DTYPES[kind])
    for direction in ("GT", "LT"):
        module = hloenv.HloModule.from_text(arg_text(kind, direction, (40, 9), 1))
        alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
        assert rules(alternatives) == [RULES.get(kind, "packed_index")]
        wanted, found = (
            hloenv.compile(each, isolate=False)(numbers)[0]
            for each in (module, alternatives.apply([1]))
        )
        np.testing.assert_array_equal(found, wanted)
