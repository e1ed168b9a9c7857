# SPDX-License-Identifier: Apache-2.0
"""The same program in double precision, to tell rounding from a wrong rewrite.

Two programs that are equal but for rounding agree far better in float64; two that
compute different things do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule

_FLOAT = r"(?:f8e[0-9a-z]+|f4e[0-9a-z]+|bf16|f16|f32)"
_ARRAY = re.compile(rf"\b({_FLOAT}|c64)\[")
_DEFINITION = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = ([a-z0-9]+)\[")
_CAST = re.compile(
    r"^(\s*)(ROOT )?%([\w.\-]+) = ([a-z0-9]+)(\[\S*) bitcast-convert\(%([\w.\-]+)\)"
)
# Strings and constants that look like shapes are not.
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
# What has to keep its bits, or the meaning of its types is not ours to know.
_FIXED = ("infeed", "outfeed", "send", "recv")
_CALL_TARGET = re.compile(r'\bcustom-call\(.*?custom_call_target="([^"]*)"')
# The value of one of its operands, whatever their type.
_ALTERNATIVE = "hloenv.alternative"


def upcast_to_float64(module: HloModule) -> HloModule:
    """The module with float64 in the place of every narrower float.

    Alternative graphs stay alternative graphs: their choices are upcast too. A
    constant is the decimal number that its text shows. Casts between the bits of floats
    and integers, as random numbers are made with, still see the original's type.

    Returns:
        A module that takes float64 (complex128) arrays where `module` takes narrower
        ones, and gives them likewise.

    Raises:
        ArgumentError: the module calls code that is bound to a type.
    """
    text = module.to_text()
    fixed = sorted(set(_FIXED) & module.opcode_counts().keys())
    if any(target != _ALTERNATIVE for target in _CALL_TARGET.findall(text)):
        fixed.append("custom-call")
    if fixed:
        raise ArgumentError(
            f"module {module.name!r} holds {', '.join(fixed)}, which cannot take "
            "another type"
        )
    dtypes: dict[str, str] = {}
    for line in text.splitlines():
        if (match := _DEFINITION.match(line)) is not None:
            dtypes[match[1]] = match[2]
    lines: list[str] = []
    for line in text.splitlines():
        cast = _CAST.match(line)
        lines += [_widen(line)] if cast is None else _widen_cast(line, cast, dtypes)
    try:
        wide = HloModule.from_text("\n".join(lines))
        wide.verify()
    except HloEnvError as error:
        raise ArgumentError(
            f"module {module.name!r} cannot be written in float64: {error}"
        ) from error
    return wide


def _widen(line: str) -> str:
    parts = _QUOTED.split(line)
    parts[::2] = [
        _ARRAY.sub(lambda m: "c128[" if m[1] == "c64" else "f64[", part)
        for part in parts[::2]
    ]
    return "".join(parts)


def _widen_cast(line: str, cast: re.Match[str], dtypes: dict[str, str]) -> list[str]:
    """The lines in the place of a bitcast-convert."""
    indent, root, name, dtype, shape, operand = cast.groups()
    result_is_float = _ARRAY.match(f"{dtype}[") is not None
    operand_dtype = dtypes.get(operand, "")
    if _ARRAY.match(f"{operand_dtype}["):
        if result_is_float:
            raise ArgumentError(
                f"%{name} casts {operand_dtype} to {dtype} bit by bit, which float64 "
                "has no bits for"
            )
        # Of equal width, or the dimensions differ and the verifier says so.
        narrow = f"%{name}.narrow = {operand_dtype}{shape} convert(%{operand})"
        return [indent + narrow, line.replace(f"(%{operand})", f"(%{name}.narrow)")]
    if not result_is_float:
        return [line]
    narrow = line.replace(f"%{name} = ", f"%{name}.narrow = ").replace("ROOT ", "", 1)
    wide = f"{indent}{root or ''}%{name} = {dtype}{shape} convert(%{name}.narrow)"
    return [narrow, _widen(wide)]


def upcast_inputs(module: HloModule, inputs: Sequence[Array | None]) -> list[Any]:
    """`inputs` of a module as inputs of `upcast_to_float64` of it, a module given here.

    Args:
        module: the upcast_to_float64 one.
        inputs: one array for each input leaf; None for tokens.
    """
    return [
        None if array is None else np.asarray(array, spec.dtype, order="C")
        for array, spec in zip(inputs, module.input_specs(), strict=True)
    ]
