# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory that XLA can use in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._native import core
from .._typing import Array
from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..hlo.array_spec import ArraySpec


def empty_aligned(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    minor_to_major: Sequence[int] | None = None,
) -> Array:
    """An array that XLA can use in place.

    Args:
        shape: dimensions, major to minor.
        dtype: of the elements.
        minor_to_major: order of the dimensions in memory; default row-major.

    Raises:
        ArgumentError: numpy has no array of so many dimensions.
    """
    order = range(len(shape) - 1, -1, -1) if minor_to_major is None else minor_to_major
    strides = [0] * len(shape)
    size_bytes = dtype.itemsize
    for dimension in order:
        strides[dimension] = size_bytes
        size_bytes *= shape[dimension]
    alignment = core.BUFFER_ALIGNMENT
    memory = np.empty(size_bytes + alignment, np.uint8)
    offset = -memory.ctypes.data % alignment
    try:
        return np.ndarray(shape, dtype, memory, offset, tuple(strides))
    except ValueError as error:
        raise no_numpy_array(shape, error) from None


def aligned(value: Any) -> Any:
    """A copy of a numpy array that XLA can use in place; anything else as it is."""
    if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
        return value
    copy = empty_aligned(value.shape, value.dtype)
    np.copyto(copy, value)
    return copy


def no_numpy_array(shape: Sequence[int], error: ValueError) -> ArgumentError:
    """The error for arrays of XLA with more dimensions than numpy has (64)."""
    return ArgumentError(
        f"numpy has no array with {len(shape)} dimensions ({error}); reshape the "
        "module's inputs and outputs to fewer"
    )


def place_array(
    value: Any, spec: ArraySpec, minor_to_major: Sequence[int], name: str
) -> Array:
    """`value` as an array of exactly this shape, dtype and order in memory.

    Copies only if necessary.

    Raises:
        ArgumentError: the value has another shape or dtype, or is not an array.
    """
    array = _to_numpy(value, spec, name)
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise ArgumentError(
            f"{name} is {array.dtype}{list(array.shape)}, but the module takes "
            f"{spec.dtype}{list(spec.shape)}; convert it first"
        )
    placed = empty_aligned(spec.shape, spec.dtype, minor_to_major=minor_to_major)
    np.copyto(placed, array)
    return placed


def _to_numpy(value: Any, spec: ArraySpec, name: str) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (bool, int, float, complex)) and spec.shape == ():
        return np.asarray(value, dtype=spec.dtype)
    if isinstance(value, np.generic):
        return np.asarray(value)
    reasons = []
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            reasons.append(str(error))
    # DLPack lacks some types, such as bfloat16, that __array__ supports.
    if hasattr(value, "__array__"):
        try:
            return np.asarray(value)
        except (RuntimeError, TypeError, ValueError) as error:
            reasons.append(str(error))
    because = f" ({'; '.join(reasons)})" if reasons else ""
    raise ArgumentError(
        f"{name} is a {type(value).__name__}, which cannot be read as an array on the "
        f"host{because}; pass a numpy array or an object with __dlpack__"
    )
