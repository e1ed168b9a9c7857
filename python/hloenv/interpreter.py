# SPDX-License-Identifier: Apache-2.0
"""Running modules exactly as written, and proving alternatives equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._native import core
from .arrays import random_inputs
from .errors import ArgumentError
from .module import ArraySpec, HloModule
from .passes import to_core
from .rewrite import Alternatives
from .widen import widened, widened_inputs

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ChoiceError:
    """How far one choice of one alternative was from its original.

    Attributes:
        alternative: index of the alternative.
        choice: from 1; choice 0 is the original itself.
        absolute: largest |choice - original| over all elements and sites and, in
            loops, iterations, where the original is a number; inf where the choice is
            NaN there.
        relative: the same over the largest |original| of that array.
        num_evaluations: how often both were computed; 0 if nothing reached them, as
            in a branch that was not taken.
        num_nans_lost: elements that are NaN in the original alone, over all sites and
            iterations: XLA's simplifier takes 0 * x for 0, whatever x is.
    """

    alternative: int
    choice: int
    absolute: float
    relative: float
    num_evaluations: int
    num_nans_lost: int


def as_bytes(arrays: Sequence[Any], specs: Sequence[ArraySpec]) -> list[Array]:
    """Each array as flat, row-major uint8.

    Raises:
        ArgumentError: the number of arrays, a shape or a dtype is wrong.
    """
    if len(arrays) != len(specs):
        raise ArgumentError(
            f"the module takes {len(specs)} arrays, but {len(arrays)} were given"
        )
    result = []
    for position, (given, spec) in enumerate(zip(arrays, specs, strict=True)):
        array = np.asarray(given)
        if array.shape != spec.shape or array.dtype != spec.dtype:
            raise ArgumentError(
                f"input {position} has to be {spec.dtype}{list(spec.shape)}, not "
                f"{array.dtype}{list(array.shape)}"
            )
        result.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return result


def interpret(
    module: HloModule, *arrays: Any, perturb: int | None = None
) -> list[Array]:
    """Runs `module` in XLA's evaluator: no pass, no code generation, slow.

    Args:
        module: what to run.
        arrays: one for each of `module.input_specs()`.
        perturb: a seed by which every rounded value moves one unit in the last place
            up or down; what that changes in the outputs is rounding. None moves none.

    Returns:
        One array for each of `module.output_specs()`.

    Raises:
        ArgumentError: the arrays do not fit.
        ExecuteError: the evaluator does not know an instruction.
    """
    inputs = as_bytes(arrays, module.input_specs())
    outputs = core.interpret(module._core, inputs, perturb)
    return [
        output.view(spec.dtype).reshape(spec.shape)
        for output, spec in zip(outputs, module.output_specs(), strict=True)
    ]


def verify_alternatives(
    alternatives: Alternatives,
    inputs: Sequence[Any] | None = None,
    *,
    seed: int = 0,
    float64: bool = False,
) -> list[ChoiceError]:
    """Computes every choice of every alternative beside its original.

    One execution of the alternative graph by XLA's evaluator, nested computations
    included; alternatives of kind "pass" take one more for each choice.

    Args:
        alternatives: what a dry run found.
        inputs: one array for each input of the module; random ones by default.
        seed: of the random inputs.
        float64: capture and compute in float64 instead, where a choice that only
            rounds differently agrees to some 1e-14, and a wrong one still does not.

    Returns:
        One record for each choice above 0, by alternative, then choice.

    Raises:
        ArgumentError: the inputs do not fit; or the module cannot be written in
            float64, or the passes find other rewrites there.
        ExecuteError: the evaluator does not know an instruction.
    """
    module = HloModule._wrap(alternatives._capture.module())
    if float64:
        if inputs is None:
            inputs = random_inputs(module, seed=seed)
        wide = widened(module)
        specs = [to_core(each) for each in alternatives._pipelines]
        again = Alternatives(core.capture(wide._core, specs), owner=None)
        if not np.array_equal(again.num_choices, alternatives.num_choices):
            raise ArgumentError(
                "the passes find other rewrites in float64, which therefore says "
                "nothing about these"
            )
        return verify_alternatives(again, widened_inputs(wide, inputs))
    if inputs is None:
        inputs = random_inputs(module, seed=seed)
    return [
        ChoiceError(*record)
        for record in core.verify_alternatives(
            alternatives._capture, as_bytes(inputs, module.input_specs())
        )
    ]


def measure_rounding(
    alternatives: Alternatives,
    indices: Sequence[int],
    inputs: Sequence[Any],
    *,
    num_runs: int,
) -> list[tuple[float, float]]:
    """How far originals move when every rounding moves by one unit in the last place.

    Args:
        alternatives: what a dry run found.
        indices: of the alternatives to look at.
        inputs: one array for each input of the module.
        num_runs: with perturbations; the worst of them counts.

    Returns:
        For each index the largest |difference|, and that over the largest |value|, as
        in `ChoiceError`; inf where the last bit decides how often it is computed.

    Raises:
        ArgumentError: the inputs do not fit.
        ExecuteError: the evaluator does not know an instruction.
    """
    module = HloModule._wrap(alternatives._capture.module())
    moves: list[tuple[float, float]] = core.measure_rounding(
        alternatives._capture,
        as_bytes(inputs, module.input_specs()),
        list(indices),
        num_runs,
    )
    return moves
