# SPDX-License-Identifier: Apache-2.0
"""Finds inputs for which the outputs of a module are finite.

NaN outputs compare equal whatever was computed, and normal inputs give many: a square
root gives NaN on half of them. Inputs of several kinds are drawn; the first with finite
outputs, or else the one with the fewest NaN, is used. Integer indices are always in
range (`hloenv.random_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import Array
from ..hlo.module import HloModule
from ..runtime.random_inputs import random_inputs
from .comparison import num_not_finite

Run = Callable[[Sequence[Array]], list[Array]]
# (index of the input, low, high), both included.
Range = tuple[int, int, int]

# Maps normally distributed floats to those of a kind.
_Kind = Callable[[Array, np.random.Generator], Array]


def _normal(array: Array, _: np.random.Generator) -> Array:
    return array


def _some_positive(array: Array, rng: np.random.Generator) -> Array:
    """Makes every second input positive, as for pairs of mean and variance."""
    return _positive(array, rng) if rng.random() < 0.5 else array


def _positive(array: Array, _: np.random.Generator) -> Array:
    return np.asarray(np.abs(array) + np.asarray(0.125, array.dtype))


def _unit(array: Array, rng: np.random.Generator) -> Array:
    return np.asarray(rng.uniform(0.1, 1.0, array.shape)).astype(array.dtype)


def _small(array: Array, _: np.random.Generator) -> Array:
    return np.asarray(array * np.asarray(0.0625, array.dtype))


# In the order of evaluation. Positive inputs come late: they hide rewrites that are
# only correct for positive numbers.
KINDS: dict[str, _Kind] = {
    "normal": _normal,
    "small": _small,
    "some positive": _some_positive,
    "others positive": _some_positive,
    "positive": _positive,
    "unit": _unit,
}


@dataclass(frozen=True)
class Example:
    """Inputs of a module and its outputs on them.

    Attributes:
        kind: of `KINDS`.
        inputs: one for each flat leaf of the parameters.
        outputs: likewise of the result.
        num_not_finite: elements of the outputs that are NaN or infinite.
    """

    kind: str
    inputs: list[Array]
    outputs: list[Array]
    num_not_finite: int


def draw(
    module: HloModule, kind: str, seed: int, ranges: Sequence[Range] = ()
) -> list[Array]:
    """Draws seeded inputs of one kind.

    Args:
        module: the module that takes them.
        kind: of `KINDS`.
        seed: seed of the inputs.
        ranges: of integer inputs whose values matter.
    """
    inputs: list[Any] = random_inputs(module, seed=seed)
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    for index, low, high in ranges:
        array = inputs[index]
        if array is not None and array.dtype.kind in "iu":
            values = rng.integers(low, high, array.shape, np.int64, endpoint=True)
            inputs[index] = values.astype(array.dtype)
    return [
        np.asarray(KINDS[kind](each, rng), each.dtype, order="C")
        if each is not None and each.dtype.name.startswith(("float", "bfloat"))
        else each
        for each in inputs
    ]


def find_example(
    module: HloModule, run: Run, seed: int, ranges: Sequence[Range] = ()
) -> Example:
    """Returns the first example without NaN or infinity, or the one with the fewest.

    Args:
        module: the module that takes the inputs.
        run: returns the outputs of the module.
        seed: seed of the inputs.
        ranges: of integer inputs whose values matter.
    """
    best: Example | None = None
    for kind in KINDS:
        inputs = draw(module, kind, seed, ranges)
        outputs = run(inputs)
        example = Example(kind, inputs, outputs, num_not_finite(outputs))
        if best is None or example.num_not_finite < best.num_not_finite:
            best = example
        if not example.num_not_finite:
            break
        if not any(each.dtype.kind in "fcV" for each in inputs if each is not None):
            break
    assert best is not None
    return best
