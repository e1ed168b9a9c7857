# SPDX-License-Identifier: Apache-2.0
"""Scatters into columns as loops over a few rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax.auto import INLINING
from support.captures import capture_rule, rules

pytestmark = pytest.mark.jax


def captured(fn, *arrays):
    module = hloenv.HloModule.from_jax(fn, *arrays)
    module = hloenv.run_passes(module, *INLINING).module
    return module, capture_rule(module.to_text(), "reduce-forms", "scatter_rows")


def case(rows=(256,), columns=128, count=(50,), dtype=np.float32):
    """An array, places of its columns, some of them outside, and updates."""
    rng = np.random.default_rng(0)
    return (
        rng.integers(-99, 99, (*rows, columns)).astype(dtype),
        rng.integers(-2 * columns, 2 * columns, count, np.int32),
        rng.normal(0, 9, (*rows, *count)).astype(dtype),
    )


@pytest.mark.compile
@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        (lambda x, i, u: x.at[:, i].add(u), case()),
        (lambda x, i, u: x.at[:, i].set(u), case(rows=(259,))),
        (lambda x, i, u: x.at[:, i].max(u, mode="clip"), case(dtype=np.int32)),
        (lambda x, i, u: x.at[..., i].add(u), case((8, 32), 64, (10, 7))),
        (lambda x, i, u: x + jax.grad(lambda x: (x[:, i] * u).sum())(x), case()),
        (
            lambda x, i, u: x - jax.grad(lambda x: (x[..., i] * u).sum())(x),
            case((8, 32)),
        ),
        (
            lambda x, i, u: x.at[:, i].multiply(u),
            case(dtype=np.int8, columns=256, count=(300,)),
        ),
    ],
)
def test_results_are_equal_bit_for_bit(fn, arrays):
    module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["scatter_rows"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["while"] == 1
    (wanted,) = hloenv.interpret(module, *arrays)
    results = [hloenv.interpret(decided, *arrays)]
    results += [
        hloenv.compile(decided, engine=engine, isolate=False)(*arrays)
        for engine in ("wheel", "jaxlib")
    ]
    for (found,) in results:
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        (lambda x, i, u: x.at[:, i].add(u), case(columns=127)),  # no common distance
        (lambda x, i, u: x.at[:, i].add(u), case(rows=(16,))),  # few rows
        (lambda x, i, u: x.at[:, i].add(u), case(rows=(257,))),  # no blocks
        (lambda x, i, u: x.at[:, i].add(u), case(count=(31,))),  # few updates
        (lambda x, i, u: x.at[i].add(u.T), case(columns=256)),  # rows already
        (lambda x, i, u: x.at[i, i].add(u[0]), case()),
        # Rows nearer to each other: not for few updates, or transposed ones.
        (lambda x, i, u: x.at[:, i].add(u), case(columns=64, count=(63,))),
        (
            lambda x, i, u: jax.lax.scatter_add(
                *(x, i[:, None], u.T),
                jax.lax.ScatterDimensionNumbers((1,), (1,), (1,)),
            ),
            case(columns=64, count=(64,)),
        ),
        (lambda x, i, u: x[:0].at[:, i].add(u[:0]), case()),
    ],
)
def test_other_scatters_are_left(fn, arrays):
    _, alternatives = captured(lambda *a: jnp.asarray(fn(*a)), *arrays)
    assert rules(alternatives) == []
