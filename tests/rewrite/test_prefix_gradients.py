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
    module = module_of(gradients(states, loss), *drawn((40, 6), (40, 6)))
    assert "prefix_gradients" in with_loops(module)[0]
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
    "shapes",
    [
        ((40, 6), (3, 40, 6)),
        ((1, 40, 6), (3, 40, 6)),
        ((40, 1), (40, 6)),
        ((40, 1, 6), (40, 5, 6)),
    ],
)
def test_factors_that_are_broadcast(shapes):
    axis = len(shapes[1]) - 2
    mapped = states
    if len(shapes[0]) < len(shapes[1]):
        mapped = jax.vmap(states, in_axes=(None, 0))
    elif shapes == ((1, 40, 6), (3, 40, 6)):

        def mapped(a, b):
            return states(a, b, 1)

    del axis
    assert_loops(gradients(mapped), drawn(*shapes))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_types(dtype):
    with jax.enable_x64(True):
        a, b, c, d = drawn((40, 6), (40, 6), (40, 6), (40, 6))
        arrays = a.astype(dtype), b.astype(dtype)
        if dtype == np.complex64:
            arrays = a + 1j * c, b + 1j * d

        def loss(h):
            return jnp.sum(jnp.sin(jnp.real(h)) + jnp.imag(h) ** 2)

        assert_loops(gradients(states, loss), arrays)


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
def test_a_changed_step_stays(number):
    """Of a tree in which one product is another one, no gradient is taken."""
    module = module_of(gradients(states), *drawn((16, 2), (16, 2)))
    lines = module.to_text().splitlines()
    steps = [i for i, line in enumerate(lines) if " multiply(" in line]
    chosen = steps[number * len(steps) // 12]
    lines[chosen] = lines[chosen].replace(" multiply(", " add(")
    edited = hloenv.HloModule.from_text("\n".join(lines))
    expected = hloenv.compile(edited)(*drawn((16, 2), (16, 2)))
    _, changed = with_loops(edited)
    results = hloenv.compile(changed, isolate=False)(*drawn((16, 2), (16, 2)))
    for result, one in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, one, rtol=1e-4, atol=1e-4)
