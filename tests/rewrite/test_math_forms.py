# SPDX-License-Identifier: Apache-2.0
"""math-forms: functions of the C library as arithmetic."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture, rules
from support.math_forms import compiled, run

pytestmark = pytest.mark.jax

NAME = "math-forms"
TYPES = ("float32", "float16", "bfloat16")
SPECIAL = [
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 0.5),
    *(np.pi, np.pi / 2, -np.pi / 2, np.pi / 4, 2.0**-12, -(2.0**-13)),
    *(1e30, 3.4e38, -3.4e38, 1e20, 16367173 * 2.0**72),
]
FUNCTIONS = {
    "sine": (jnp.sin, np.sin),
    "cosine": (jnp.cos, np.cos),
    "tan": (jnp.tan, np.tan),
    "atan2": (jnp.arctan2, np.arctan2),
    "remainder": (jax.lax.rem, np.fmod),
}
# With two arguments.
PAIRS = ("atan2", "remainder")


def hard_numbers(dtype, seed=0):
    """Pairs of special numbers, of any bits, and of common ones."""
    rng = np.random.default_rng(seed)
    special = np.array(SPECIAL, np.float32)
    any_bits = rng.integers(0, 2**32, 5000, dtype=np.uint32).view(np.float32)
    common = rng.uniform(-10, 10, 5000).astype(np.float32)
    first = [np.repeat(special, len(special)), any_bits, common]
    second = [np.tile(special, len(special)), rng.permutation(any_bits), common[::-1]]
    with np.errstate(all="ignore"):
        found = [jnp.asarray(np.concatenate(each), dtype) for each in (first, second)]
    # The backend takes numbers below the smallest normal one for zeros.
    least = float(jnp.finfo(dtype).tiny)
    return [np.asarray(jnp.where(abs(each) < least, 0 * each, each)) for each in found]


def decided(fn, *arrays):
    """The module, and the one with all alternatives."""
    module = hloenv.HloModule.from_jax(fn, *arrays)
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives(NAME)
    env.apply_alternatives(np.ones(len(alternatives), np.int64))
    return module, env.module, alternatives


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_exact_arithmetic_rounded(name, dtype, engine):
    fn, exact = FUNCTIONS[name]
    numbers = hard_numbers(dtype)[: 2 if name in PAIRS else 1]
    module, ours, alternatives = decided(fn, *numbers)
    assert len(alternatives) == 1
    with np.errstate(all="ignore"):
        wanted = exact(*(each.astype(np.float64) for each in numbers))
        rounded = np.asarray(jnp.asarray(wanted.astype(np.float32), dtype))
    found = run(ours, *numbers, engine=engine)
    assert found.dtype == rounded.dtype
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    known = ~np.isnan(wanted)
    is_negative = np.signbit(wanted)
    least = float(jnp.finfo(dtype).tiny)
    is_large = known & (abs(wanted) >= least)
    np.testing.assert_array_equal(np.signbit(found)[is_large], is_negative[is_large])
    finite = is_large & np.isfinite(wanted)
    step = abs(np.asarray(jnp.finfo(dtype).eps, np.float64) * wanted[finite])
    error = abs(found[finite].astype(np.float64) - wanted[finite])
    assert (error <= step).all()
    # Zeros have the sign that XLA's have.
    theirs = run(module, *numbers, engine=engine)
    zeros = known & (wanted == 0)
    np.testing.assert_array_equal(np.signbit(found)[zeros], np.signbit(theirs)[zeros])


@pytest.mark.compile
def test_sines_are_as_near_as_those_of_the_c_library():
    x = np.random.default_rng(0).uniform(-1e5, 1e5, 100_000).astype(np.float32)
    for name in ("sine", "cosine"):
        fn, exact = FUNCTIONS[name]
        _, ours, _ = decided(fn, x)
        wanted = exact(x.astype(np.float64))
        spacing = np.spacing(abs(wanted).astype(np.float32))
        assert (abs(run(ours, x, engine="wheel") - wanted) / spacing).max() < 0.6


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_remainders_are_exact_bit_by_bit(engine):
    rng = np.random.default_rng(1)
    size = 50_000
    quotient = rng.integers(1, 2**27, size)
    y = rng.integers(2**23, 2**24, size).astype(np.float32)
    x = (quotient * y.astype(np.float64)).astype(np.float32)  # near a multiple
    small = (2.0 ** rng.uniform(-30, 27.9, size)).astype(np.float32) * -y
    functions = {}
    for left, right in (
        (x, y),
        (np.nextafter(x, np.float32(np.inf)), -y),
        (np.nextafter(x, np.float32(0)), y),
        (small, y),
        (np.array([0, -0.0, 3, -3], np.float32), np.array([1, 1, 3, 3], np.float32)),
    ):
        if left.shape not in functions:
            module, ours, _ = decided(jax.lax.rem, left, right)
            assert "remainder(" in ours.to_text()  # of the other branch
            functions[left.shape] = [compiled(each, engine) for each in (module, ours)]
        wanted = np.fmod(left, right)
        for function in functions[left.shape]:
            found = function(left, right)
            np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))


def test_the_branch_for_large_quotients_is_not_computed_with_the_other():
    """XLA would make a selection of it: for x // y it computed both."""
    x = np.ones(10_000, np.float32)
    module = hloenv.HloModule.from_jax(lambda x, y: x // y, x, x)
    ours = hloenv.HloEnv(module).get_alternatives(NAME).apply([1])
    assert "conditional(" in hloenv.run_until(ours, "fusion").to_text()


@pytest.mark.compile
@pytest.mark.parametrize(
    "worst",
    [(1e9, 1.0), (np.inf, 1.0), (1.0, np.inf), (1.0, 0.0), (np.nan, 1.0), (1.0, -0.0)],
)
def test_one_large_quotient_takes_the_other_branch(worst):
    x, y = np.full((7, 9), 5.5, np.float32), np.full((7, 9), -2.0, np.float32)
    x[3, 4], y[3, 4] = worst
    _, ours, _ = decided(jax.lax.rem, x, y)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(run(ours, x, y, engine="wheel"), np.fmod(x, y))


@pytest.mark.compile
@pytest.mark.parametrize("shape", [(), (1,), (5, 3), (2, 3, 4)])
def test_a_number_divides_an_array(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 10

    def wrapped(x, period):
        return jnp.mod(x + period / 2, period) - period / 2

    module, ours, alternatives = decided(wrapped, x, np.float32(3))
    assert len(alternatives) == 1
    np.testing.assert_array_equal(
        run(ours, x, np.float32(3), engine="wheel"),
        run(module, x, np.float32(3), engine="wheel"),
    )
    errors = hloenv.verify_alternatives(alternatives)
    assert all(each.relative < 1e-6 for each in errors)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (jnp.arctan, 1),
        (jnp.arcsin, 1),
        (jnp.arccos, 1),
        (lambda x: jnp.sin(x) * jnp.cos(x), 2),
        (jax.grad(lambda x: jnp.sin(x * x).sum()), 1),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.cos(y), x), 1),
        (jax.vmap(lambda x: jnp.tan(x) + jnp.arctan2(x, 2 * x)), 2),
    ],
)
def test_functions_of_jax(fn, count):
    x = np.random.default_rng(0).uniform(-1, 1, (30, 40)).astype(np.float32)
    module, ours, alternatives = decided(fn, x)
    assert len(alternatives) == count
    np.testing.assert_allclose(
        run(ours, x, engine="wheel"),
        run(module, x, engine="wheel"),
        rtol=2e-6,
        atol=1e-7,
    )
    errors = hloenv.verify_alternatives(alternatives)
    assert all(each.relative < 1e-6 for each in errors)


EXPONENTS = (1.5, -1.5, 0.25, -0.75, 2.5, -2.0, -3.0, 4.0, 16.0, -15.75, 7.0)


@pytest.mark.compile
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers(exponent, dtype):
    (x,) = hard_numbers(dtype)[:1]
    _, ours, alternatives = decided(lambda x: jax.lax.pow(x, x.dtype.type(exponent)), x)
    assert rules(alternatives) == ["power"]
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), exponent)
        rounded = np.asarray(jnp.asarray(wanted.astype(np.float32), dtype), np.float64)
    found = run(ours, x, engine="wheel").astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    info = jnp.finfo(dtype)
    is_normal = abs(rounded) >= float(info.tiny)  # others may be zeros
    step = float(info.eps)
    np.testing.assert_allclose(found[is_normal], rounded[is_normal], rtol=step)
    is_zero = (wanted == 0) & ~np.isnan(wanted)
    assert (found[is_zero] == 0).all()
    np.testing.assert_array_equal(
        np.signbit(found)[is_zero], np.signbit(wanted)[is_zero]
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("f32[4] sine(f32[4] x)", ["periodic"]),
        ("f32[4] sine(f32[4] x), result_accuracy={mode=highest}", []),
        ("f32[4]{0} tanh(f32[4] x)", []),
        ("f32[4] remainder(f32[4] x, f32[4] x)", ["remainder"]),
    ],
)
def test_what_is_proposed(line, expected):
    text = f"HloModule m\nENTRY e {{\n x = f32[4] parameter(0)\n ROOT r = {line}\n}}"
    assert rules(capture(text, NAME)) == expected


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("divisor", "is_proposed"),
    [(1, False), (256, False), (0.25, True), (-4, True), (100, True), ("inf", True)],
)
def test_llvm_computes_remainders_of_powers_of_two(dtype, divisor, is_proposed):
    number = f"{dtype}[] constant({divisor})"
    if isinstance(divisor, int):  # as jax lowers it
        number = f"{dtype}[] convert(s32[] constant({divisor}))"
    text = f"""HloModule m
        ENTRY e {{
          x = {dtype}[8] parameter(0)
          d = {number}
          y = {dtype}[8] broadcast(d), dimensions={{}}
          ROOT r = {dtype}[8] remainder(x, y)
        }}"""
    assert rules(capture(text, NAME)) == ["remainder"] * is_proposed


@pytest.mark.parametrize("dtype", ["s64", "u16", "c64"])
def test_other_types_stay(dtype):
    operation = "sine(x)" if dtype == "c64" else "remainder(x, x)"
    text = f"""HloModule m
        ENTRY e {{
          x = {dtype}[8] parameter(0)
          ROOT r = {dtype}[8] {operation}
        }}"""
    assert rules(capture(text, NAME)) == []


EXTREMES = {
    "s32": [-(2**31), -(2**31) + 1, -65537, -7, -1, 0, 1, 7, 65536, 2**31 - 1],
    "u32": [0, 1, 2, 3, 7, 65535, 65537, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1],
}


@pytest.mark.compile
@pytest.mark.parametrize("opcode", ["divide", "remainder"])
@pytest.mark.parametrize("dtype", EXTREMES)
def test_quotients_of_integers_are_exact(dtype, opcode):
    rng = np.random.default_rng(0)
    numpy_type = np.int32 if dtype == "s32" else np.uint32
    limits = np.iinfo(numpy_type)
    special = np.array(EXTREMES[dtype], np.int64)
    x, y = (each.ravel() for each in np.meshgrid(special, special))
    wide = rng.integers(limits.min, limits.max, (2, 4000), endpoint=True)
    near = rng.integers(1, 2**15, 2000)
    x = np.concatenate([x, wide[0], near * 7 - 1, near * 7, -(near * 7)])
    y = np.concatenate([y, wide[1] >> rng.integers(0, 31, 4000), *[near] * 3])
    x, y = x.astype(numpy_type), y.astype(numpy_type)
    text = f"""HloModule m
        ENTRY e {{
          x = {dtype}[{x.size}] parameter(0)
          y = {dtype}[{x.size}] parameter(1)
          ROOT r = {dtype}[{x.size}] {opcode}(x, y)
        }}"""
    alternatives = capture(text, NAME)
    assert rules(alternatives) == ["quotient"]
    (wanted,) = hloenv.interpret(alternatives.apply([0]), x, y)
    (found,) = hloenv.interpret(alternatives.apply([1]), x, y)
    np.testing.assert_array_equal(found, wanted)
    for engine in ("wheel", "jaxlib"):
        (found,) = hloenv.compile(
            alternatives.apply([1]), engine=engine, isolate=False
        )(x, y)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("divisor", ["add(k, k)", "constant(7)", "parameter(1)"])
def test_quotients_by_constants_stay(divisor):
    text = f"""HloModule m
        ENTRY e {{
          x = s32[8] parameter(0)
          k = s32[] constant(7)
          n = s32[] {divisor}
          y = s32[8] broadcast(n), dimensions={{}}
          ROOT r = s32[8] divide(x, y)
        }}"""
    is_constant = divisor != "parameter(1)"
    assert rules(capture(text, NAME)) == ([] if is_constant else ["quotient"])


@pytest.mark.compile
@pytest.mark.parametrize("opcode", ["divide", "remainder"])
@pytest.mark.parametrize("dtype", ["s32", "u32"])
@pytest.mark.parametrize("divisor", [49, 41, 47, 3, 2**31 - 1])
def test_a_divisor_that_becomes_a_constant_later(dtype, opcode, divisor):
    # XLA multiplies by the inverse of a constant: 49 / 49 was below 1.
    size = 2**14
    text = f"""HloModule m
        ENTRY e {{
          x = {dtype}[{size}] parameter(0)
          n = {dtype}[] parameter(1)
          y = {dtype}[{size}] broadcast(n), dimensions={{}}
          ROOT r = {dtype}[{size}] {opcode}(x, y)
        }}"""
    numpy_type = np.int32 if dtype == "s32" else np.uint32
    x = np.arange(size, dtype=np.int64) * divisor
    x = np.where(np.arange(size) % 3 == 0, x, x - 1)
    x = np.where(np.arange(size) % 2 == 0, x, -x).astype(numpy_type)
    alternatives = capture(text, NAME)
    assert rules(alternatives) == ["quotient"]
    (wanted,) = hloenv.interpret(alternatives.apply([0]), x, numpy_type(divisor))
    decided = alternatives.apply([1]).to_text()
    folded, count = re.subn(r"parameter\(1\).*", f"constant({divisor})", decided)
    assert count == 1
    folded = re.sub(r"(entry_computation_layout=\{\(\S+), \w+\[\]\)", r"\1)", folded)
    for engine in ("wheel", "jaxlib"):
        executable = hloenv.compile(hloenv.HloModule.from_text(folded), engine=engine)
        np.testing.assert_array_equal(executable(x)[0], wanted)


@pytest.mark.parametrize("shape", ["[0]", "[3,0]", "[<=8]"])
def test_arrays_without_elements_or_of_unknown_size_stay(shape):
    text = f"""HloModule m
        ENTRY e {{
          x = f32{shape} parameter(0)
          ROOT r = f32{shape} sine(x)
        }}"""
    assert rules(capture(text, NAME)) == []


def test_a_column_major_result_stays():
    text = """HloModule m
        ENTRY e {
          x = f32[4,5]{0,1} parameter(0)
          ROOT r = f32[4,5]{0,1} sine(x)
        }"""
    assert rules(capture(text, NAME)) == []
