# SPDX-License-Identifier: Apache-2.0
"""Compares outputs of two modules with a tolerance for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Array

# Relative tolerance by the output's element type; other types must be equal.
_TOLERANCE = {
    "bf16": 4e-2,
    "f16": 4e-3,
    "f32": 2e-5,
    "c64": 2e-5,
    "f64": 1e-11,
    "c128": 1e-11,
}
_SMALL_FLOAT_TOLERANCE = 0.25  # the 8- and 4-bit types

# The tolerance of an output as a multiple of how far perturbations moved the
# original's. A tolerance as large as the output itself means that it cannot be
# compared.
MARGIN = 16


def tolerance_of(hlo_dtype: str) -> float:
    """Returns the relative tolerance of an element type; 0 requires equality."""
    is_small = hlo_dtype[:2] in ("f8", "f4")
    return _TOLERANCE.get(hlo_dtype, _SMALL_FLOAT_TOLERANCE * is_small)


def nudged(arrays: Sequence[Array], seed: int) -> list[Array]:
    """Returns the arrays with each float moved by one ulp, up or down."""
    rng = np.random.default_rng(seed)
    result = []
    for array in arrays:
        if array.dtype.kind == "c":
            parts = nudged([array.real.copy(), array.imag.copy()], seed)
            result.append((parts[0] + 1j * parts[1]).astype(array.dtype))
        elif array.dtype.name.startswith(("float", "bfloat")):
            toward = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf)
            result.append(np.asarray(np.nextafter(array, toward.astype(array.dtype))))
        else:
            result.append(array)
    return result


def wide(array: Array) -> Array:
    """Converts floats to float64 or complex128; large integers would lose digits."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.float64)


def distance(a: Array, b: Array) -> Array:
    """|a - b| by element; 0 where both are the same NaN or infinity."""
    wide_a, wide_b = wide(a), wide(b)
    with np.errstate(all="ignore"):
        same = (wide_a == wide_b) | ((wide_a != wide_a) & (wide_b != wide_b))
        if wide_a.dtype.kind in "biu":
            return np.where(same, 0.0, 1.0)
        apart = np.abs(wide_a - wide_b)
        apart = np.where(np.isnan(apart), np.inf, apart)
        return np.where(same, 0.0, apart)


def worst(a: Array, b: Array) -> float:
    """The largest element-wise distance; 0 for empty arrays."""
    return float(distance(a, b).max(initial=0))


def num_not_finite(arrays: Sequence[Array]) -> int:
    """Counts elements that are NaN or infinite."""
    return sum(int((~np.isfinite(wide(array))).sum()) for array in arrays)


def has_numbers(array: Array) -> bool:
    """Whether an array is empty or has a finite element."""
    return array.size == 0 or bool(np.isfinite(wide(array)).any())


def num_partly_nan(arrays: Sequence[Array]) -> int:
    """Counts arrays with both NaN and numbers."""
    return sum(has_numbers(a) and bool(np.isnan(wide(a)).any()) for a in arrays)


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison of outputs.

    Attributes:
        lines: one for each output whose error exceeds its rounding tolerance.
        overflows: those of `lines` on outputs that are not finite where the original's
            are.
        num_compared: number of compared outputs.
        num_sensitive: number of outputs that differ, but that one ulp moves by their
            own size.
        num_nan: number of outputs without any finite element in the original.
    """

    lines: tuple[str, ...] = ()
    overflows: tuple[str, ...] = ()
    num_compared: int = 0
    num_sensitive: int = 0
    num_nan: int = 0

    @property
    def is_clear(self) -> bool:
        """Whether all compared outputs are equal within rounding."""
        return not self.lines and not self.num_sensitive


def compare(
    expected: Sequence[Array],
    outputs: Sequence[Array],
    relative: Sequence[float],
    moved: Sequence[float],
) -> Verdict:
    """Compares outputs of a decided module with those of the original.

    Args:
        expected: outputs of the original.
        outputs: outputs of another module on the same inputs.
        relative: the tolerance of each output, as a fraction of its largest element.
        moved: how far perturbed roundings move each of the original's outputs.
    """
    lines: list[str] = []
    overflows: list[str] = []
    num_compared = num_sensitive = num_nan = 0
    for i, (want, got) in enumerate(zip(expected, outputs, strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            lines.append(f"output {i} is {got.dtype}{got.shape}")
            continue
        if not has_numbers(want):
            num_nan += 1
            continue
        num_compared += 1
        magnitudes = np.abs(wide(want)) if relative[i] else np.zeros(1)
        scale = float(magnitudes[np.isfinite(magnitudes)].max(initial=0))
        rounding = MARGIN * moved[i]
        tolerance = relative[i] * scale + rounding
        apart = worst(want, got)
        if apart <= tolerance:
            continue
        if rounding >= max(scale, np.finfo(np.float64).tiny):
            num_sensitive += 1
            num_compared -= 1
            continue
        lines.append(
            f"output {i} is off by {apart:.3g}, and {tolerance:.3g} is rounding"
        )
        if not np.isfinite(apart):
            overflows.append(lines[-1])
    return Verdict(tuple(lines), tuple(overflows), num_compared, num_sensitive, num_nan)
