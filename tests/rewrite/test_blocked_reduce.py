# SPDX-License-Identifier: Apache-2.0
"""Reductions of broadcast arrays as loops over four elements at a time."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="reduce-forms", rule="blocked")


def whole(*sizes, seed=0, dtype=np.float32):
    """Small whole numbers, whose sums and products are exact."""
    rng = np.random.default_rng(seed)
    return rng.integers(-4, 5, sizes).astype(dtype)


A, B = whole(64, 17), whole(17, 80, seed=1)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        (lambda a, b: (a[:, :, None] + b[None]).min(1), (A, B)),
        (lambda a, b: (a[:, None] + b.T[None]).max(-1), (A, B)),
        (lambda a, b: (jnp.abs(a[:, :, None] - b[None]) * 0.5).sum(1), (A, B)),
        (lambda a, b: (a.T[:, :, None] * b[:, None] * 2).sum(0) + 1, (A, B)),
        # Not a multiple of four, and one; other types.
        (lambda a, b: jnp.abs(a[:, None] - b[None]).sum(-1), (whole(70, 23), whole(64, 23))),
        (
            lambda a, b: (a[:, None] * b[None]).prod(-1),
            (whole(70, 34, dtype=np.int32), whole(64, 34, dtype=np.int32)),
        ),
        (lambda a, b: (a[:, None] > b[None]).any(-1), (whole(70, 34), whole(64, 34))),
        (lambda a, b: (a[:, None] > b[None]).sum(-1), (whole(70, 35), whole(64, 35))),
        (
            lambda a, b: (a[:, None] + b[None]).max(-1),
            (whole(70, 24, dtype=np.float64), whole(64, 24, dtype=np.float64)),
        ),
        # Over several dimensions.
        (lambda a, b: jnp.abs(a[:, :, None] - b[None]).sum((0, 1)), (A, B)),
        (lambda a, b: jnp.abs(a[:, :, None] - b[None]).max(), (A, B)),
        (lambda a, b: (a[:, None, :, None] < b[None, :, None]).sum((1, 2)), (whole(30, 40), whole(12, 40))),
        # One array along both dimensions, one without the reduced dimension, a number.
        (lambda x, y, c: (x[:, None] * x[:, :, None] + y).max(1) * c, (whole(70, 70), whole(70), np.float32(3))),
        (lambda x, y, c: (jnp.where(x > c, x, y[..., None])[..., None] - x.T[None] * c).sum(1), (whole(70, 70), whole(70), np.float32(3))),
    ],
)  # fmt: skip
def test_results_are_equal_bit_for_bit(fn, arrays):
    with jax.enable_x64(arrays[0].dtype == np.float64):
        module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["blocked"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["while"] == 1
    check_decided(module, decided, *arrays)


@pytest.mark.compile
def test_numbers_that_are_not_finite():
    a, b = A.copy(), B.copy()
    # Of 530 numbers, there are loops over parts of the sum.
    a, b = np.tile(a, (1, 31)), np.tile(b, (31, 1))
    a[3, 4], a[5, 6], b[7, 8], b[9, 10] = np.nan, np.inf, -np.inf, np.nan
    module, alternatives = captured(
        lambda a, b: ((a[:, :, None] + b).max(1), (a[:, :, None] - b).sum(1)), a, b
    )
    assert rules(alternatives) == ["blocked", "blocked"]
    check_decided(module, alternatives.apply([1, 1]), a, b)


class RandomProgram:
    """A reduction of a function of a few arrays, each with some of its dimensions."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        order = rng.permutation(3)
        sizes = np.array([rng.integers(17, 40), rng.choice((16, 24)), 256])
        self.sizes, self.axis = sizes[order], int(np.flatnonzero(order == 0)[0])
        self.arrays, self.places = [], []
        for i in range(rng.integers(2, 5)):
            dims = rng.permutation(3)[: rng.integers(0 if i > 1 else 1, 3)]
            if i == 0 and self.axis not in dims:
                dims[0] = self.axis
            self.places.append(dims)
            self.arrays.append(whole(*self.sizes[dims], seed=seed + i))
        self.operations = rng.choice(("add", "subtract", "maximum"), 4)
        self.reducer = str(rng.choice(("sum", "max", "min")))

    def __call__(self, *arrays):
        wide = []
        for array, dims in zip(arrays, self.places, strict=True):
            array = jnp.transpose(array, np.argsort(dims))
            others = tuple({0, 1, 2} - set(dims.tolist()))
            wide.append(jnp.expand_dims(array, others))
        value = jnp.broadcast_to(wide[0], self.sizes)
        for name, array in zip(self.operations, wide[1:], strict=False):
            value = getattr(jnp, name)(value, array)
        return getattr(value, self.reducer)(self.axis)


@pytest.mark.compile
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    program = RandomProgram(seed)
    module, alternatives = captured(program, *program.arrays)
    assert rules(alternatives) == ["blocked"]
    check_decided(module, alternatives.apply([1]), *program.arrays)


@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        # As many numbers as are reduced; few results; short rows, and of them; narrow numbers.
        (lambda a: (a * 2).sum(1), (whole(64, 17, 80),)),
        (lambda a, b: (a[:, :, None] + b).min(1), (whole(12, 17), whole(17, 80))),
        (lambda a, b: (a[:, None] + b[None]).min(), (whole(700), whole(900))),
        (lambda a, b: (a[:, :, None] + b).min(1), (whole(900, 17), whole(17, 7))),
        (lambda a, b: (a[:, :, None] + b).min(1), (whole(900, 17), whole(17, 15))),
        (lambda a, b: (a[:, :8, None] + b[:8]).min(1), (A, B)),
        (lambda a, b: (a[:, :, None] + b).min(1), (A.astype(np.float16), B.astype(np.float16))),
        # What the library computes as fast; functions that get another form.
        (lambda a, b: jnp.sin(a[:, :, None] - b).max(1), (A, B)),
        (lambda a, b: (a[:, :, None] * b).sum(1), (A, B)),
        (lambda a, b: jnp.log1p(a[:, :, None] * b).max(1), (A, B)),
        # Few integers; what all have in common; one element from each of large results.
        (lambda a, b: (a[:, :, None] + b).sum(1), (whole(64, 32, dtype=np.int32), whole(32, 80, dtype=np.int32))),
        (lambda a, b: jnp.broadcast_to(a[:, None] + b[0, :17], (64, 70, 17)).sum(1), (A, B)),
        (lambda a, b: (a[:, None] * b[0, 0] + jnp.zeros((64, 70, 17))).sum(1), (A, B)),
        # What is computed has another reader.
        (lambda a, b: (c := jnp.exp(a[:, :, None] + b), c.sum(1)), (A, B)),
    ],
)  # fmt: skip
def test_others_are_left(fn, arrays):
    _, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == []


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.compile
def test_long_sums_round_as_little_as_others(engine):
    def sums(a, b):
        return jnp.abs(a[:, None] - b[None]).sum(0)

    a = np.full(100_003, 0.1, np.float32)
    b = np.linspace(0, 0.09, 1024, dtype=np.float32)
    _, alternatives = captured(sums, a, b)
    decided = alternatives.apply([1])
    (found,) = hloenv.compile(decided, engine=engine, isolate=False)(a, b)
    wanted = (a[:1, None].astype(np.float64) - b)[0] * len(a)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-6)


@pytest.mark.compile
def test_sums_of_the_same_values_become_loops_together():
    def sums(a, b):
        c = jnp.maximum(a[:, :, None], b)
        return c.sum(0), (-c).sum(2)

    def others(a, b):
        c = jnp.maximum(a[:, :, None], b)
        return c.sum(0), jnp.cumsum(c, 1)

    arrays = whole(64, 20), whole(20, 80, seed=1)
    module, alternatives = captured(sums, *arrays)
    assert rules(alternatives) == ["blocked", "blocked"]
    check_decided(module, alternatives.apply([1, 1]), *arrays)
    assert rules(captured(others, *arrays)[1]) == []


@pytest.mark.compile
@pytest.mark.parametrize("rule", ["blocked", "chain"])
def test_products_that_others_read_are_computed_once(rule):
    """Rounded once only, they may be larger than their largest."""
    count = {"blocked": 100, "chain": 8}[rule]

    def below(x, q):
        s = jnp.abs(x[:, None] * q)
        return jnp.sqrt(s.max(0) - s)

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=n).astype(np.float32) for n in (count, 1500)]
    _, alternatives = capture_jax(below, *arrays, name="reduce-forms", rule=rule)
    decided = alternatives.apply([1] * len(alternatives))
    (found,) = hloenv.compile(decided, engine="jaxlib", isolate=False)(*arrays)
    assert np.isfinite(np.asarray(found)).all()


@pytest.mark.compile
def test_in_a_loop():
    def best_path(start, steps):
        def step(best, scores):
            return (best[:, :, None] + scores).max(1), None

        return jax.lax.scan(step, start, steps)[0]

    arrays = whole(64, 70), whole(3, 70, 70, seed=1)
    module, alternatives = captured(best_path, *arrays)
    assert rules(alternatives) == ["blocked"]
    check_decided(module, alternatives.apply([1]), *arrays)
