# SPDX-License-Identifier: Apache-2.0
"""Inputs over the whole range of their types, which show what small ones do not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._native import core
from .._typing import Array
from .buffers import empty_aligned
from .float_errors import without_float_errors
from .random_inputs import random_inputs

if TYPE_CHECKING:
    from ..hlo.array_spec import ArraySpec
    from ..hlo.module import HloModule

# "moderate": products of some values are finite in float64. "large": exponentials of
# these, too, are not. "special": infinities, NaN, zeros of either sign, the largest and
# smallest numbers.
Floats = Literal["normal", "moderate", "large", "special"]
_MAGNITUDES = {"moderate": 2.0**10, "large": 2.0**20}

_FLOAT = re.compile(r"\b(f\d\w*|bf16|c64|c128)\[")
# Where these are, an integer may be a number of iterations or a size.
_COUNTING = ("while", "set-dimension-size", "custom-call", "recv", "send", "infeed")


def has_free_integers(module: HloModule) -> bool:
    """Whether some input is an integer that is no index, size or count.

    None is where the module has loops or calls code that is not HLO.
    """
    return any(_are_free(module, module.input_specs()))


def is_of_integers(module: HloModule) -> bool:
    """Whether it computes with integers alone, and some input is as free as above.

    What replaces it then gives equal outputs for all of them.
    """
    kinds = {spec.hlo_dtype for spec in module.input_specs()}
    if any(kind[0] in "bfct" for kind in kinds) or not has_free_integers(module):
        return False
    return _FLOAT.search(module.to_text()) is None


@without_float_errors
def extreme_inputs(
    module: HloModule, *, seed: int = 0, floats: Floats = "normal", edges: bool = False
) -> list[Array | None]:
    """Random inputs over the ranges of their types.

    Integers that are no indices, sizes or counts, as far as the analysis finds, have
    random signs and numbers of bits; others are as in `random_inputs`.

    Args:
        module: the module.
        seed: of the inputs.
        floats: "normal": as in `random_inputs`; "moderate" or "large": all of about one
            magnitude, 2^10 or 2^20, which the type may limit; "special": infinities,
            NaN, zeros, the largest and smallest numbers.
        edges: integers are the extremes of their types and neighbours of 0 instead.
    """
    specs = module.input_specs()
    inputs = random_inputs(module, seed=seed)
    drawn = zip(specs, inputs, _are_free(module, specs), strict=True)
    for index, (spec, array, is_free) in enumerate(drawn):
        rng = np.random.default_rng([seed, index, 3])
        kind = spec.hlo_dtype
        if array is None or kind == "pred":
            continue
        if kind[0] in "su":
            if not is_free:
                continue
            values = _integers(spec, rng, edges)
        elif floats != "normal":
            values = _floats(spec, rng, floats)
        else:
            continue
        copy = empty_aligned(spec.shape, spec.dtype)
        np.copyto(copy, values, casting="unsafe")
        inputs[index] = copy
    return inputs


def _are_free(module: HloModule, specs: Sequence[ArraySpec]) -> list[bool]:
    if not module.opcode_counts().keys().isdisjoint(_COUNTING):
        return [False] * len(specs)
    bounds = core.index_bounds(module._core)
    return [
        spec.hlo_dtype[0] in "su" and bound is None
        for spec, bound in zip(specs, bounds, strict=True)
    ]


def integer_edges(hlo_dtype: str) -> list[int]:
    """The extremes of an integer type, 0 and their neighbours."""
    bits = int(hlo_dtype[1:])
    high = 2 ** (bits - 1) - 1 if hlo_dtype[0] == "s" else 2**bits - 1
    low = -high - 1 if hlo_dtype[0] == "s" else 0
    middle = 2 ** max(bits - 2, 0)
    wanted = (low, low + 1, -1, 0, 1, 2, middle, 2 * middle, high - 1, high)
    return sorted({each for each in wanted if low <= each <= high})


def _integers(spec: ArraySpec, rng: np.random.Generator, edges: bool) -> Array:
    if edges:
        values = np.array(integer_edges(spec.hlo_dtype), object)
        return rng.choice(values, spec.shape).astype(_wide_type(spec))
    bits = int(spec.hlo_dtype[1:])
    is_signed = spec.hlo_dtype[0] == "s"
    # Without the bit of the sign.
    free = bits - 1 if is_signed else bits
    drawn = rng.integers(0, 2**64 - 1, spec.shape, np.uint64, endpoint=True)
    count = rng.integers(1, free, spec.shape, np.uint64, endpoint=True)
    values = np.asarray(drawn >> (np.uint64(64) - count))
    if not is_signed:
        return values
    signed = values.astype(np.int64)
    return np.where(rng.integers(0, 2, spec.shape) == 1, -signed - 1, signed)


def _wide_type(spec: ArraySpec) -> Any:
    return np.int64 if spec.hlo_dtype[0] == "s" else np.uint64


def _floats(spec: ArraySpec, rng: np.random.Generator, floats: Floats) -> Array:
    import ml_dtypes

    kind: Any = {"c64": np.float32, "c128": np.float64}.get(spec.hlo_dtype, spec.dtype)
    finfo: Any = ml_dtypes.finfo
    largest, smallest = float(finfo(kind).max), float(finfo(kind).tiny)
    is_complex = spec.hlo_dtype[0] == "c"
    shape = (1 + is_complex, *spec.shape)
    if floats == "special":
        some = [0.0, 1.0, 0.5, 3.0, largest, smallest, np.inf]
        parts = rng.choice([np.nan, *some, *(-each for each in some)], shape)
    else:
        size = min(_MAGNITUDES[floats], largest / 4)
        signs = rng.choice([-1.0, 1.0], shape)
        parts = np.asarray(signs * size * rng.uniform(0.75, 1, shape))
    if is_complex:
        values = np.empty(spec.shape, np.complex128)
        values.real, values.imag = parts[0], parts[1]
        return values
    return np.asarray(parts[0])
