# SPDX-License-Identifier: Apache-2.0
"""reduce-forms/prefix_gradients: gradients of jax.lax.associative_scan as loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv

pytestmark = [pytest.mark.jax, pytest.mark.compile]

NAME, RULES = "reduce-forms", ("prefix_gradients", "prefixes")


def recurrence(p, q):
    return p[0] * q[0], q[0] * p[1] + q[1]


def states(a, b, axis=0, *, reverse=False):
    return jax.lax.associative_scan(recurrence, (a, b), axis=axis, reverse=reverse)[1]


def gradients(fn, loss=lambda h: jnp.sum(jnp.sin(h)), argnums=(0, 1)):
    return jax.grad(lambda *arrays: loss(fn(*arrays)), argnums)


def module_of(fn, *arrays) -> hloenv.HloModule:
    """As hloenv.jit decides it."""
    module = hloenv.HloModule.from_jax(fn, *arrays)
    return hloenv.run_passes(module, "call-inliner", "tuple-simplifier", "cse").module


def with_loops(module, rules=RULES) -> tuple[list[str], hloenv.HloModule]:
    """The rules of the loops that the module gets, and the module with them."""
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    taken = [
        next((k for k, c in enumerate(one.choices) if c.rule in rules), 0)
        for one in alternatives
    ]
    named = [
        one.choices[k].rule for one, k in zip(alternatives, taken, strict=True) if k
    ]
    return sorted(named), alternatives.apply(np.array(taken, np.int64))


def assert_loops(fn, arrays, rules=RULES, rtol=2e-5) -> None:
    module = module_of(fn, *arrays)
    expected = hloenv.compile(module)(*arrays)
    found, changed = with_loops(module, rules)
    assert found == sorted(rules)
    # Nothing is left of the trees.
    counts = changed.opcode_counts()
    assert counts["while"] == len(rules)
    assert counts.get("pad", 0) <= 2
    for engine in ("wheel", "jaxlib"):
        results = hloenv.compile(changed, engine=engine, isolate=False)(*arrays)
        for result, one in zip(results, expected, strict=True):
            scale = np.abs(one).max()
            np.testing.assert_allclose(result, one, rtol=rtol, atol=rtol * scale)


def drawn(*shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return tuple((rng.normal(size=shape) * 0.7).astype(dtype) for shape in shapes)


@pytest.mark.parametrize("rows", [16, 17, 31, 33, 64, 100, 255])
def test_numbers_of_rows(rows):
    assert_loops(gradients(states), drawn((rows, 6), (rows, 6)))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((40,), 0), ((3, 40), 1), ((3, 40, 5), 1), ((2, 3, 40, 4), 2), ((40, 2, 3), 0)],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_dimensions(shape, axis, reverse):
    def fn(a, b):
        return states(a, b, axis, reverse=reverse)

    assert_loops(gradients(fn), drawn(shape, shape))


@pytest.mark.parametrize(
    "loss",
    [
        lambda h: jnp.sum(h**2),
        lambda h: jnp.sum(h[-1] ** 3),
        lambda h: jnp.sum(h * jnp.cos(h) + h[::-1]),
    ],
)
def test_losses(loss):
    assert_loops(gradients(states, loss), drawn((40, 6), (40, 6)))


@pytest.mark.parametrize("argnums", [(0,), (1,)])
def test_one_of_the_gradients(argnums):
    assert_loops(gradients(states, argnums=argnums), drawn((40, 6), (40, 6)))


def test_sums_and_products():
    def sums(x):
        return jax.lax.associative_scan(jnp.add, x)

    def products(x):
        return jax.lax.associative_scan(jnp.multiply, x)

    arrays = drawn((40, 200))
    assert_loops(gradients(sums, argnums=(0,)), arrays)
    assert_loops(gradients(products, argnums=(0,)), arrays)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (jax.vmap(states, in_axes=(None, 0)), ((40, 6), (3, 40, 6))),
        (lambda a, b: states(a, b, 1), ((1, 40, 6), (3, 40, 6))),
        (states, ((40, 1), (40, 6))),
        (states, ((40, 1, 6), (40, 5, 6))),
    ],
)
def test_factors_that_are_broadcast(fn, shapes):
    assert_loops(gradients(fn), drawn(*shapes))


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(np.float64, 1e-12), (np.complex64, 2e-5), (jnp.bfloat16, 1e-1)],
)
def test_types(dtype, rtol):
    with jax.enable_x64(True):
        a, b, c, d = drawn((40, 6), (40, 6), (40, 6), (40, 6))
        arrays = a.astype(dtype), b.astype(dtype)
        if dtype == np.complex64:
            arrays = a + 1j * c, b + 1j * d

        def loss(h):
            return jnp.sum(jnp.sin(jnp.real(h)) + jnp.imag(h) ** 2)

        assert_loops(gradients(states, loss), arrays, rtol=rtol)


def test_several_layers():
    def fn(a, b, c):
        return states(c, jnp.tanh(states(a, b)))

    module = module_of(gradients(fn, argnums=(0, 1, 2)), *drawn(*[(40, 6)] * 3))
    found, changed = with_loops(module)
    assert found == ["prefix_gradients"] * 2 + ["prefixes"] * 2
    assert changed.opcode_counts()["while"] == 4


def test_other_trees_stay():
    def best(p, q):
        return p[0] + q[0], jnp.maximum(p[1] + q[0], q[1])

    def fn(a, b):
        return jax.lax.associative_scan(best, (a, b))[1]

    module = module_of(gradients(fn), *drawn((40, 6), (40, 6)))
    assert "prefix_gradients" not in with_loops(module)[0]


@pytest.mark.parametrize("number", range(12))
def test_values_with_a_changed_step(number):
    """Of a tree in which one product is a sum, no wrong gradient is taken."""
    arrays = drawn((16, 2), (16, 2))
    module = module_of(gradients(states), *arrays)
    lines = module.to_text().splitlines()
    steps = [i for i, line in enumerate(lines) if " multiply(" in line]
    chosen = steps[number * len(steps) // 12]
    lines[chosen] = lines[chosen].replace(" multiply(", " add(")
    assert_same(hloenv.HloModule.from_text("\n".join(lines)), arrays)


def assert_same(module, arrays, rules=RULES) -> None:
    """The values with the loops are those without, also where they are no numbers."""
    _, changed = with_loops(module, rules)
    for result, one in zip(
        hloenv.compile(changed, isolate=False)(*arrays),
        hloenv.compile(module)(*arrays),
        strict=True,
    ):
        scale = np.abs(one[np.isfinite(one)]).max(initial=0)
        np.testing.assert_allclose(result, one, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize(
    "changed",
    [
        lambda d, c: d + 0.0 * c,
        lambda d, c: (d + c) + (-c),
        lambda d, c: (d + c) - c,
        lambda d, c: d * np.float32(2.0**-61),
        lambda d, c: -d,
        lambda d, c: d * d[-1:],
    ],
)
def test_what_the_gradient_is_computed_of(changed):
    """It may be read elsewhere: what comes of it is another number."""
    a, b, c, d = drawn(*[(20, 6)] * 4)
    c[7, 2] = np.inf
    c[:, 1] *= 2**22

    def fn(a, b, c, d):
        h, backward = jax.vjp(states, a, b)
        return *backward(changed(d, c)), h, d[1:], c[:1]

    module = module_of(fn, a, b, c, d)
    assert "prefix_gradients" in with_loops(module)[0]
    assert_same(module, (a, b, c, d))


def test_large_factors():
    factor = 2.0**61

    def scaled(p, q):
        return p[0] * q[0] * factor, q[0] * p[1] * factor + q[1]

    def fn(a, b, d):
        h, backward = jax.vjp(
            lambda a, b: jax.lax.associative_scan(scaled, (a, b))[1], a, b
        )
        return *backward(d), h

    with jax.enable_x64(True):
        a, b, d = drawn(*[(20, 6)] * 3, dtype=np.float64)
        a /= factor
        assert_same(module_of(fn, a, b, d), (a, b, d))


@pytest.mark.parametrize("rows", [20, 3000])
def test_one_row_for_all(rows):
    """The last state times all others."""

    def loss(h):
        return jnp.sum(jnp.sin(jnp.broadcast_to(h[-1], h.shape) * h))

    arrays = drawn((rows, 6), (rows, 6))
    assert_loops(gradients(states, loss), arrays)
    assert_loops(gradients(states, lambda h: loss(h.reshape(-1))), arrays[:1] * 2)


def test_two_sums():
    def fn(x, y):
        def sums(x):
            return jnp.sin(jax.lax.associative_scan(jnp.add, x))

        return jnp.sum(sums(x) * y + sums(sums(y)))

    arrays = drawn((40, 200), (40, 200))
    found, _ = with_loops(module_of(jax.grad(fn, (0, 1)), *arrays))
    assert found == ["prefix_gradients"] * 3 + ["prefixes"] * 3
    assert_same(module_of(jax.grad(fn, (0, 1)), *arrays), arrays)
