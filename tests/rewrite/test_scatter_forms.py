# SPDX-License-Identifier: Apache-2.0
"""Scatters into columns as loops over a few rows."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="reduce-forms", rule="scatter_rows")


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
    check_decided(module, decided, *arrays)
