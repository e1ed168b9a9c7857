# SPDX-License-Identifier: Apache-2.0
"""Running modules exactly as written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._native import core
from .._typing import Array
from ..errors import ArgumentError, ExecuteError
from ..hlo.array_spec import ArraySpec
from ..hlo.module import HloModule, ModuleLike, as_module
from .buffers import no_numpy_array


def as_bytes(arrays: Sequence[Any], specs: Sequence[ArraySpec]) -> list[Array]:
    """Each array as flat, row-major uint8; tokens, which are None, as no bytes.

    Raises:
        ArgumentError: the number of arrays, a shape or a dtype is wrong.
    """
    if len(arrays) != len(specs):
        raise ArgumentError(
            f"got {len(arrays)} arrays; the module takes {len(specs)}; give one for "
            "each of its input_specs()"
        )
    result = []
    for position, (given, spec) in enumerate(zip(arrays, specs, strict=True)):
        if spec.hlo_dtype == "token":
            if given is not None:
                raise ArgumentError(
                    f"input {position} is a token, got {type(given).__name__}; give "
                    "None"
                )
            result.append(np.empty(0, np.uint8))
            continue
        array = np.asarray(given)
        if array.shape != spec.shape or array.dtype != spec.dtype:
            raise ArgumentError(
                f"input {position} must be {spec.dtype}{list(spec.shape)}, got "
                f"{array.dtype}{list(array.shape)}; convert it first"
            )
        result.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return result


def check_static(module: HloModule) -> None:
    """Refuses dynamic sizes, which XLA's evaluator ignores: it reduces all elements.

    Raises:
        ExecuteError: the module sets the size of a dimension.
    """
    if module.opcode_counts().get("set-dimension-size"):
        raise ExecuteError(
            f"XLA's evaluator cannot run module {module.name!r}: it ignores the sizes "
            "of set-dimension-size; run the pass dynamic_padder first, or compile it"
        )


def interpret(
    module: ModuleLike, *arrays: Any, perturb: int | None = None
) -> list[Array | None]:
    """Runs `module` in XLA's evaluator: no pass, no code generation, slow.

    Args:
        module: the module to run.
        arrays: one for each of `module.input_specs()`, None for tokens.
        perturb: seed for a perturbation of every rounded value by 1 ulp, up or down, to
            find outputs that are sensitive to rounding; None for no perturbation.

    Returns:
        One array for each of `module.output_specs()`, None for tokens.

    Raises:
        ArgumentError: the arrays do not match the module, or numpy has no array of the
            type or of as many dimensions as an output.
        ExecuteError: the evaluator does not support an instruction, or sizes that are
            known at run time only.
    """
    module = as_module(module)
    outputs = evaluate(module, *arrays, perturb=perturb)
    return [
        None if spec.hlo_dtype == "token" else output
        for output, spec in zip(outputs, module.output_specs(), strict=True)
    ]


def evaluate(
    module: HloModule, *arrays: Any, perturb: int | None = None
) -> list[Array]:
    """As `interpret`, for comparisons: tokens are empty arrays."""
    check_static(module)
    inputs = as_bytes(arrays, module.input_specs())
    outputs = core.interpret(module._core, inputs, perturb)
    return [
        _shaped(output, spec)
        for output, spec in zip(outputs, module.output_specs(), strict=True)
    ]


def _shaped(output: Array, spec: ArraySpec) -> Array:
    if spec.hlo_dtype == "token":
        return output
    try:
        return output.view(spec.dtype).reshape(spec.shape)
    except ValueError as error:
        raise no_numpy_array(spec.shape, error) from None
