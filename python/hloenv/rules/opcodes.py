# SPDX-License-Identifier: Apache-2.0
"""Checks the opcodes and numbers of operands in the lines of rules, as XLA does."""

from __future__ import annotations

import difflib
import re
from functools import cache

from .._native import core
from ..errors import DoubtfulModuleError, HloEnvError
from ..hlo.module import HloModule
from .pattern import RuleError

# Their operands are literals and numbers, or as many as there are results.
_OTHERS = ("constant", "parameter", "tuple")
_ASYNC = re.compile(r"-(start|update|done)$")
_DOUBT = "number of operands"
_COUNT = re.compile(r"expects (\d+) operands, but has")


def check_opcode(side: str, name: str, opcode: str, num_operands: int) -> None:
    """Checks one line of a rule.

    Args:
        side: "before" or "after".
        name: of the line.
        opcode: of its instruction.
        num_operands: of its instruction.

    Raises:
        RuleError: XLA has no such opcode, or it takes another number of operands.
    """
    known = _opcodes()
    if opcode not in known and _ASYNC.sub("", opcode) not in known:
        close = difflib.get_close_matches(opcode, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise RuleError(f"`{side}` line {name!r}: XLA has no opcode {opcode!r}{hint}")
    wanted = _wanted_operands(opcode, num_operands)
    if wanted is not None:
        raise RuleError(
            f"`{side}` line {name!r}: {opcode} takes {wanted} operand"
            f"{'' if wanted == 1 else 's'}, got {num_operands}"
        )


@cache
def _opcodes() -> frozenset[str]:
    return frozenset(core.opcode_names())


@cache
def _wanted_operands(opcode: str, given: int) -> int | None:
    """How many operands XLA requires; None if it takes as many as given."""
    if opcode in _OTHERS:
        return None
    lines = [f"  p{i} = f32[] parameter({i})\n" for i in range(given)]
    names = ", ".join(f"p{i}" for i in range(given))
    lines.append(f"  ROOT r = f32[] {opcode}({names})\n")
    text = f"HloModule m\n\nENTRY e {{\n{''.join(lines)}}}\n"
    try:
        core.Module.from_text(text, check_structure=True, verify=False)
    except DoubtfulModuleError as doubt:
        # The parser itself may crash; it is asked in a child process, where needed.
        return _asked(text) if _DOUBT in str(doubt) else None
    except HloEnvError as error:
        return _count(error)
    return None


def _asked(text: str) -> int | None:
    try:
        HloModule.from_text(text, verify=False)
    except HloEnvError as error:
        return _count(error)
    return None


def _count(error: HloEnvError) -> int | None:
    found = _COUNT.search(str(error))
    return int(found[1]) if found else None
