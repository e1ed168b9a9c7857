# SPDX-License-Identifier: Apache-2.0
"""Reads HLO text and protos into the C++ core, in this process or after a trial.

XLA's parser and proto reader end the process on unsound input, so that untrusted input
is checked first: see `HloModule`.
"""

from __future__ import annotations

import codecs
import re

from .._native import core
from ..errors import DoubtfulModuleError, ParseError
from ..process.child import try_load

_MAX_LINE = 400
_MAX_QUOTED = 120
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")

# The start of a module's text, behind comments.
_HEADER = re.compile(
    r"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*HloModule\b", re.DOTALL
)
# What XLA's parser makes of the text of one instruction.
_SCHEDULED = "HloModule _, is_scheduled=true"


def _read(content: str | bytes, *, check_structure: bool, verify: bool) -> core.Module:
    if isinstance(content, str):
        return core.Module.from_text(
            content, check_structure=check_structure, verify=verify
        )
    return core.Module.from_proto(
        content, check_structure=check_structure, verify=verify
    )


def read_here(content: str | bytes, *, verify: bool = False) -> core.Module:
    """Reads text or a proto in this process, without protection from a crash of XLA.

    For input that hloenv or jax wrote, and for processes that may crash.
    """
    return _read(content, check_structure=False, verify=verify)


# Whether this is a child process of hloenv that may crash.
_is_expendable = False


def become_expendable() -> None:
    """Makes this process read modules without a structure check; it may crash."""
    global _is_expendable
    _is_expendable = True


def read_untrusted(content: str | bytes, *, verify: bool) -> core.Module:
    """Reads text or a proto of any origin.

    Input that the structure check does not cover, or finds wrong, is read in a child
    process first.

    Raises:
        ParseError: it is not HLO.
        InvalidModuleError: it breaks a rule of HLO, or XLA crashes on it.
        MeasureTimeout: the child process did not finish reading it in time.
    """
    if _is_expendable:
        return read_here(content, verify=verify)
    try:
        return _read(content, check_structure=True, verify=verify)
    except DoubtfulModuleError as doubt:
        try_load(content, verify=verify, doubt=str(doubt))
    return read_here(content, verify=verify)


def decoded(content: bytes) -> str:
    """The text of a file.

    Raises:
        ParseError: it is not text.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ParseError(
            f"this is not text: byte {content[error.start]:#04x} at offset "
            f"{error.start} is not UTF-8"
        ) from None


def starts_like_text(content: bytes) -> bool:
    """Whether bytes are HLO text rather than a proto, by their beginning."""
    content = content.removeprefix(codecs.BOM_UTF8).lstrip()
    is_like_text = content.startswith((b"HloModule", b"//", b"/*"))
    # A proto starts with a line break, the length of the module's name, the name, and
    # the tag of another field, which is a control character.
    return is_like_text and _CONTROL.search(content[:80]) is None


def without_given_schedule(text: str, module: core.Module) -> str | None:
    """The text of a module without the schedule that XLA's parser gave it.

    It makes a scheduled module of one instruction without a module around it.

    Args:
        text: from which `module` was read.
        module: any.

    Returns:
        None if the text says whether the module is scheduled.
    """
    if _HEADER.match(text) is not None:
        return None
    printed = module.to_text(True)
    if not printed.startswith(_SCHEDULED):
        return None
    return "HloModule _" + printed.removeprefix(_SCHEDULED)


def short_message(message: str) -> str:
    """An error of XLA's parser with short lines.

    XLA quotes the line that it cannot read, which may have megabytes, and points at the
    column below: what is around the column is kept.
    """
    lines = message.split("\n")
    shown = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        marks = [each for each in (below, line) if each.strip() == "^"]
        first = max(0, marks[0].index("^") - _MAX_QUOTED // 2) if marks else 0
        shown.append(line[first : first + (_MAX_QUOTED if marks else _MAX_LINE)])
    return "\n".join(shown)
