# SPDX-License-Identifier: Apache-2.0
"""Products with one-hot rows as look-ups and sums by index."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="dot-forms", rule="one_hot")

one_hot = jax.nn.one_hot


def indices(*shape, high=40, dtype=np.int32):
    """Some of them are no class."""
    return np.random.default_rng(0).integers(-3, high + 3, shape).astype(dtype)


def whole(*shape, dtype=np.float32):
    """Numbers that are exact in all types, and so are their sums."""
    return np.random.default_rng(1).integers(-3, 4, shape).astype(dtype)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("fn", "arrays", "opcode"),
    [
        (lambda i, e: one_hot(i, 40) @ e, (indices(60), whole(40, 8)), "gather"),
        (lambda i, e: one_hot(i, 40) @ e, (indices(60), whole(40)), "gather"),
        (lambda i, e: one_hot(i, 40) @ e, (indices(3, 1, 20), whole(40, 8)), "gather"),
        (
            lambda i, e: jnp.einsum("btk,dkc->tdbc", one_hot(i, 40), e),
            (indices(5, 7), whole(3, 40, 4)),
            "gather",
        ),
        (
            lambda i, e: (jnp.arange(40)[:, None] == i).astype(jnp.int32).T @ e,
            (indices(60), whole(40, 8, dtype=np.int32)),
            "gather",
        ),
        (
            lambda i, e: one_hot(i, 40, dtype=jnp.bfloat16) @ e,
            (indices(60), whole(40, 8, dtype=jnp.bfloat16)),
            "gather",
        ),
        (
            lambda i, e: one_hot(i, 40) @ e,
            (np.abs(indices(60)).astype(np.uint32), whole(40, 8)),
            "gather",
        ),
        (lambda i, e: 3 * one_hot(i, 40) @ e, (indices(60), whole(40, 8)), "gather"),
        (
            lambda i, e, w: (w[:, None] * one_hot(i, 40)) @ e,
            (indices(60), whole(40, 8), whole(60)),
            "gather",
        ),
        (
            lambda i, x, w: jnp.einsum(
                "btk,btd->dk", one_hot(i, 40) * w[None, :, None], x
            ),
            (indices(5, 7), whole(5, 7, 6), whole(7)),
            "scatter",
        ),
        (lambda i, x: 2 * one_hot(i, 40).T @ x, (indices(60), whole(60, 8)), "scatter"),
        # A product of narrow numbers that the sum has whole.
        (
            lambda i, e, w: jax.lax.dot(
                w[:, None] * one_hot(i, 40, dtype=jnp.bfloat16),
                e,
                preferred_element_type=jnp.float32,
            ),
            (
                *(indices(60), whole(40, 8, dtype=jnp.bfloat16) * 1.0078125),
                whole(60, dtype=jnp.bfloat16) * 1.0078125,
            ),
            "gather",
        ),
        (lambda i, x: one_hot(i, 40).T @ x, (indices(60), whole(60, 8)), "scatter"),
        (lambda i, x: x @ one_hot(i, 40), (indices(60), whole(8, 60)), "scatter"),
        (lambda i, x: one_hot(i, 40).T @ x, (indices(60), whole(60)), "scatter"),
        (
            lambda i, x: jnp.einsum("btk,btd->dk", one_hot(i, 40), x),
            (indices(5, 7), whole(5, 7, 6)),
            "scatter",
        ),
        (
            lambda i, x: one_hot(i, 40, dtype=jnp.bfloat16).T @ x,
            (indices(60), whole(60, 8, dtype=jnp.bfloat16)),
            "scatter",
        ),
        (
            lambda i, j: one_hot(i, 40).T @ one_hot(j, 30),
            (indices(60), indices(60, high=30)),
            "scatter",
        ),
    ],
)
def test_results_are_equal(fn, arrays, opcode):
    module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["one_hot"]
    decided = alternatives.apply([1])
    assert "dot" not in decided.opcode_counts()
    assert decided.opcode_counts()[opcode] == 1
    check_decided(module, decided, *arrays)
