# SPDX-License-Identifier: Apache-2.0
"""The policy known-forms on linear algebra of tiny matrices."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy

pytestmark = pytest.mark.jax


def decisions(fn, *shapes):
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    module = hloenv.HloModule.from_jax(fn, *arrays)
    alternatives = hloenv.HloEnv(module).get_alternatives("math-forms")
    return get_policy("known-forms")(alternatives).tolist()


@pytest.mark.parametrize(
    ("batch", "size", "expected"),
    [
        ((500,), 4, [1]),
        ((499,), 4, [-1]),
        ((25, 20), 4, [1]),
        ((1999,), 5, [-1]),
        ((2000,), 5, [1]),
        ((), 3, [-1]),
    ],
)
def test_many_factors(batch, size, expected):
    for fn in (jax.lax.linalg.lu, jax.lax.linalg.cholesky):
        assert decisions(fn, (*batch, size, size)) == expected


@pytest.mark.parametrize(("count", "expected"), [(500, [1]), (499, [-1])])
def test_many_triangular_systems(count, expected):
    def fn(a, b):
        return jax.lax.linalg.triangular_solve(a, b, left_side=True)

    assert decisions(fn, (count, 3, 3), (count, 3, 2)) == expected
