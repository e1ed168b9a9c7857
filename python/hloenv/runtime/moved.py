# SPDX-License-Identifier: Apache-2.0
"""Whether outputs differ by no more than roundings move them, in bounded memory.

A large array is compared slice by slice, with the rules of `compare_outputs`: the scale
of an array's tolerance is that of the whole array.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._typing import Array
from . import compare as rules
from .compare import OutputComparison, compare_outputs
from .float_errors import without_float_errors

# Elements; a comparison takes up to 100 bytes for each.
_SLICE = 1 << 18
# What the last bits of the arguments may move of an output, as a share of it; and the
# share of a type's tolerance, relative to the largest output, up to which an output is
# next to nothing: ten times that is within the tolerance at the scale of the largest.
_LITTLE, _NOTHING = 0.01, 0.1
# What an array may differ by, in its root mean square, in its largest element, and in
# the number of those that differ by more than a little, as a multiple of what the last
# bits of the arguments move it by in the same sense; and how much that may be, as a
# share of the array's root mean square.
_TIMES_MOVED, _MAX_MOVED = 3, 0.05
# How often the last bits are moved at most: where few elements are near to where
# rounding decides, most other bits change nothing.
_DRAWS = 8


@without_float_errors
def compare_moved(
    expected: Sequence[Array],
    actual: Sequence[Array],
    *,
    moved: Callable[[int], Sequence[Array]] | None = None,
    actual_moved: Callable[[int], Sequence[Array]] | None = None,
    seconds: float = math.inf,
) -> OutputComparison:
    """Compares arrays, where they differ with what moved arguments do.

    Args:
        expected: arrays.
        actual: as many, of the same types.
        moved: gives the outputs for arguments that are moved by their last bits, by
            others for each number. Floats may differ by ten times what those do, as by
            `also` of `compare_outputs`, where that is little for most elements, or the
            output is next to nothing beside others: a gradient that is zero but for
            rounding; and by a hundredth of their scale where it is more. A tenth of the
            elements may differ by more, as in the gradient of a network in which
            rounding decides whether a ReLU passes: all together up to three times what
            the moved arguments do, in the root mean square, in the largest element and
            in number.
            Each output must be explained by one of the moves.
        actual_moved: likewise of what gave `actual`, beside `moved`. Where each array
            differs by a little, in the root mean square, or is next to nothing, all may
            be as expected for arguments that are moved, or both may be equal for these:
            there rounding decides, as whether a ReLU passes.
        seconds: after which the last bits are not moved again.

    Returns:
        The output that differs most, of those that no move explains.
    """
    worst, differing = _compare(expected, actual, range(len(expected)))
    if not differing or moved is None:
        return worst
    scales = _scales(expected)
    are_near = actual_moved is not None and all(
        _is_near(expected[leaf], actual[leaf], max(scales)) for leaf in differing
    )
    end = time.perf_counter() + seconds
    for draw in range(_DRAWS):
        if draw and time.perf_counter() > end:
            break
        others = moved(draw)
        by_rounding = _by_rounding(expected, others, scales, differing)
        worst, differing = _compare(expected, actual, differing, by_rounding, others)
        if not differing:
            return replace(worst, is_equal=True)
        if actual_moved is not None and are_near:
            found, left = _compare_moves(expected, others, actual_moved(draw), scales)
            if not left:
                return replace(found, is_equal=True)
        if any(rules.is_exact(expected[leaf]) for leaf in differing):
            break
    return worst


def _compare_moves(
    expected: Sequence[Array],
    moved: Sequence[Array],
    actual_moved: Sequence[Array],
    scales: Sequence[float],
) -> tuple[OutputComparison, list[int]]:
    """As `_compare`, of what moved arguments give.

    It may be as expected, or as it is for the same arguments, where what those move the
    outputs by tells rounding.
    """
    every = range(len(expected))
    found, differing = _compare(expected, actual_moved, every)
    if not differing:
        return found, differing
    by_rounding = _by_rounding(moved, expected, scales, every)
    return _compare(moved, actual_moved, every, by_rounding, expected)


def _is_near(expected: Array, actual: Array, largest: float) -> bool:
    """Whether floats differ by little, or next to nothing, in the root mean square.

    Args:
        expected: an output.
        actual: the same of another version.
        largest: of the scales of all outputs.
    """
    if rules.is_exact(expected):
        return False
    size = error = 0.0
    for _, a, b in slices(expected, actual):
        one: Array = a.astype(_wide(a))
        size += float(np.sum(np.square(np.abs(one))))
        error += float(np.sum(np.square(np.abs(b - one))))
    nothing = _nothing(expected.dtype, largest) ** 2 * expected.size
    return math.isfinite(size) and error <= max(_MAX_MOVED**2 * size, nothing)


def slices(one: Array, other: Array) -> Iterator[tuple[int, Array, Array]]:
    """The first element of each slice, and the slices of two arrays of one size."""
    flat, other_flat = (np.ascontiguousarray(each).reshape(-1) for each in (one, other))
    for begin in range(0, flat.size, _SLICE):
        end = begin + _SLICE
        yield begin, flat[begin:end], other_flat[begin:end]


def _scales(expected: Sequence[Array]) -> list[float]:
    return [0.0 if rules.is_exact(each) else _scale(each) for each in expected]


def _by_rounding(
    expected: Sequence[Array],
    moved: Sequence[Array],
    scales: Sequence[float],
    leaves: Iterable[int],
) -> dict[int, Array | None]:
    """What `_of_rounding` gives for each of the leaves."""
    largest = max(scales)
    return {
        leaf: _of_rounding(expected[leaf], moved[leaf], scales[leaf], largest)
        for leaf in leaves
    }


def _nothing(dtype: np.dtype[Any], largest: float) -> float:
    """What is next to nothing beside an output of the scale `largest`."""
    return _NOTHING * rules._tolerance(dtype) * largest


def _of_rounding(
    expected: Array, moved: Array, scale: float, largest: float
) -> Array | None:
    """What an output is for other last bits, where that tells rounding.

    Where most elements move by more than a little, they may differ by a little in all:
    far less than what rounding is worth there. None for integers.

    Args:
        expected: the output.
        moved: the same for other last bits.
        scale: of the output.
        largest: of the scales of all outputs.
    """
    if rules.is_exact(expected):
        return None
    nothing = _nothing(expected.dtype, largest)
    if scale <= nothing or _movement(expected, moved) <= _LITTLE * scale:
        return moved
    return _shifted(expected, _LITTLE * scale / rules.TIMES_ALSO)


def _shifted(array: Array, by: float) -> Array:
    """An array that differs by as much in each element."""
    found: Array = (array + np.asarray(by, array.dtype)).astype(array.dtype)
    return found


def _movement(one: Array, other: Array) -> float:
    """What nine of ten elements differ by at most, in the worst slice."""
    worst = 0.0
    for _, a, b in slices(one, other):
        moved_by = np.abs(a.astype(_wide(a)) - b.astype(_wide(b)))
        finite = moved_by[np.isfinite(moved_by)]
        if finite.size:
            worst = max(worst, float(np.quantile(finite, 0.9)))
    return worst


def _is_as_moved(expected: Array, actual: Array, moved: Array) -> bool:
    """Whether an array differs by no more than rounding may, all elements together.

    Nine of ten differ by no more than a little, and not many more than those that the
    moved arguments change by more.
    """
    if rules.is_exact(expected):
        return False
    scale = _scale(expected)
    counts = {"error": 0, "moved": 0}
    squares = {"size": 0.0, "error": 0.0, "moved": 0.0}
    largest = {"error": 0.0, "moved": 0.0}
    for (_, a, b), (_, _, c) in zip(
        slices(expected, actual), slices(expected, moved), strict=True
    ):
        one: Array = a.astype(_wide(a))
        parts = {"size": one, "error": b - one, "moved": c - one}
        for name, part in parts.items():
            sizes = np.abs(part)
            squares[name] += float(np.sum(np.square(sizes)))
            if name in largest:
                largest[name] = max(largest[name], float(sizes.max()))
                counts[name] += int((sizes > _LITTLE * scale).sum())
    if not all(map(math.isfinite, (*squares.values(), *largest.values()))):
        return False
    if not squares["moved"]:  # or too small to be squared
        return False
    return (
        _movement(expected, actual) <= _LITTLE * scale
        and counts["error"] <= _TIMES_MOVED * counts["moved"]
        and squares["moved"] <= _MAX_MOVED**2 * squares["size"]
        and squares["error"] <= _TIMES_MOVED**2 * squares["moved"]
        and largest["error"] <= _TIMES_MOVED * largest["moved"]
    )


def _compare(
    expected: Sequence[Array],
    actual: Sequence[Array],
    leaves: Iterable[int],
    by_rounding: Mapping[int, Array | None] | None = None,
    moved: Sequence[Array] = (),
) -> tuple[OutputComparison, list[int]]:
    """As `compare_outputs`, of equal types; and which of the leaves differ.

    Args:
        expected: arrays.
        actual: as many.
        leaves: which of them to compare.
        by_rounding: of these, what `_of_rounding` gives; None for none.
        moved: arrays for `_is_as_moved`, if `by_rounding` is given.
    """
    worst = OutputComparison(is_equal=True, num_leaves=len(expected))
    differing = []
    for leaf in leaves:
        one, other = expected[leaf], actual[leaf]
        also = None if by_rounding is None else by_rounding[leaf]
        if one.size <= _SLICE:
            others = [] if also is None else [[also]]
            found = compare_outputs([one], [other], also=others)
        else:
            found = _compare_large(one, other, also)
        if moved and not found.is_equal and _is_as_moved(one, other, moved[leaf]):
            continue
        if not found.is_equal:
            differing.append(leaf)
        if found.leaf is not None and (
            worst.leaf is None or found.excess > worst.excess
        ):
            worst = replace(found, leaf=leaf, num_leaves=len(expected))
    return worst, differing


def _compare_large(
    expected: Array, actual: Array, moved: Array | None = None
) -> OutputComparison:
    """As `compare_outputs` of one array, which has elements."""
    scale = None if rules.is_exact(expected) else _scale(expected)
    worst = OutputComparison(is_equal=True, num_leaves=1)
    also = expected if moved is None else moved
    for (begin, one, other), (_, _, shifted) in zip(
        slices(expected, actual), slices(expected, also), strict=True
    ):
        error, allowed = rules._errors(one, other, None, [])
        if scale is not None:
            if moved is not None:
                # What it adds to the tolerance of the slice.
                allowed = rules._errors(one, other, None, [shifted])[1] - allowed
            else:
                allowed = np.zeros_like(allowed)
            tolerance = rules._tolerance(one.dtype)
            allowed = allowed + tolerance * np.maximum(_sizes(one), scale)
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
    for _, part, _ in slices(array, array):
        sizes = _sizes(part)
        largest = max(largest, float(sizes.max()))
    for _, part, _ in slices(array, array):
        # Relative to the largest, whose square may be infinite.
        sizes = np.abs(part.astype(_wide(part)))
        finite = sizes[np.isfinite(sizes)] / (largest or 1.0)
        total += float(np.sum(np.square(finite)))
        count += finite.size
    return largest * math.sqrt(total / count) if count else 0.0


def _sizes(array: Array) -> Array:
    """Absolute values in float64; 0 where they are not finite."""
    sizes = np.abs(array.astype(_wide(array)))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _wide(array: Array) -> type:
    return np.complex128 if array.dtype.kind == "c" else np.float64
