# SPDX-License-Identifier: Apache-2.0
"""The same program in float64, to distinguish rounding from a wrong rewrite.

Two programs that differ only by rounding agree far better in float64; two that compute
different values do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule, ModuleLike, as_module
from ..hlo.text import logical_lines, outside_strings

_FLOAT = r"(?:f8e[0-9a-z]+|f4e[0-9a-z]+|bf16|f16|f32)"
_ARRAY = re.compile(rf"\b({_FLOAT}|c64)\[")
_REAL, _COMPLEX = re.compile(rf"\b{_FLOAT}\["), re.compile(r"\bc64\[")
_DEFINITION = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = ([a-z0-9]+)\[")
_CAST = re.compile(
    r"^(\s*)(ROOT )?%([\w.\-]+) = ([a-z0-9]+)(\[\S*) bitcast-convert\(%([\w.\-]+)\)"
)
# Operations whose types must not change.
_FIXED = ("infeed", "outfeed", "send", "recv")
_CALL_TARGET = re.compile(r'\bcustom-call\(.*?custom_call_target="([^"]*)"')
# Returns one of its operands, so that it supports any type.
ALTERNATIVE = "hloenv.alternative"


def upcast_to_float64(module: ModuleLike) -> HloModule:
    """The module with every narrower float type upcast to float64.

    In alternative graphs, the choices are upcast too. A constant becomes the decimal
    number in its text. Bit casts between floats and integers, as in random number
    generation, keep the original's type.

    Returns:
        A module whose inputs and outputs are float64 (complex128) where those of
        `module` are narrower.

    Raises:
        ArgumentError: the module calls code that depends on a type.
    """
    module = as_module(module)
    text = module.to_text()
    fixed = sorted(set(_FIXED) & module.opcode_counts().keys())
    if any(target != ALTERNATIVE for target in _CALL_TARGET.findall(text)):
        fixed.append("custom-call")
    if fixed:
        raise ArgumentError(
            f"module {module.name!r} cannot be upcast to float64: it holds "
            f"{', '.join(fixed)}, whose types are fixed; use a module without them"
        )
    dtypes: dict[str, str] = {}
    for line in logical_lines(text):
        if (match := _DEFINITION.match(line)) is not None:
            dtypes[match[1]] = match[2]
    lines: list[str] = []
    for line in logical_lines(text):
        cast = _CAST.match(line)
        lines += [_widen(line)] if cast is None else _widen_cast(line, cast, dtypes)
    try:
        wide = HloModule.from_text("\n".join(lines))
        wide.verify()
    except HloEnvError as error:
        raise ArgumentError(
            f"module {module.name!r} cannot be upcast to float64: {error}"
        ) from error
    return wide


def _widen(line: str) -> str:
    line = outside_strings(_COMPLEX, "c128[", line)
    return outside_strings(_REAL, "f64[", line)


def _widen_cast(line: str, cast: re.Match[str], dtypes: dict[str, str]) -> list[str]:
    """The lines that replace a bitcast-convert."""
    indent, root, name, dtype, shape, operand = cast.groups()
    result_is_float = _ARRAY.match(f"{dtype}[") is not None
    operand_dtype = dtypes.get(operand, "")
    if _ARRAY.match(f"{operand_dtype}["):
        if result_is_float:
            raise ArgumentError(
                f"%{name} is a bitcast-convert from {operand_dtype} to {dtype}, which "
                "cannot be upcast to float64"
            )
        # The types have equal width; otherwise the verifier rejects the dimensions.
        narrow = f"%{name}.narrow = {operand_dtype}{shape} convert(%{operand})"
        return [indent + narrow, line.replace(f"(%{operand})", f"(%{name}.narrow)")]
    if not result_is_float:
        return [line]
    narrow = line.replace(f"%{name} = ", f"%{name}.narrow = ").replace("ROOT ", "", 1)
    wide = f"{indent}{root or ''}%{name} = {dtype}{shape} convert(%{name}.narrow)"
    return [narrow, _widen(wide)]


def upcast_inputs(module: HloModule, inputs: Sequence[Array | None]) -> list[Any]:
    """`inputs` of a module, upcast for the result of `upcast_to_float64`.

    Args:
        module: the result of `upcast_to_float64`.
        inputs: one array for each input leaf; None for tokens.
    """
    return [
        None if array is None else np.asarray(array, spec.dtype, order="C")
        for array, spec in zip(inputs, module.input_specs(), strict=True)
    ]
