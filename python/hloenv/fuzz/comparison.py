# SPDX-License-Identifier: Apache-2.0
"""How far two lists of outputs are apart, and how much of that rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Array

# Relative tolerance by the output's element type; others have to be equal.
_TOLERANCE = {
    "bf16": 4e-2,
    "f16": 4e-3,
    "f32": 2e-5,
    "c64": 2e-5,
    "f64": 1e-11,
    "c128": 1e-11,
}
_SMALL_FLOAT_TOLERANCE = 0.25  # the 8- and 4-bit types

# How many times as far as the original's outputs moved under perturbations an output
# may be off. Where that allows the size of the output itself, nothing can be compared.
MARGIN = 16


def tolerance_of(hlo_dtype: str) -> float:
    """The relative tolerance of an element type; 0 where elements have to be equal."""
    is_small = hlo_dtype[:2] in ("f8", "f4")
    return _TOLERANCE.get(hlo_dtype, _SMALL_FLOAT_TOLERANCE * is_small)


def nudged(arrays: Sequence[Array], seed: int) -> list[Array]:
    """The arrays with each float moved by one ulp, up or down."""
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
    """As float64 or complex128; integers stay, since large ones would look equal."""
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
    """The largest distance of two elements; 0 where there are none."""
    return float(distance(a, b).max(initial=0))


def num_not_finite(arrays: Sequence[Array]) -> int:
    """How many elements are NaN or infinite."""
    return sum(int((~np.isfinite(wide(array))).sum()) for array in arrays)


def has_numbers(array: Array) -> bool:
    """Whether there is something to compare: no elements, or a finite one."""
    return array.size == 0 or bool(np.isfinite(wide(array)).any())


def num_partly_nan(arrays: Sequence[Array]) -> int:
    """How many arrays hold NaN, and numbers too."""
    return sum(has_numbers(a) and bool(np.isnan(wide(a)).any()) for a in arrays)


@dataclass(frozen=True)
class Verdict:
    """What a comparison of outputs found.

    Attributes:
        lines: one for each output that is further off than rounding explains.
        overflows: of `lines`, those of outputs that are not finite where the
            original's are, which other roundings do not explain.
        num_compared: outputs that were compared.
        num_sensitive: outputs that differ, but that one ulp moves by their own size,
            so that they say nothing.
        num_nan: outputs of which the original gives no number at all.
    """

    lines: tuple[str, ...] = ()
    overflows: tuple[str, ...] = ()
    num_compared: int = 0
    num_sensitive: int = 0
    num_nan: int = 0

    @property
    def is_clear(self) -> bool:
        """Whether all that could be compared is equal but for rounding."""
        return not self.lines and not self.num_sensitive


def compare(
    expected: Sequence[Array],
    outputs: Sequence[Array],
    relative: Sequence[float],
    moved: Sequence[float],
) -> Verdict:
    """Compares outputs with those of the original.

    Args:
        expected: of the original.
        outputs: of another module on the same inputs.
        relative: the tolerance of each output, as a share of its largest number.
        moved: how far each of the original's outputs moves with the roundings.
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
