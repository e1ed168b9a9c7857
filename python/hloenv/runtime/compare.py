# SPDX-License-Identifier: Apache-2.0
"""Comparing outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._typing import Array
from ..errors import ArgumentError, NotComparedError, OutputMismatchError
from .float_errors import without_float_errors

# Relative tolerance by element type: a few hundred roundings for wide types, a few for
# narrow ones, which XLA upcasts.
_TOLERANCES = {
    "f64": 1e-10,
    "c128": 1e-10,
    "f32": 1e-4,
    "c64": 1e-4,
    "f16": 1e-2,
    "bf16": 5e-2,
    "f4e2m1fn": 0.5,
}
_NARROW_TOLERANCE = 0.25
# Of ml_dtypes, whose kind is "V".
_NARROW_INTEGERS = ("int2", "int4", "uint2", "uint4")
# How much more than in other outputs of the original an element may differ; and one of
# 16 bits, whose roundings are large.
TIMES_ALSO, _TIMES_NARROW = 10.0, 3.0


@dataclass(frozen=True)
class OutputComparison:
    """Difference of two lists of outputs, at the element with the largest excess.

    Attributes:
        is_equal: every element of every leaf is within its tolerance; NaN equals NaN.
        num_leaves: leaves compared.
        leaf: the leaf that differs most; None if there is no element to compare.
        index: the element of that leaf.
        expected: its value, as text.
        actual: the other value, as text.
        error: their absolute difference.
        excess: error divided by its tolerance; above 1 is a mismatch.
        by_float64: whether the tolerance was measured against the same program in
            float64, because the default tolerance was exceeded.
        is_bitwise: whether all bits are equal; also False where that was not recorded.
        num_nan: leaves that are NaN everywhere in both, which says nothing.
        rests_on_nan: whether all leaves with elements are such.
    """

    is_equal: bool
    num_leaves: int
    leaf: int | None = None
    index: tuple[int, ...] = ()
    expected: str = ""
    actual: str = ""
    error: float = 0.0
    excess: float = 0.0
    by_float64: bool = False
    is_bitwise: bool = False
    num_nan: int = 0
    rests_on_nan: bool = False

    def __bool__(self) -> bool:
        return self.is_equal

    def __str__(self) -> str:
        if self.leaf is None:
            return f"{self.num_leaves} outputs, no elements"
        if self.rests_on_nan:
            return f"all {self.num_leaves} outputs are NaN: nothing was compared"
        verdict = "equal" if self.is_equal else "differ"
        return (
            f"{self.num_leaves} outputs {verdict}; worst is output {self.leaf} at "
            f"{list(self.index)}: {self.actual}, expected {self.expected} "
            f"({self.excess:.3g} of the tolerance)"
        )

    def check(self) -> None:
        """Raises if the outputs differ, or if nothing was compared.

        Raises:
            NotComparedError: all outputs are NaN.
            OutputMismatchError: the outputs differ by more than the tolerance.
        """
        if not self.is_equal:
            raise OutputMismatchError(str(self))
        if self.rests_on_nan:
            raise NotComparedError(str(self))


@without_float_errors
def compare_outputs(
    expected: Sequence[Array | None],
    actual: Sequence[Array | None],
    *,
    rtol: float | None = None,
    also: Sequence[Sequence[Array | None]] = (),
) -> OutputComparison:
    """Compares all leaves of two lists of outputs.

    An element may differ by `rtol` times the larger of its own size and the leaf's
    root mean square, so that sums with cancellation are compared at the leaf's scale.
    Integers and booleans must be equal.

    Args:
        expected: the original's outputs.
        actual: the other outputs, same shapes and dtypes.
        rtol: relative tolerance of floats; by default by element type.
        also: lists of outputs of the original for inputs perturbed by 1 ulp
            (`perturbed`), or of the original in float64. An element may differ by ten
            times (of 16 bits three times) its difference in any of these, or the 90 %
            quantile of its leaf; integers of a leaf may differ in twice as many
            elements as here.

    Raises:
        ArgumentError: the lists differ in number, shapes or dtypes.
    """
    if len(expected) != len(actual):
        raise ArgumentError(
            f"got {len(actual)} outputs to compare with {len(expected)}; the numbers "
            "must be equal"
        )
    worst = OutputComparison(is_equal=True, num_leaves=len(expected))
    is_bitwise = True
    num_nan = num_with_elements = 0
    for leaf, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if one is None and other is None:
            continue
        if (
            one is None
            or other is None
            or one.shape != other.shape
            or one.dtype != other.dtype
        ):
            raise ArgumentError(
                f"output {leaf} is {_describe(other)}, expected {_describe(one)}; "
                "shapes and dtypes must be equal"
            )
        if one.size == 0:
            continue
        is_bitwise = is_bitwise and np.array_equal(_bits(one), _bits(other))
        num_with_elements += 1
        num_nan += are_nan(one, other)
        moved = [array for each in also if (array := each[leaf]) is not None]
        error, allowed = _errors(one, other, rtol, moved)
        excess = _excess(error, allowed)
        at = int(np.argmax(excess))
        if worst.leaf is None or excess.flat[at] > worst.excess:
            worst = OutputComparison(
                is_equal=bool(excess.flat[at] <= 1.0),
                num_leaves=len(expected),
                leaf=leaf,
                index=tuple(int(i) for i in np.unravel_index(at, one.shape)),
                expected=str(one.flat[at]),
                actual=str(other.flat[at]),
                error=float(error.flat[at]),
                excess=float(excess.flat[at]),
            )
    return replace(
        worst,
        is_bitwise=is_bitwise,
        num_nan=num_nan,
        rests_on_nan=0 < num_nan == num_with_elements,
    )


def are_nan(*arrays: Array) -> bool:
    """Whether all elements of arrays, which have some, are NaN."""
    return all(
        # != is true for NaN alone. The first element is NaN in few arrays.
        bool(array.flat[0] != array.flat[0]) and bool(np.all(array != array))
        for array in arrays
    )


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _describe(array: Array | None) -> str:
    return "a token" if array is None else f"{array.dtype}{list(array.shape)}"


def root_mean_square(parts: Sequence[Array]) -> float:
    """Of the elements of arrays, which are finite and >= 0; 0 if there are none."""
    largest = max((float(each.max()) for each in parts if each.size), default=0.0)
    if largest == 0.0:
        return 0.0
    # Relative to the largest, whose square may be infinite.
    total = sum(float(np.sum(np.square(each / largest))) for each in parts)
    return largest * math.sqrt(total / sum(each.size for each in parts))


def _excess(error: Array, allowed: Array) -> Array:
    ratio = np.where(allowed > 0, error / allowed, np.inf)
    # An infinite error is never allowed, whatever else is.
    ratio = np.where(np.isinf(error), np.inf, ratio)
    return np.where(error == 0, 0.0, ratio)


def is_exact(array: Array) -> bool:
    """Whether the elements are booleans or integers, which are not rounded."""
    return array.dtype.kind in "biu" or array.dtype.name in _NARROW_INTEGERS


def _errors(
    expected: Array, actual: Array, rtol: float | None, moved: list[Array]
) -> tuple[Array, Array]:
    """Absolute differences and tolerances, both float64 of the leaf's shape."""
    if is_exact(expected):
        error = np.asarray(expected != actual, np.float64)
        budget = max((2 * int(np.sum(expected != each)) for each in moved), default=0)
        is_within = budget > 0 and np.sum(error) <= budget
        return error, np.full(error.shape, 1.0 if is_within else 0.0)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    one, other = expected.astype(wide), actual.astype(wide)
    error = _difference(one, other)
    size = np.abs(one)
    finite = size[np.isfinite(size)]
    scale = root_mean_square([finite])
    if rtol is None:
        rtol = _tolerance(expected.dtype)
    allowed = rtol * np.maximum(np.where(np.isfinite(size), size, 0.0), scale)
    if moved:
        shift = np.zeros(error.shape)
        for each in moved:
            moved_by = _difference(one, each.astype(wide))
            # A NaN in only one of them does not raise the tolerance.
            shift = np.maximum(shift, np.where(np.isfinite(moved_by), moved_by, 0))
        # An element that is sensitive to rounding may be unchanged here by chance.
        common = float(np.quantile(shift, 0.9))
        is_narrow = expected.dtype.name in ("float16", "bfloat16")
        times = _TIMES_NARROW if is_narrow else TIMES_ALSO
        allowed = allowed + times * np.maximum(shift, common)
    return error, allowed


def _difference(one: Array, other: Array) -> Array:
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    difference = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _tolerance(dtype: np.dtype[Any]) -> float:
    names = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    names |= {"complex64": "c64", "complex128": "c128", "float4_e2m1fn": "f4e2m1fn"}
    return _TOLERANCES.get(names.get(dtype.name, ""), _NARROW_TOLERANCE)
