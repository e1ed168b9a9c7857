# SPDX-License-Identifier: Apache-2.0
"""Source locations of instructions, as recorded by the frontend."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """The origin of an instruction, as recorded by the frontend (JAX).

    Attributes:
        op_name: of the frontend's operation, "jit(step)/dot_general"; "" if unknown.
        file: of the source line; "" if unknown.
        line: its number, from 1; 0 if unknown.
    """

    op_name: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else ""
        return " ".join(filter(None, (self.op_name, where)))
