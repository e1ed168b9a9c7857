# SPDX-License-Identifier: Apache-2.0
"""Sums of nothing but negative zeros are positive zeros, as under jax.jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloenv

pytestmark = pytest.mark.jax


def _convolve(x: Any, k: Any, groups: int = 1) -> Any:
    import jax

    return jax.lax.conv_general_dilated(
        *(x, k, (1,) * (x.ndim - 2), "SAME"), feature_group_count=groups
    )


def _window(x: Any) -> Any:
    import jax

    return jax.lax.reduce_window(
        *(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    )


CASES: dict[str, tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "taps": (
        "convolution-forms/taps",
        lambda x, k: _convolve(x, k, 8),
        ((1, 8, 20, 20), (8, 1, 3, 3)),
    ),
    "one channel": ("convolution-forms/taps", _convolve, ((1, 1, 900), (1, 1, 101))),
    "terms": (
        "convolution-forms/terms",
        _convolve,
        ((2, 3, 32, 32), (1, 3, 3, 3)),
    ),
    "blocks": (
        "convolution-forms/blocks",
        _convolve,
        ((2, 1, 16, 16), (8, 1, 1, 1)),
    ),
    "outputs": (
        "convolution-forms/outputs",
        lambda x, k: _convolve(x, k, 8),
        ((4, 8, 1, 1), (8, 1, 3, 3)),
    ),
    "unrolled": (
        "dot-forms/unrolled",
        lambda a, b: a @ b,
        ((900, 4, 3), (900, 3, 8)),
    ),
    "chain": ("reduce-forms/chain", lambda a, b: (a * b).sum(-1), ((3000, 3),) * 2),
    "window": (
        "reduce-forms/window",
        lambda a, b: _window(a * b),
        ((4, 32, 32, 8),) * 2,
    ),
    "scan": ("reduce-forms/scan", lambda a, b: (a * b).cumsum(0), ((301, 37),) * 2),
    "scan, reversed": (
        "reduce-forms/scan",
        lambda a, b: (a * b)[::-1].cumsum(1)[:, ::-1],
        ((37, 303),) * 2,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("budget", [0.0, 0.2])
def test_signs_of_zero(case, budget):
    import jax

    rule, function, shapes = CASES[case]
    generator = np.random.default_rng(0)
    first = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    decided = hloenv.jit(function, budget=budget, remember=False)
    np.testing.assert_allclose(
        decided(*first), jax.jit(function)(*first), rtol=1e-3, atol=1e-4
    )
    assert budget or rule in str(decided.explain())
    zeros = np.zeros(shapes[0], np.float32), -np.ones(shapes[1], np.float32)
    wanted = np.asarray(jax.jit(function)(*zeros))
    assert not np.signbit(wanted).any()
    assert not np.signbit(np.asarray(decided(*zeros))).any()
