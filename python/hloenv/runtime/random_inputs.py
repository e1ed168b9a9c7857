# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._native import core
from .._typing import Array
from ..hlo.module import as_module
from .buffers import empty_aligned
from .float_errors import without_float_errors

if TYPE_CHECKING:
    import os

    from ..hlo.array_spec import ArraySpec
    from ..hlo.module import HloModule


# Upper bound of integers without a known index bound.
_INTEGER_BOUND = 8
# Of what a root or a logarithm is taken.
_MIN_POSITIVE = 0.25


@without_float_errors
def random_inputs(
    module: HloModule | str | os.PathLike[str], *, seed: int = 0
) -> list[Array | None]:
    """Inputs for a module, the same for the same module and seed in every process.

    Floats and complex numbers are standard normal, booleans fair; floats of which the
    module takes a root or a logarithm, such as variances, are at least 1/4. Integers
    that the module uses as indices or compares with an iota, as far as the analysis
    finds, are in range; all others are small and not negative.

    Returns:
        One array for each flat leaf of the parameters, None for tokens.

    Raises:
        ArgumentError: numpy has no array of so many dimensions, or of this type.
    """
    module = as_module(module)
    bounds = core.index_bounds(module._core)
    are_positive = core.positive_leaves(module._core)
    inputs: list[Array | None] = []
    for index, (spec, bound, is_positive) in enumerate(
        zip(module.input_specs(), bounds, are_positive, strict=True)
    ):
        if spec.hlo_dtype == "token":
            inputs.append(None)
            continue
        rng = np.random.default_rng([seed, index])
        array = empty_aligned(spec.shape, spec.dtype)
        values = _draw(spec, bound, rng)
        if is_positive and spec.hlo_dtype[0] in "bf":
            values = np.abs(values) + _MIN_POSITIVE
        np.copyto(array, values, casting="unsafe")
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


# Types of floats that are perturbed.
_MOVED = ("float32", "float64", "float16", "bfloat16")
_MAX_VARIED = 1 << 22  # elements


@without_float_errors
def perturbed(inputs: Sequence[Array | None], *, seed: int = 0) -> list[Array | None]:
    """The inputs with each float perturbed by 1 ulp, up or down.

    The outputs for them show how sensitive the outputs are to rounding.
    """
    moved: list[Array | None] = []
    for index, array in enumerate(inputs):
        if array is None or array.dtype.name not in _MOVED:
            moved.append(array)
            continue
        rng = np.random.default_rng([seed, index, 1])
        direction = np.where(rng.integers(0, 2, array.shape) == 1, np.inf, -np.inf)
        copy = empty_aligned(array.shape, array.dtype)
        np.copyto(copy, np.nextafter(array, direction.astype(array.dtype)))
        moved.append(copy)
    return moved


@without_float_errors
def varied(inputs: Sequence[Array | None], *, seed: int = 0) -> list[Array | None]:
    """The inputs, with other values in each array of floats that has one throughout.

    Such an array, as of zeros, does not show which elements a program reads. Its values
    become as little as a half, and zeros up to a half. Arrays of more than four million
    elements stay as they are.

    Returns:
        As many; empty if each array of floats has several values.
    """
    changed: list[Array | None] = []
    is_varied = False
    for index, array in enumerate(inputs):
        if array is None or array.dtype.name not in _MOVED:
            changed.append(array)
            continue
        first, last = array.flat[:1], array.flat[-1:]
        is_uniform = 1 < array.size <= _MAX_VARIED and np.isfinite(first)
        is_uniform = is_uniform and first == last
        if not is_uniform or (array != first).any():
            changed.append(array)
            continue
        rng = np.random.default_rng([seed, index, 2])
        share = 0.5 * rng.random(array.shape, np.float32)
        values = (1 - share) * first.astype(float) if first else share
        copy = empty_aligned(array.shape, array.dtype)
        np.copyto(copy, values.astype(array.dtype))
        changed.append(copy)
        is_varied = True
    return changed if is_varied else []
