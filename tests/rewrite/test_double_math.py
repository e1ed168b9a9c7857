# SPDX-License-Identifier: Apache-2.0
"""math-forms of doubles, against numbers with 64 bits of fraction."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy
from support.captures import capture, rules
from support.math_forms import compiled, decided, run

pytestmark = [pytest.mark.jax, pytest.mark.compile]

FUNCTIONS = {
    "sine": (jnp.sin, np.sin, 1.1),
    "cosine": (jnp.cos, np.cos, 1.1),
    "tan": (jnp.tan, np.tan, 2.5),
    "arctan": (jnp.arctan, np.arctan, 2.5),
    # The C library's, itself within a spacing.
    "erf": (jax.lax.erf, np.vectorize(math.erf), 2.5),
}
SPECIAL = [
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, np.pi, np.pi / 2, -np.pi / 4),
    *(2.0**-27, -(2.0**-28), 1e-300, 2.0**20, -(2.0**20), 1e22, -1.7e308),
]


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def errors(found, wanted):
    """In spacings of doubles."""
    return abs(found - wanted) / np.spacing(abs(wanted).astype(np.float64))


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("largest", [1.0, 100.0, 2.0**20])
def test_results_are_near(name, largest, engine):
    fn, exact, limit = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    random = rng.uniform(-largest, largest, 20_000)
    turns = rng.integers(-(2**19), 2**19, 5000) * (np.pi / 2)
    x = np.concatenate([random, turns[abs(turns) < largest], rng.normal(size=10) / 1e9])
    ours, alternatives = decided(fn, x)
    assert len(alternatives) == 1
    wanted = exact(x.astype(np.longdouble))
    # Of all multiples of pi / 2 below 2^20 the worst rest is 1.06 spacings away.
    assert errors(run(ours, x, engine=engine), wanted).max() < limit


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers(name):
    fn, exact, limit = FUNCTIONS[name]
    x = np.array(SPECIAL)
    with np.errstate(invalid="ignore"):
        wanted = exact(x)
    # One number alone is compiled to other code than an array of them.
    together, alone = (compiled(decided(fn, each)[0]) for each in (x, x[:1]))
    for ours, numbers, expected in (
        (together, x, wanted),
        *((alone, x[i : i + 1], wanted[i : i + 1]) for i in range(len(x))),
    ):
        found = ours(numbers)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(
            np.signbit(found)[known], np.signbit(expected)[known]
        )
        assert (errors(found[known], expected[known]) < limit + 1).all()


@pytest.mark.parametrize(
    ("fn", "exact", "fallback"),
    [
        (jnp.sin, np.sin, "sine"),
        (jnp.tan, np.tan, "tan"),
        (lambda x: jax.lax.rem(x, x[::-1]), lambda x: np.fmod(x, x[::-1]), "remainder"),
    ],
)
def test_usual_numbers_do_not_take_the_other_branch(fn, exact, fallback):
    x = np.random.default_rng(4).uniform(1, 50, 1000)
    ours, _ = decided(fn, x)
    wrong = "add" if fallback == "remainder" else "negate"
    text = ours.to_text()
    assert text.count(f" {fallback}(") == 1
    ours = hloenv.HloModule.from_text(text.replace(f" {fallback}(", f" {wrong}("))
    np.testing.assert_allclose(run(ours, x), exact(x), rtol=1e-14)


@pytest.mark.parametrize("worst", [2.0**20, -1e22, np.inf, np.nan])
def test_one_large_angle_takes_the_other_branch(worst):
    x = np.full((3, 5), 0.5)
    x[1, 2] = worst
    ours, alternatives = decided(lambda x: jnp.sin(x) + jnp.cos(x), x)
    assert len(alternatives) == 2
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(run(ours, x), np.sin(x) + np.cos(x), rtol=1e-15)


def test_the_branch_for_large_angles_is_not_computed_with_the_other():
    """XLA would make a selection of it."""
    x = np.ones(10_000)
    ours, _ = decided(jnp.sin, x)
    assert "conditional(" in hloenv.run_until(ours, "fusion").to_text()


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_angles_of_points(engine):
    rng = np.random.default_rng(1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-300, 1e308])
    y = np.concatenate([np.repeat(special, 9), rng.normal(size=20_000)])
    x = np.concatenate([np.tile(special, 9), rng.normal(size=20_000)])
    ours, _ = decided(jnp.arctan2, y, x)
    found = run(ours, y, x, engine=engine)
    wanted = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    normal = ~np.isnan(wanted) & ((wanted == 0) | (abs(wanted) > 1e-300))
    np.testing.assert_array_equal(np.signbit(found)[normal], np.signbit(wanted)[normal])
    assert errors(found[normal], wanted[normal]).max() < 2.5


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_remainders_are_exact_bit_by_bit(engine):
    rng = np.random.default_rng(2)
    size = 50_000
    y = rng.uniform(1, 2, size) * 2.0 ** rng.integers(-300, 300, size)
    x = rng.integers(1, 2**25, size) * y  # near a multiple
    functions = {}
    for left, right in (
        (x, y),
        (np.nextafter(x, np.inf), -y),
        (np.nextafter(x, 0), y),
        (2.0 ** rng.uniform(-60, 25.9, size) * -y, y),
        (x, np.full(size, 0.1) * 2.0**300),
        (np.array([0, -0.0, 3, -3, 1.0]), np.array([1, 1, 3, 3, 0.1])),
        (np.array([1e30, 5.5]), np.array([0.7, 2.0])),  # large
        (np.array([np.inf, np.nan, 1, 1]), np.array([1, 1, 0, np.inf])),
    ):
        if left.shape not in functions:
            ours, _ = decided(jax.lax.rem, left, right)
            functions[left.shape] = compiled(ours, engine)
        with np.errstate(invalid="ignore"):
            wanted = np.fmod(left, right)
        found = functions[left.shape](left, right)
        np.testing.assert_array_equal(found, wanted)
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(
            np.signbit(found)[known], np.signbit(wanted)[known]
        )


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("divisor", [1.1e-300, 1e300, 2.0**-905, 2.0**-895])
def test_divisors_of_any_size(divisor, engine):
    x = np.array([1.0, 1.001, 3.3e7, 12345.678]) * divisor
    y = np.full(4, divisor)
    ours, _ = decided(jax.lax.rem, x, y)
    np.testing.assert_array_equal(run(ours, x, y, engine=engine), np.fmod(x, y))


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("divisor", [49.0, 98.0, 0.09, 0.41, -187.0])
def test_a_constant_divides_its_multiples(divisor, dtype, engine):
    """XLA multiplies by the inverse of a constant: 49 * (1 / 49) is below 1."""
    y = dtype(divisor)
    x = (y * np.arange(1, 5000)).astype(dtype)
    x = np.concatenate([x, -x])
    ours, alternatives = decided(lambda x: jax.lax.rem(x, y), x)
    assert len(alternatives) == 1
    ours = compiled(ours, engine)
    for numbers in (x, np.nextafter(x, dtype(0)), np.nextafter(x, dtype(1e9))):
        np.testing.assert_array_equal(ours(numbers), np.fmod(numbers, y))


@pytest.mark.parametrize("exponent", [1.5, -1.5, 0.25, -0.75, 2.5, -2.0, 8.0, -7.75])
def test_powers(exponent):
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [SPECIAL, rng.normal(size=5000), 10 ** rng.uniform(-150, 150, 500)]
    )
    ours, alternatives = decided(lambda x: jax.lax.pow(x, exponent), x)
    assert rules(alternatives) == ["power"]
    with np.errstate(all="ignore"):
        wanted = np.power(x, exponent)
    found = run(ours, x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    # Inverses of powers below the smallest normal number are infinite.
    usual = np.isinf(wanted) | (wanted == 0)
    usual |= (abs(wanted) > 1e-307) & (abs(wanted) < 4e307)
    np.testing.assert_allclose(found[usual], wanted[usual], rtol=3e-15)
    np.testing.assert_array_equal(np.signbit(found)[usual], np.signbit(wanted)[usual])


def test_sines_that_would_fill_the_memory_stay():
    for size, count in ((2000, 1), (30_000, 0)):
        module = hloenv.HloModule.from_jax(
            lambda a: jnp.sin(a[None] - a[:, None]).mean(1),
            jax.ShapeDtypeStruct((size,), np.float64),
        )
        assert len(hloenv.HloEnv(module).get_alternatives("math-forms")) == count


def test_larger_powers_stay():
    x = np.ones(8)
    assert rules(decided(lambda x: jax.lax.pow(x, 8.25), x)[1]) == []
    text = """HloModule m
        ENTRY e {
          x = c128[8] parameter(0)
          ROOT r = c128[8] sine(x)
        }"""
    assert rules(capture(text, "math-forms")) == []


def test_known_forms_takes_long_arrays():
    for size, count in ((9000, 2), (1000, 0)):
        module = hloenv.HloModule.from_jax(
            lambda x: jnp.sin(x) + jax.lax.rem(x, 0.7), np.ones(size)
        )
        alternatives = hloenv.HloEnv(module).get_alternatives("math-forms")
        assert (get_policy("known-forms")(alternatives) > 0).sum() == count
