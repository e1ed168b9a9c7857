# SPDX-License-Identifier: Apache-2.0
"""Binary searches as one kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax.auto import INLINING
from support.captures import rules

pytestmark = pytest.mark.jax

ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, -2.0)


def captured(fn, *arrays):
    """The module of a function, and what may be decided of its searches."""
    module = hloenv.HloModule.from_jax(fn, *arrays)
    module = hloenv.run_passes(module, *INLINING).module
    env = hloenv.HloEnv(module)
    return module, env.get_alternatives(hloenv.Pass("sort-forms", packed=False))


def check(fn, *arrays, most_gathers):
    """That the form computes the same, by both compilers and the interpreter."""
    module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["search"]
    decided = alternatives.apply([1])
    counts = decided.opcode_counts()
    assert "while" not in counts
    assert counts.get("gather", 0) <= most_gathers
    (wanted,) = hloenv.interpret(module, *arrays)
    results = [hloenv.interpret(decided, *arrays)]
    results += [
        hloenv.compile(decided, engine=engine, isolate=False)(*arrays)
        for engine in ("wheel", "jaxlib")
    ]
    for (found,) in results:
        np.testing.assert_array_equal(found, wanted)


def search(side):
    return lambda table, x: jnp.searchsorted(table, x, side=side)


@pytest.mark.compile
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [2, 3, 7, 20, 63, 64, 300])
def test_places_in_a_sorted_table(size, side):
    rng = np.random.default_rng(size)
    table = np.sort(rng.normal(size=size).astype(np.float32))
    x = rng.permutation(np.concatenate([table, rng.normal(size=500), ODD]))
    levels = int(np.ceil(np.log2(size + 1)))
    check(search(side), table, x.astype(np.float32), most_gathers=max(levels - 6, 0))


@pytest.mark.compile
@pytest.mark.parametrize("seed", range(4))
def test_a_table_that_is_not_sorted(seed):
    rng = np.random.default_rng(seed)
    table, x = (rng.choice(ODD, size).astype(np.float32) for size in (90, 400))
    check(search("left"), table, x.reshape(20, 20), most_gathers=1)


@pytest.mark.compile
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "bfloat16"])
def test_other_numbers(dtype):
    rng = np.random.default_rng(0)
    type_ = jnp.dtype(dtype)
    table = np.sort(rng.integers(0, 100, 30)).astype(type_)
    x = rng.integers(0, 120, 500).astype(type_)
    check(search("right"), table, x, most_gathers=0)


def by_halves(table, x):
    """A search as people write it."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        is_above = table[middle] < x
        return jnp.where(is_above, middle + 1, low), jnp.where(is_above, high, middle)

    zeros = jnp.zeros(x.shape, jnp.int32)
    bounds = jax.lax.fori_loop(0, 5, halve, (zeros, zeros + len(table)))
    return bounds[0] + 100 * bounds[1]


@pytest.mark.compile
def test_a_search_that_is_written_by_hand():
    table = np.linspace(-2, 2, 31, dtype=np.float32)
    x = np.random.default_rng(0).normal(size=300).astype(np.float32)
    check(by_halves, table, x, most_gathers=0)


def of_a_loop(step, table, x, start=0):
    zeros = jnp.zeros(x.shape, jnp.int32)
    state = zeros + start, zeros + len(table), table
    return jax.lax.fori_loop(0, 5, lambda _, state: step(*state, x), state)[:2]


def halved(low, high, table, x):
    middle = (low + high) // 2
    is_above = table[middle] < x
    return jnp.where(is_above, middle + 1, low), jnp.where(is_above, high, middle)


def searched_in_itself(_, x):
    def step(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        is_below = low[middle] < x
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    zeros = jnp.zeros(x.shape, jnp.int32)
    return jax.lax.fori_loop(0, 6, step, (zeros, zeros + len(x) - 1))


def beside_an_array(table, x):
    shift = np.linspace(0, 0.1, len(x), dtype=np.float32)

    def step(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        is_above = table[middle] + shift < x
        return jnp.where(is_above, middle + 1, low), jnp.where(is_above, high, middle)

    zeros = jnp.zeros(x.shape, jnp.int32)
    return jax.lax.fori_loop(0, 5, step, (zeros, zeros + len(table)))[0]


@pytest.mark.compile
def test_an_array_beside_the_table():
    table = np.linspace(-2, 2, 31, dtype=np.float32)
    x = np.random.default_rng(0).normal(size=300).astype(np.float32)
    check(beside_an_array, table, x, most_gathers=0)


def test_what_is_looked_up_is_evaluated_once():
    """Not once for each place that a number is used in."""

    def fn(table, x):
        def step(_, bounds):
            low, high = bounds
            middle = (low + high) // 2
            for _ in range(40):
                middle = jnp.minimum(middle, middle + 1)
            is_above = table[middle] < x
            return jnp.where(is_above, middle + 1, low), jnp.where(
                is_above, high, middle
            )

        zeros = jnp.zeros(x.shape, jnp.int32)
        return jax.lax.fori_loop(0, 5, step, (zeros, zeros + len(table)))[0]

    table = np.linspace(-2, 2, 31, dtype=np.float32)
    captured(fn, table, np.zeros(300, np.float32))


def test_other_loops_are_left():
    table = np.linspace(-2, 2, 31, dtype=np.float32)
    x = np.random.default_rng(0).normal(size=300).astype(np.float32)

    def of_numbers(low, high, table, x):
        """Where it looks next depends on a number itself."""
        low, high = halved(low, high, table, x)
        return low + table[low].astype(jnp.int32), high, table

    def of_another_table(low, high, table, x):
        return *halved(low, high, table, x), table * 2

    def of_x(low, high, table, x):
        low, high = halved(low, high, table, x)
        return low + (x > 0), high, table

    for step in (of_numbers, of_another_table, of_x):
        _, found = captured(lambda t, x, s=step: of_a_loop(s, t, x), table, x)
        assert rules(found) == [], step
    kept = lambda low, high, table, x: (*halved(low, high, table, x), table)  # noqa: E731
    _, found = captured(lambda t, x: of_a_loop(kept, t, x), table, x)
    assert rules(found) == ["search"]
    # A table that is one of the bounds.
    _, found = captured(searched_in_itself, table, x)
    assert rules(found) == []
    # Bounds that only the caller knows.
    fn = lambda t, x, start: of_a_loop(kept, t, x, start)  # noqa: E731
    _, found = captured(fn, table, x, np.int32(1))
    assert rules(found) == []
