# SPDX-License-Identifier: Apache-2.0
"""reduce-forms/prefixes: trees of jax.lax.associative_scan as loops over rows."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy

pytestmark = pytest.mark.jax

NAME, RULE = "reduce-forms", "prefixes"


def recurrence(p, q):
    return p[0] * q[0], q[0] * p[1] + q[1]


def reversed_recurrence(p, q):
    return p[0] * q[0], p[0] * q[1] + p[1]


def affine_maps(p, q):
    """Of three numbers each, of which two are kept: a matrix [[a, b], [0, c]]."""
    return p[0] * q[0], p[0] * q[1] + p[1] * q[2], p[2] * q[2]


def two_states(p, q):
    """A matrix of two rows and columns times another."""
    a, b, c, d = p
    e, f, g, h = q
    return e * a + f * c, e * b + f * d, g * a + h * c, g * b + h * d


def best_paths(p, q):
    return p[0] + q[0], jnp.maximum(p[1] + q[0], q[1])


def scanned(join, result, axis=0, *, reverse=False):
    """The function that scans its arguments, and gives one element of the results."""

    def fn(*x):
        found = jax.lax.associative_scan(
            join, x if len(x) > 1 else x[0], axis=axis, reverse=reverse
        )
        return found if result is None else found[result]

    return fn


def averages(x):
    return scanned(recurrence, 1)(jnp.full_like(x, 0.9), x * 0.1)


def module_of(fn, *arrays) -> hloenv.HloModule:
    """As hloenv.jit decides it."""
    module = hloenv.HloModule.from_jax(fn, *arrays)
    return hloenv.run_passes(module, "call-inliner", "tuple-simplifier", "cse").module


def loops_of(module) -> tuple[int, hloenv.HloModule]:
    """How many trees become loops, and the module with these."""
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    taken = np.array(
        [
            next((k for k, c in enumerate(one.choices) if c.rule == RULE), 0)
            for one in alternatives
        ],
        np.int64,
    )
    return int((taken > 0).sum()), alternatives.apply(taken)


def assert_loops(fn, arrays, rtol=1e-5) -> None:
    module = module_of(fn, *arrays)
    expected = hloenv.compile(module)(*arrays)
    count, changed = loops_of(module)
    assert count == 1
    assert changed.opcode_counts().get("while", 0) == 1
    for engine in ("wheel", "jaxlib"):
        results = hloenv.compile(changed, engine=engine, isolate=False)(*arrays)
        for found, one in zip(results, expected, strict=True):
            scale = np.abs(one).max() if rtol else 0.0
            np.testing.assert_allclose(found, one, rtol=rtol, atol=rtol * scale)


def drawn(*shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return tuple((rng.normal(size=shape) * 0.7).astype(dtype) for shape in shapes)


@pytest.mark.compile
@pytest.mark.parametrize("rows", [16, 17, 31, 33, 64, 100, 255, 300])
def test_numbers_of_rows(rows):
    assert_loops(scanned(recurrence, 1), drawn((rows, 12), (rows, 12)))


@pytest.mark.compile
@pytest.mark.parametrize(
    ("join", "count", "result"),
    [
        (reversed_recurrence, 2, 1),
        (affine_maps, 3, 1),
        (two_states, 4, 2),
        (best_paths, 2, 1),
        (jnp.add, 1, None),
        (jnp.maximum, 1, None),
        (lambda p, q: p * q, 1, None),
    ],
)
def test_joins(join, count, result):
    assert_loops(scanned(join, result), drawn(*[(50, 130)] * count))


@pytest.mark.compile
@pytest.mark.parametrize("rows", [16, 40, 255, 300])
def test_numbers_that_all_rows_are_multiplied_by(rows):
    assert_loops(averages, drawn((rows, 6)))


def test_numbers_of_levels_that_do_not_fit_stay():
    text = module_of(averages, *drawn((31, 6))).to_text()
    numbers = sorted(set(re.findall(r"constant\((0\.\d+)\)", text)))
    assert len(numbers) > 3  # jax has computed those of pairs
    for number in numbers:
        edited = text.replace(f"({number})", f"({float(number) * 1.001})")
        count = loops_of(hloenv.HloModule.from_text(edited))[0]
        # What the rows are multiplied by before the scan may be any number.
        assert count == (number.startswith("0.1")), number


@pytest.mark.compile
def test_all_results():
    # In one loop.
    assert_loops(scanned(recurrence, None), drawn((50, 6), (50, 6)))
    assert_loops(scanned(two_states, None), drawn(*[(40, 3)] * 4))


@pytest.mark.compile
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((40,), 0), ((3, 40), 1), ((3, 40, 5), 1), ((2, 3, 40, 4), 2), ((40, 2, 3), 0)],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_dimensions(shape, axis, reverse):
    fn = scanned(recurrence, 1, axis, reverse=reverse)
    assert_loops(fn, drawn(shape, shape))


@pytest.mark.compile
def test_arrays_that_are_broadcast():
    arrays = drawn((40, 1, 6), (40, 5, 6))
    assert_loops(scanned(recurrence, 1), arrays)
    mapped = jax.vmap(scanned(recurrence, 1), in_axes=(None, 0))
    assert_loops(mapped, drawn((40, 6), (3, 40, 6)))


@pytest.mark.compile
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(np.float64, 1e-13), (np.float16, 2e-2), (jnp.bfloat16, 1e-1)],
)
def test_types_of_floats(dtype, rtol):
    with jax.enable_x64(True):
        arrays = drawn((40, 6), (40, 6), dtype=dtype)
        assert_loops(scanned(recurrence, 1), arrays, rtol=rtol)


@pytest.mark.compile
def test_a_scan_of_what_another_has_found_is_a_loop_of_its_own():
    def pairs(p, q):
        return p[0] + q[0], jnp.maximum(p[1] + q[0], q[1])

    def fn(x):
        sums = jax.lax.associative_scan(jnp.add, x)
        return sums, jax.lax.associative_scan(pairs, (x, jnp.sin(sums)))[1]

    (x,) = drawn((40, 130))
    module = module_of(fn, x)
    count, changed = loops_of(module)
    assert count == 2
    for found, one in zip(
        hloenv.compile(changed, isolate=False)(x),
        hloenv.compile(module)(x),
        strict=True,
    ):
        np.testing.assert_allclose(found, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_arrays_of_16_bits_are_converted_outside_the_loop(dtype):
    # The backend would convert all rows in each iteration.
    x = np.ones((40, 6), dtype)
    body = loops_of(module_of(scanned(jnp.maximum, None), x))[1].to_text()
    body = body[body.index("loop_body") :].partition("\n}")[0]
    assert "f32[40,6]" in body
    assert "f16[" not in body


def test_narrower_types_stay():
    x = np.ones((40, 64), jnp.float8_e5m2)
    assert loops_of(module_of(scanned(jnp.maximum, None), x))[0] == 0


@pytest.mark.compile
def test_complex_numbers():
    a, b, c, d = drawn(*[(300, 6)] * 4)
    arrays = (a + 1j * b) * np.float32(0.6), c + 1j * d
    assert_loops(scanned(recurrence, 1), arrays, rtol=1e-4)


@pytest.mark.compile
def test_integers_are_exact():
    rng = np.random.default_rng(0)
    for dtype in (np.int32, np.uint8):
        info = np.iinfo(dtype)
        arrays = tuple(
            rng.integers(info.min, info.max, (70, 8), dtype, endpoint=True)
            for _ in range(2)
        )
        assert_loops(scanned(recurrence, 1), arrays, rtol=0)
        assert_loops(scanned(lambda p, q: p ^ q, None), arrays[:1], rtol=0)
    rare = rng.random((70, 8)) < 0.02
    assert_loops(scanned(jnp.logical_or, None), (rare,), rtol=0)
    assert_loops(scanned(jnp.logical_and, None), (~rare,), rtol=0)


@pytest.mark.compile
def test_long_sums_are_of_a_wider_type():
    # One after the other, and in float32, nothing small is left.
    x = np.full((3000, 130), 1e-3, np.float32)
    x[0] = 1e5
    _, changed = loops_of(module_of(scanned(jnp.add, None), x))
    for engine in ("wheel", "jaxlib"):
        found = hloenv.compile(changed, engine=engine, isolate=False)(x)[0]
        exact = np.cumsum(x.astype(np.float64), 0)
        np.testing.assert_allclose(found, exact, rtol=1e-7)


@pytest.mark.parametrize(
    "join",
    [
        lambda p, q: p - q,
        lambda p, q: (p + q) * 0.5,
        lambda p, q: jnp.minimum(p + q, 100.0),  # a constant may be any limit
        lambda p, q: jnp.maximum(p, q) * jnp.minimum(p, q) + p,
        lambda p, q: jnp.where(q > 0, q, p),
        lambda p, q: jnp.tanh(p + q),
        lambda p, q: p * p + q,
    ],
)
def test_joins_whose_order_may_matter_stay(join):
    module = module_of(scanned(join, None), np.ones((40, 4), np.float32))
    assert loops_of(module)[0] == 0


def test_transposed_operands_stay():
    def skewed(p, q):
        return p[0] + q[0], p[1] + q[1] + q[0][:, :, None] - q[0][:, None, :]

    arrays = drawn((40, 3), (40, 3, 3))
    assert loops_of(module_of(scanned(skewed, 1), *arrays))[0] == 0


def test_what_random_numbers_seldom_reach_stays():
    def all_of(first, second):
        reached = first[1] & second[1]
        for one, other in zip(first[2:], second[2:], strict=True):
            reached = reached & one & other
        return reached

    def join(p, q):
        return (p[0] ^ q[0] ^ all_of(p, q), *q[1:])

    bits = [np.ones((40, 8), bool)] * 12
    assert loops_of(module_of(scanned(join, 0), *bits))[0] == 0


@pytest.mark.compile
def test_products_do_not_overflow_in_another_order():
    x = np.ones((32, 130), np.float32)
    x[1:4] = np.array([1e30, 1e30, 1e-30])[:, None]
    _, changed = loops_of(module_of(scanned(lambda p, q: p * q, None), x))
    assert changed.opcode_counts().get("while", 0) == 1
    for engine in ("wheel", "jaxlib"):
        found = hloenv.compile(changed, engine=engine, isolate=False)(x)[0]
        np.testing.assert_allclose(found[3:], 1e30, rtol=1e-5)


@pytest.mark.compile
def test_zeros_have_the_sign_of_the_tree():
    x = np.ones((40, 130), np.float32)
    x[0], x[1] = -1, 0
    module = module_of(scanned(lambda p, q: p * q, None), x)
    expected = hloenv.compile(module)(x)[0]
    count, changed = loops_of(module)
    assert count == 1
    for engine in ("wheel", "jaxlib"):
        found = hloenv.compile(changed, engine=engine, isolate=False)(x)[0]
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_the_text_is_the_same_each_time():
    texts = {
        loops_of(module_of(scanned(two_states, None), *drawn(*[(40, 8)] * 4)))[
            1
        ].to_text()
        for _ in range(5)
    }
    assert len(texts) == 1


def test_others_stay():
    fn = scanned(recurrence, 1)
    short = np.ones((15, 40), np.float32)
    assert loops_of(module_of(fn, short, short))[0] == 0
    # Numbers of many rows at a time, each in a line of its own.
    wide = np.ones((64, 40), np.float32)
    last = module_of(scanned(recurrence, 1, 1), wide, wide)
    assert loops_of(last)[0] == 0
    # Another array in each join.
    shift = np.ones((4,), np.float32)
    shifted = scanned(lambda p, q: p + q + shift, None)
    assert loops_of(module_of(shifted, np.ones((40, 4), np.float32)))[0] == 0


def test_a_tree_with_any_other_operation_stays():
    ones = np.ones((31, 6), np.float32)  # every second row are too few
    text = module_of(scanned(recurrence, 1), ones, ones).to_text()
    assert loops_of(hloenv.HloModule.from_text(text))[0] == 1
    lines = text.splitlines()
    changed = 0
    for k, line in enumerate(lines):
        for one, other in (
            (" multiply(", " add("),
            (" add(", " maximum("),
            ("padding=1_1_1x", "padding=0_2_1x"),
            ("constant(0)", "constant(1)"),
        ):
            if one not in line:
                continue
            edited = "\n".join((*lines[:k], line.replace(one, other), *lines[k + 1 :]))
            assert loops_of(hloenv.HloModule.from_text(edited))[0] == 0, line
            changed += 1
    assert changed > 20


def test_slices_of_other_rows_stay():
    ones = np.ones((31, 6), np.float32)
    text = module_of(scanned(recurrence, 1), ones, ones).to_text()
    moved = 0
    for found in re.finditer(r"\[1:(\d+):2\]", text):
        others = f"[0:{int(found[1]) - 1}:2]"  # as many
        edited = text[: found.start()] + others + text[found.end() :]
        assert loops_of(hloenv.HloModule.from_text(edited))[0] == 0
        moved += 1
    assert moved > 3


def test_known_forms_takes_it():
    fn = scanned(recurrence, 1)
    module = module_of(fn, *drawn((64, 32), (64, 32)))
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    decisions = get_policy("known-forms")(alternatives)
    assert [
        one.choices[k].rule
        for one, k in zip(alternatives, decisions.tolist(), strict=True)
        if k > 0
    ] == [RULE]


@pytest.mark.compile
def test_a_gradient_keeps_what_it_reads_of_the_tree():
    def loss(a, b):
        return (scanned(recurrence, 1)(a, b) ** 2).sum()

    arrays = drawn((40, 6), (40, 6))
    assert_loops(jax.grad(loss, (0, 1)), arrays, rtol=1e-4)
