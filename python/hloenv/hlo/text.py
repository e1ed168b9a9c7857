# SPDX-License-Identifier: Apache-2.0
"""HLO text, as XLA prints it, read line by line.

For comparing and identifying modules only: it parses names, operands and the text of
attributes, but neither shapes nor attribute values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import ParseError

# `opcode(`: shapes have no lower-case word before a parenthesis.
OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
NAME = re.compile(r"%([\w.\-]+)")
_METADATA = re.compile(
    r',? (?:metadata|origin)=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
# The first line of a computation; between it and the header, XLA prints the source
# files, functions and stack frames that metadata refer to.
_FIRST_COMPUTATION = re.compile(r"^(?:%|ENTRY )", re.MULTILINE)
_PARENTHESIS = re.compile(r"[()]")
COMMENT = re.compile(r"/\*.*?\*/")
_CONTROL = re.compile(r", control-predecessors=\{([^}]*)\}")


# What stands for the elements of a constant that are not printed.
LEFT_OUT = "{...}"


@dataclass(slots=True)
class Instruction:
    """One line of HLO text; `value` is for the comparison.

    Attributes:
        operands: indices within the computation.
        controls: control predecessors, likewise.
        attributes: literal, parameter number and attributes, without the names of
            computations.
        callees: names of the computations that it calls.
    """

    name: str
    opcode: str
    shape: str
    operands: list[int]
    controls: list[int]
    attributes: str
    callees: list[str]
    value: int = -1


@dataclass(slots=True)
class Computation:
    """A computation; `value` is for the comparison."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    root: int = -1
    value: int = -1

    def __len__(self) -> int:
        return len(self.instructions)


@dataclass(slots=True)
class ModuleText:
    """A module: parts of its first line, the entry's name, callees before callers."""

    header: list[str]
    entry: str
    computations: dict[str, Computation]


def without_metadata(text: str) -> str:
    """The text without metadata about the source of the instructions."""
    header, _, rest = text.partition("\n")
    start = _FIRST_COMPUTATION.search(rest)
    return header + "\n" + _METADATA.sub("", rest[start.start() if start else 0 :])


def parse_text(text: str) -> ModuleText:
    """Reads text as XLA prints it, with '%' before names, one instruction per line."""
    lines = text.splitlines()
    result = ModuleText(split_parts(lines[0]), "", {})
    computation: Computation | None = None
    numbers: dict[str, int] = {}
    for line in lines[1:]:
        if computation is not None and line.startswith("  "):
            _parse_instruction(line, computation, numbers)
        elif line.endswith("{") and (name := NAME.search(line)):
            computation, numbers = Computation(name[1]), {}
            result.computations[computation.name] = computation
            if line.startswith("ENTRY"):
                result.entry = computation.name
    if not result.entry:
        raise ParseError("the HLO text has no ENTRY computation; it must have one")
    return result


def _parse_instruction(
    line: str, computation: Computation, numbers: dict[str, int]
) -> None:
    left, _, right = line.partition(" = ")
    opcode = OPCODE.search(" " + right)
    if opcode is None:
        raise ParseError(
            f"this line of the HLO text is not an instruction: {line[:120]!r}"
        )
    is_root = left.lstrip().startswith("ROOT ")
    name = left.rpartition("%")[2]
    start = opcode.end() - 1
    end = _closing(right, start) if opcode[1] == "constant" else right.index(")", start)
    attributes = _METADATA.sub("", right[end + 1 :])
    controls: list[int] = []
    if control := _CONTROL.search(attributes):
        controls = [numbers[each] for each in NAME.findall(control[1])]
        attributes = attributes.replace(control[0], "")
    inside = right[start:end]
    operands = [numbers[each] for each in NAME.findall(inside)]
    numbers[name] = len(computation)
    if is_root:
        computation.root = len(computation)
    computation.instructions.append(
        Instruction(
            name=name,
            opcode=opcode[1],
            shape=COMMENT.sub("", right[: opcode.start() - 1].strip() or right),
            operands=operands,
            controls=controls,
            attributes=("" if operands else inside) + NAME.sub("%", attributes),
            callees=NAME.findall(attributes),
        )
    )


def _closing(text: str, start: int) -> int:
    """Index just before the parenthesis that closes the one before `start`."""
    depth = 1
    for found in _PARENTHESIS.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return len(text)


def split_parts(line: str) -> list[str]:
    """Splits the header after the name: "entry_computation_layout={...}", ..."""
    parts: list[str] = []
    depth = 0
    for piece in COMMENT.sub("", line).split(", "):
        if depth == 0:
            parts.append(piece)
        else:
            parts[-1] += ", " + piece
        depth += sum(map(piece.count, "{([")) - sum(map(piece.count, "})]"))
    return parts[1:]
