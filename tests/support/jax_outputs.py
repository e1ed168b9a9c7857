# SPDX-License-Identifier: Apache-2.0
"""Comparison of what jax's functions return."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def assert_same(actual: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Both have one structure, one type, and values within the tolerance."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(
        jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
    ):
        assert one.dtype == other.dtype
        if isinstance(one, jax.Array) and isinstance(other, jax.Array):
            assert one.weak_type == other.weak_type
        if one.dtype == jnp.bfloat16:
            one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
            limit = 2e-2
        else:
            limit = tolerance
        np.testing.assert_allclose(one, other, rtol=limit, atol=limit)
