# SPDX-License-Identifier: Apache-2.0
"""Comparing the results of jax functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import Array
from ..runtime.compare import are_nan
from ..runtime.float_errors import without_float_errors
from ..runtime.jaxlib.package import require_jax
from ..runtime.moved import compare_moved, slices
from .flat import to_flat


@without_float_errors
def difference(
    expected: Any,
    actual: Any,
    *,
    moved: Callable[[int], Any] | None = None,
    actual_moved: Callable[[int], Any] | None = None,
    seconds: float = math.inf,
) -> str:
    """Describes how two pytrees of arrays differ; "" if they are equal.

    Args:
        expected: arrays of jax or numpy.
        actual: as many.
        moved: gives the outputs for other last bits of the arguments, as of
            `compare_moved`.
        actual_moved: likewise those of what gave `actual`.
        seconds: after which the last bits are not moved again.
    """
    jax = require_jax("hloenv.jit")
    for leaf, (one, other) in enumerate(
        zip(_types(jax, expected), _types(jax, actual), strict=True)
    ):
        if one != other:
            return f"output {leaf} has type {other}, expected {one}"
    found = compare_moved(
        _arrays(jax, expected),
        _arrays(jax, actual),
        moved=moved and (lambda draw: _arrays(jax, moved(draw))),
        actual_moved=actual_moved and (lambda draw: _arrays(jax, actual_moved(draw))),
        seconds=seconds,
    )
    return "" if found.is_equal else str(found)


def are_all_nan(outputs: Any) -> bool:
    """Whether all elements of a pytree of arrays are NaN; False if it has none."""
    arrays = [a for a in _arrays(require_jax("hloenv.jit"), outputs) if a.size]
    return bool(arrays) and are_nan(*arrays)


@without_float_errors
def compare_bitwise(expected: Any, actual: Any) -> bool:
    """Whether two pytrees of arrays have the same types and bits."""
    jax = require_jax("hloenv.tune")
    if _types(jax, expected) != _types(jax, actual):
        return False
    return all(
        np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for one, other in zip(_arrays(jax, expected), _arrays(jax, actual), strict=True)
        for _, a, b in slices(one, other)
    )


def _arrays(jax: Any, tree: Any) -> list[Array]:
    return [
        np.asarray(to_flat(jax, leaf))
        for leaf in jax.tree.leaves(tree)
        if leaf.dtype != jax.dtypes.float0  # gradients of integers, without values
    ]


def _types(jax: Any, tree: Any) -> list[str]:
    """The type of each array in words: that of a key, and whether it is weak."""
    return [
        f"{leaf.dtype}{list(leaf.shape)}"
        + (" (weak)" if getattr(leaf, "weak_type", False) else "")
        for leaf in jax.tree.leaves(tree)
    ]
