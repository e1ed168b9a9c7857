# SPDX-License-Identifier: Apache-2.0
"""Comparing the results of jax functions, in memory of bounded size.

A large array is compared slice by slice, with the rules of `compare_outputs`: the scale
of an array's tolerance is that of the whole array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._typing import Array
from ..runtime import compare as rules
from ..runtime.compare import OutputComparison, are_nan, compare_outputs
from ..runtime.jaxlib.package import require_jax
from .flat import to_flat

# Elements; a comparison takes up to 100 bytes for each.
_SLICE = 1 << 18
# Times what the last bits of the arguments move an output, as for `compare_outputs`.
_SHIFTS = 10.0
# What counts as little, as a share of the output; and as nothing, of the largest one.
_LITTLE, _NOTHING = 0.01, 1e-5


def difference(
    expected: Any, actual: Any, *, moved: Callable[[], Any] | None = None
) -> str:
    """Describes how two pytrees of arrays differ; "" if they are equal.

    Args:
        expected: arrays of jax or numpy.
        actual: as many.
        moved: gives the outputs for arguments that are moved by their last bits. Floats
            may differ by ten times what those do, as for `compare_outputs`, where that
            is little, or next to nothing beside the other outputs: a gradient that is
            zero but for rounding.
    """
    jax = require_jax("hloenv.jit")
    for leaf, (one, other) in enumerate(
        zip(_types(jax, expected), _types(jax, actual), strict=True)
    ):
        if one != other:
            return f"output {leaf} has type {other}, expected {one}"
    arrays = _arrays(jax, expected), _arrays(jax, actual)
    comparison = _compare(*arrays, [None] * len(arrays[0]))
    if not comparison.is_equal and moved is not None:
        shifts = _shifts(arrays[0], _arrays(jax, moved()))
        comparison = _compare(*arrays, shifts)
    return "" if comparison.is_equal else str(comparison)


def are_all_nan(outputs: Any) -> bool:
    """Whether all elements of a pytree of arrays are NaN; False if it has none."""
    arrays = [a for a in _arrays(require_jax("hloenv.jit"), outputs) if a.size]
    return bool(arrays) and are_nan(*arrays)


def compare_bitwise(expected: Any, actual: Any) -> bool:
    """Whether two pytrees of arrays have the same types and bits."""
    jax = require_jax("hloenv.tune")
    if _types(jax, expected) != _types(jax, actual):
        return False
    return all(
        np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for one, other in zip(_arrays(jax, expected), _arrays(jax, actual), strict=True)
        for _, a, b in _slices(one, other)
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


def _shifts(expected: Sequence[Array], moved: Sequence[Array]) -> list[float | None]:
    """How far the last bits of the arguments move each array; None where that counts.

    Not for integers, and not where it is more than rounding.
    """
    scales = [0.0 if _is_exact(each) else _scale(each) for each in expected]
    largest = max(scales, default=0.0)
    shifts: list[float | None] = []
    for one, other, scale in zip(expected, moved, scales, strict=True):
        if _is_exact(one) or not one.size:
            shifts.append(None)
            continue
        shift = _distance(one, other)
        is_little = shift <= max(_LITTLE * scale, _NOTHING * largest)
        shifts.append(shift if is_little else None)
    return shifts


def _is_exact(array: Array) -> bool:
    return array.dtype.kind in "biu" or array.dtype.name in ("int4", "uint4")


def _compare(
    expected: Sequence[Array],
    actual: Sequence[Array],
    shifts: Sequence[float | None],
) -> OutputComparison:
    """As `compare_outputs`, of equal types; elements may differ by ten shifts."""
    worst = OutputComparison(is_equal=True, num_leaves=len(expected))
    for leaf, (one, other, shift) in enumerate(
        zip(expected, actual, shifts, strict=True)
    ):
        if one.size <= _SLICE and shift is None:
            found = compare_outputs([one], [other])
        elif one.size:
            found = _compare_large(one, other, shift or 0.0)
        else:
            continue
        if found.leaf is not None and (
            worst.leaf is None or found.excess > worst.excess
        ):
            worst = replace(found, leaf=leaf, num_leaves=len(expected))
    return worst


def _compare_large(expected: Array, actual: Array, shift: float) -> OutputComparison:
    """As `compare_outputs` of one array, which has elements."""
    scale = None if _is_exact(expected) else _scale(expected)
    worst = OutputComparison(is_equal=True, num_leaves=1)
    for begin, one, other in _slices(expected, actual):
        error, allowed = rules._errors(one, other, None, [])
        if scale is not None:
            allowed = rules._tolerance(one.dtype) * np.maximum(_sizes(one), scale)
            allowed = allowed + _SHIFTS * shift
        excess = rules._excess(error, allowed)
        at = int(np.argmax(excess))
        if worst.leaf is None or excess[at] > worst.excess:
            worst = OutputComparison(
                is_equal=bool(excess[at] <= 1.0),
                num_leaves=1,
                leaf=0,
                index=tuple(
                    int(i) for i in np.unravel_index(begin + at, expected.shape)
                ),
                expected=str(one[at]),
                actual=str(other[at]),
                error=float(error[at]),
                excess=float(excess[at]),
            )
    return worst


def _scale(array: Array) -> float:
    """The root mean square of the finite elements; 0 if there are none."""
    largest, total, count = 0.0, 0.0, 0
    for _, part, _ in _slices(array, array):
        sizes = _sizes(part)
        largest = max(largest, float(sizes.max()))
    for _, part, _ in _slices(array, array):
        # Relative to the largest, whose square may be infinite.
        sizes = np.abs(part.astype(_wide(part)))
        finite = sizes[np.isfinite(sizes)] / (largest or 1.0)
        total += float(np.sum(np.square(finite)))
        count += finite.size
    return largest * math.sqrt(total / count) if count else 0.0


def _distance(one: Array, other: Array) -> float:
    """The root mean square of the finite differences; 0 if there are none."""
    total, count = 0.0, 0
    with np.errstate(invalid="ignore", over="ignore"):
        for _, a, b in _slices(one, other):
            squares = np.square(np.abs(a.astype(_wide(a)) - b.astype(_wide(b))))
            finite = squares[np.isfinite(squares)]
            total += float(finite.sum())
            count += finite.size
    return math.sqrt(total / count) if count else 0.0


def _sizes(array: Array) -> Array:
    """Absolute values in float64; 0 where they are not finite."""
    sizes = np.abs(array.astype(_wide(array)))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _wide(array: Array) -> type:
    return np.complex128 if array.dtype.kind == "c" else np.float64


def _slices(one: Array, other: Array) -> Iterator[tuple[int, Array, Array]]:
    """The first element of each slice, and the slices of two arrays of one size."""
    flat, other_flat = (np.ascontiguousarray(each).reshape(-1) for each in (one, other))
    for begin in range(0, flat.size, _SLICE):
        end = begin + _SLICE
        yield begin, flat[begin:end], other_flat[begin:end]
