# SPDX-License-Identifier: Apache-2.0
"""Arrays that go into and come out of executables: making, placing, comparing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._native import core
from .errors import ArgumentError, OutputMismatchError
from .module import as_module

if TYPE_CHECKING:
    import os

    from .module import ArraySpec, HloModule

Array = np.ndarray[Any, np.dtype[Any]]

# Integers that index nothing known are drawn below this.
_INTEGER_BOUND = 8

# Relative error that rewrites may cause, by element type: a few hundred roundings for
# the wide types, a few for the narrow ones, which XLA computes in wider ones.
_TOLERANCES = {
    "f64": 1e-10,
    "c128": 1e-10,
    "f32": 1e-4,
    "c64": 1e-4,
    "f16": 1e-2,
    "bf16": 5e-2,
}
_NARROW_TOLERANCE = 0.25


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
    return np.ndarray(shape, dtype, memory, offset, tuple(strides))


def place_array(
    value: Any, spec: ArraySpec, minor_to_major: Sequence[int], name: str
) -> Array:
    """`value` as an array of exactly this shape, dtype and order in memory.

    Copies only where it has to.

    Raises:
        ArgumentError: the value has another shape or dtype, or is no array.
    """
    array = _to_numpy(value, spec, name)
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise ArgumentError(
            f"{name} is {array.dtype}{list(array.shape)}; the module takes "
            f"{spec.dtype}{list(spec.shape)}: convert it first"
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
    # DLPack lacks some types, such as bfloat16, that arrays can hand over themselves.
    if hasattr(value, "__array__"):
        try:
            return np.asarray(value)
        except (RuntimeError, TypeError, ValueError) as error:
            reasons.append(str(error))
    because = f" ({'; '.join(reasons)})" if reasons else ""
    raise ArgumentError(
        f"{name} is a {type(value).__name__}, which cannot be read as an array on the "
        f"host{because}; pass a numpy array or anything with __dlpack__"
    )


def random_inputs(
    module: HloModule | str | os.PathLike[str], *, seed: int = 0
) -> list[Array | None]:
    """Inputs for a module, the same for the same module and seed in every process.

    Floats and complex numbers are standard normal, booleans fair. Integers that index
    something, or are compared with an iota, as far as that can be seen, are valid
    there; all others are small and not negative.

    Returns:
        One array for each flat leaf of the parameters, None for tokens.
    """
    module = as_module(module)
    bounds = core.index_bounds(module._core)
    inputs: list[Array | None] = []
    for index, (spec, bound) in enumerate(
        zip(module.input_specs(), bounds, strict=True)
    ):
        if spec.hlo_dtype == "token":
            inputs.append(None)
            continue
        rng = np.random.default_rng([seed, index])
        array = empty_aligned(spec.shape, spec.dtype)
        np.copyto(array, _draw(spec, bound, rng), casting="unsafe")
        inputs.append(array)
    return inputs


def _draw(spec: ArraySpec, bound: int | None, rng: np.random.Generator) -> Array:
    kind = spec.hlo_dtype
    if kind == "pred":
        return rng.integers(0, 2, spec.shape).astype(np.bool_)
    if kind[0] in "su":
        bits = int(kind[1:])
        largest = 2 ** (bits - 1 if kind[0] == "s" else bits) - 1
        high = min(_INTEGER_BOUND if bound is None else bound, largest + 1)
        return rng.integers(0, high, spec.shape, dtype=np.uint64)
    if kind[0] == "c":
        real, imaginary = rng.standard_normal((2, *spec.shape))
        return np.asarray(real + 1j * imaginary)
    return np.asarray(rng.standard_normal(spec.shape))


def perturbed(inputs: Sequence[Array | None], *, seed: int = 0) -> list[Array | None]:
    """The inputs with each float moved by one unit in the last place, up or down.

    Outputs for these show how far rounding alone may move the outputs.
    """
    moved: list[Array | None] = []
    for index, array in enumerate(inputs):
        if array is None or array.dtype not in (np.float32, np.float64):
            moved.append(array)
            continue
        rng = np.random.default_rng([seed, index, 1])
        direction = np.where(rng.integers(0, 2, array.shape) == 1, np.inf, -np.inf)
        copy = empty_aligned(array.shape, array.dtype)
        np.copyto(copy, np.nextafter(array, direction.astype(array.dtype)))
        moved.append(copy)
    return moved


@dataclass(frozen=True)
class OutputComparison:
    """How two lists of outputs differ, at the element where they differ most.

    Attributes:
        is_equal: every element of every leaf is within its tolerance; NaN equals NaN.
        num_leaves: leaves compared.
        leaf: the leaf that differs most; None when there is no element to compare.
        index: the element of that leaf.
        expected: its value, as text.
        actual: the other value, as text.
        error: their absolute difference.
        excess: error divided by what is allowed there; above 1 is a mismatch.
        by_float64: whether what is allowed was measured against the same program in
            float64, because the usual tolerance did not suffice.
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

    def __bool__(self) -> bool:
        return self.is_equal

    def __str__(self) -> str:
        if self.leaf is None:
            return f"{self.num_leaves} outputs, no elements"
        verdict = "equal" if self.is_equal else "differ"
        return (
            f"{self.num_leaves} outputs {verdict}; worst is output {self.leaf} at "
            f"{list(self.index)}: {self.actual}, expected {self.expected} "
            f"({self.excess:.3g} of the tolerance)"
        )

    def check(self) -> None:
        """Does nothing when the outputs are equal.

        Raises:
            OutputMismatchError: they are not.
        """
        if not self.is_equal:
            raise OutputMismatchError(str(self))


def compare_outputs(
    expected: Sequence[Array | None],
    actual: Sequence[Array | None],
    *,
    rtol: float | None = None,
    also: Sequence[Sequence[Array | None]] = (),
) -> OutputComparison:
    """Compares all leaves of two lists of outputs.

    An element may differ by `rtol` times the larger of its own size and the leaf's
    root mean square, so that sums which cancel are held to the leaf's scale. Integers
    and booleans have to be the same.

    Args:
        expected: the original's outputs.
        actual: the other outputs, same shapes and dtypes.
        rtol: relative tolerance of floats; by default by element type.
        also: lists of outputs of the original for inputs that rounding might have
            produced (`perturbed`), or of the original in float64. An element may
            differ by ten times as much as it does in any of these, or as nine in ten
            elements of its leaf do; integers of a leaf that differs here may differ as
            often again.

    Raises:
        ArgumentError: the lists differ in number, shapes or dtypes.
    """
    if len(expected) != len(actual):
        raise ArgumentError(
            f"{len(actual)} outputs cannot be compared with {len(expected)}"
        )
    worst = OutputComparison(is_equal=True, num_leaves=len(expected))
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
                f"output {leaf} is {_describe(other)}, expected {_describe(one)}"
            )
        if one.size == 0:
            continue
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
    return worst


def _describe(array: Array | None) -> str:
    return "a token" if array is None else f"{array.dtype}{list(array.shape)}"


def _excess(error: Array, allowed: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(allowed > 0, error / allowed, np.inf)
    return np.where((error == 0) | np.isinf(allowed), 0.0, ratio)


def _errors(
    expected: Array, actual: Array, rtol: float | None, moved: list[Array]
) -> tuple[Array, Array]:
    """Absolute differences and what is allowed, both float64 of the leaf's shape."""
    if expected.dtype.kind in "biu" or expected.dtype.name in ("int4", "uint4"):
        error = np.asarray(expected != actual, np.float64)
        budget = max((2 * int(np.sum(expected != each)) for each in moved), default=0)
        is_within = budget > 0 and np.sum(error) <= budget
        return error, np.full(error.shape, 1.0 if is_within else 0.0)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    one, other = expected.astype(wide), actual.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        error = _difference(one, other)
        size = np.abs(one)
        finite = size[np.isfinite(size)]
        scale = math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
        if rtol is None:
            rtol = _tolerance(expected.dtype)
        allowed = rtol * np.maximum(np.where(np.isfinite(size), size, 0.0), scale)
        if moved:
            shift = np.zeros(error.shape)
            for each in moved:
                moved_by = _difference(one, each.astype(wide))
                # A NaN that comes or goes allows nothing.
                shift = np.maximum(shift, np.where(np.isfinite(moved_by), moved_by, 0))
            # An element that rounding moves may by chance not have moved here.
            common = float(np.quantile(shift, 0.9))
            allowed = allowed + 10.0 * np.maximum(shift, common)
    return error, allowed


def _difference(one: Array, other: Array) -> Array:
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    difference = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _tolerance(dtype: np.dtype[Any]) -> float:
    names = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    names |= {"complex64": "c64", "complex128": "c128"}
    return _TOLERANCES.get(names.get(dtype.name, ""), _NARROW_TOLERANCE)
