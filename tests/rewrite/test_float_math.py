# SPDX-License-Identifier: Apache-2.0
"""math-forms of numbers of 32 bits or fewer: powers, roots, log(1 + x)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import rules
from support.math_forms import decided, run

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def of(x, y):
    return x / jnp.sqrt(y)


FUNCTIONS = {
    "power": (jax.lax.pow, np.power, "power", 1.1),
    "cbrt": (jax.lax.cbrt, np.cbrt, "cube_root", 1.1),
    "log1p": (jax.lax.log1p, np.log1p, "log_plus_one", 4.0),
    "rsqrt": (jax.lax.rsqrt, lambda x: 1 / np.sqrt(x), "over_root", 2.1),
    "quotient": (of, lambda x, y: x / np.sqrt(y), "over_root", 2.1),
    "power of -1/2": (lambda x: x**-0.5, lambda x: x**-0.5, "over_root", 2.1),
    "power of 2.4": (
        lambda x: x**2.4,
        lambda x: x ** float(np.float32(2.4)),
        "power",
        1.1,
    ),
    "power of 33": (lambda x: x**33.0, lambda x: x**33.0, "power", 1.1),
}
SPECIAL = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.4, -2.4),
        *(np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 2e-38, -2e-38, 1e10, -1e10),
        *(16777217.0, -16777217.0, 1e-10, -1e-10, 127.0, -126.0, 1.0000001, 0.9999999),
    ],
    np.float32,
)


def is_binary(name):
    return name in ("power", "quotient")


def assert_near(found, wanted, limit, dtype=np.float32):
    """Within spacings of the type, where the result is a normal number."""
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    with np.errstate(all="ignore"):
        rounded = wanted.astype(dtype).astype(np.float64)
        known = ~np.isnan(wanted) & ~((rounded != 0) & (abs(rounded) < 2e-38))
        np.testing.assert_array_equal(
            np.signbit(found)[known], np.signbit(wanted)[known]
        )
        is_same = found.astype(np.float64) == rounded
        unit = np.spacing(abs(rounded).astype(dtype)).astype(np.float64)
        is_near = abs(found.astype(np.float64) - wanted) <= limit * unit
    wrong = known & ~is_same & ~(is_near & np.isfinite(rounded))
    assert not wrong.any(), (found[wrong][:5], wanted[wrong][:5])


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_near(name, engine):
    fn, exact, rule, limit = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-80, 80, 20_000)).astype(np.float32)
    x = np.concatenate([x, rng.uniform(0.5, 2, 5000), 1 + rng.normal(size=99) / 1e6])
    x = x.astype(np.float32)
    y = rng.uniform(0.01, 3, len(x)).astype(np.float32)
    arrays = (x, y) if is_binary(name) else (x,)
    ours, alternatives = decided(fn, *arrays)
    assert rules(alternatives) == [rule]
    with np.errstate(over="ignore"):
        wanted = exact(*(each.astype(np.float64) for each in arrays))
    assert_near(run(ours, *arrays, engine=engine), wanted, limit)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers(name):
    fn, exact, _, limit = FUNCTIONS[name]
    arrays = (SPECIAL,)
    if is_binary(name):
        arrays = tuple(np.ravel(each) for each in np.meshgrid(SPECIAL, SPECIAL))
    ours, _ = decided(fn, *arrays)
    with np.errstate(all="ignore"):
        wanted = exact(*(each.astype(np.float64) for each in arrays))
    assert_near(run(ours, *arrays), wanted, limit)


@pytest.mark.parametrize("name", ["log1p", "cbrt"])
def test_small_and_negative_numbers(name):
    fn, exact, _, limit = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    tiny = np.exp(-rng.uniform(0.02, 80, 20_000))
    x = np.concatenate([tiny, -tiny, rng.uniform(-1, 1, 9000)]).astype(np.float32)
    ours, _ = decided(fn, x)
    assert_near(run(ours, x), exact(x.astype(np.float64)), limit)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_narrow_numbers(name, dtype):
    fn, exact, _, _ = FUNCTIONS[name]
    rng = np.random.default_rng(2)
    x = rng.uniform(0.1, 4, 4000).astype(dtype)
    y = rng.uniform(0.1, 2, 4000).astype(dtype)
    arrays = (x, y) if is_binary(name) else (x,)
    ours, alternatives = decided(fn, *arrays)
    assert len(alternatives) == 1
    found = run(ours, *arrays).astype(np.float64)
    if "2.4" in name:
        wanted = x.astype(np.float64) ** float(dtype(2.4))
    else:
        wanted = exact(*(each.astype(np.float64) for each in arrays))
    known = wanted < 6e4
    kind = jnp.finfo(dtype)
    allowed = float(kind.eps) * wanted[known] + float(kind.tiny)
    assert (abs(found[known] - wanted[known]) <= allowed).all()


def test_roots_of_doubles():
    with jax.enable_x64(True):
        x = np.random.default_rng(3).uniform(1e-9, 1e9, 4000)
        ours, alternatives = decided(jax.lax.rsqrt, x)
        assert rules(alternatives) == ["over_root"]
        np.testing.assert_allclose(run(ours, x), 1 / np.sqrt(x), rtol=5e-16)


@pytest.mark.parametrize(
    "fn",
    [jax.lax.log1p, jax.lax.cbrt]
    + [
        lambda x, exponent=exponent: x**exponent
        for exponent in (2.4, 1 / 3, 16.25, -17.0, np.inf, np.nan)
    ],
)
def test_other_doubles_stay(fn):
    with jax.enable_x64(True):
        _, alternatives = decided(fn, np.ones(4000))
        assert len(alternatives) == 0


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 0.0])
def test_powers_that_xla_has_forms_for_stay(exponent):
    y = np.float32(exponent)
    _, alternatives = decided(lambda x: jax.lax.pow(x, y), np.ones(4000, np.float32))
    assert len(alternatives) == 0


def test_root_is_not_made_a_reciprocal_square_root_again():
    x = np.linspace(1, 9, 4000, dtype=np.float32)
    ours, _ = decided(of, x, x)
    assert " rsqrt(" not in hloenv.compile(ours, isolate=False).module.to_text()
    plain = hloenv.HloModule.from_jax(of, x, x)
    assert " rsqrt(" in hloenv.compile(plain).module.to_text()


NARROW = {
    "exp": jax.lax.exp,
    "expm1": jax.lax.expm1,
    "log": jax.lax.log,
}


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("name", NARROW)
def test_functions_of_all_half_floats(name, engine):
    """Infinities, the largest, subnormal numbers and both zeros among them."""
    fn = NARROW[name]
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    ours, alternatives = decided(fn, x)
    assert rules(alternatives) == ["widened"]
    found = run(ours, x, engine=engine)
    assert found.dtype == np.float16
    plain = run(hloenv.HloModule.from_jax(fn, x), x, engine=engine)
    is_number = ~np.isnan(plain)
    np.testing.assert_array_equal(np.isnan(found), ~is_number)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(plain))
    signs = np.signbit(found), np.signbit(plain)
    if name != "expm1":
        np.testing.assert_array_equal(found, plain)
        np.testing.assert_array_equal(*(each[is_number] for each in signs))
    # For expm1, XLA subtracts from a rounded exponential; ours is as near or nearer.
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x.astype(np.float64))
        rounded = wanted.astype(np.float16)
    is_finite = np.isfinite(rounded)
    unit = np.spacing(abs(rounded[is_finite])).astype(np.float64)
    errors = abs(found[is_finite].astype(np.float64) - wanted[is_finite])
    assert (errors <= 0.51 * unit).all()
    if name == "expm1":
        zeros = x == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(x[zeros]))


def test_functions_are_rounded_one_by_one():
    x = np.linspace(-5, 5, 5000).astype(np.float16)

    def fn(x):
        return jnp.expm1(jnp.log(jnp.exp(x)))

    ours, alternatives = decided(fn, x)
    assert rules(alternatives) == ["widened"] * 3
    wide = jnp.log(jnp.exp(x.astype(np.float32)).astype(np.float16).astype(np.float32))
    wide = jnp.expm1(wide.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(run(ours, x), np.asarray(wide).astype(np.float16))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_functions_of_other_types_stay(dtype):
    x = np.ones(5000, dtype)
    _, alternatives = decided(jnp.exp, x)
    assert rules(alternatives) == []
