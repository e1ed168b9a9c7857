# SPDX-License-Identifier: Apache-2.0
"""HLO text, as XLA prints it, read instruction by instruction.

For comparing and identifying modules only: it parses names, operands and the text of
attributes, but neither shapes nor attribute values.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import ParseError

# `opcode(`: shapes have no lower-case word before a parenthesis.
OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
NAME = re.compile(r"%([\w.\-]+)")
# Strings may contain text that looks like code.
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
STRING = re.compile(_QUOTED, re.DOTALL)
_ATTACHED = rf',? (?:metadata|origin)=\{{(?:[^{{}}"]|{_QUOTED}|\{{[^{{}}]*\}})*\}}'
_METADATA = re.compile(_ATTACHED, re.DOTALL)
# Or a string outside of it; far slower.
_METADATA_OR_STRING = re.compile(rf"{_ATTACHED}|({_QUOTED})", re.DOTALL)
# A string in front of metadata, or one that contains what looks like it.
_BEHIND_STRING = re.compile(r'"[^"\n]*(?:metadata|origin)=\{')
# The first line of a computation; between it and the header, XLA prints the source
# files, functions and stack frames that metadata refer to.
_FIRST_COMPUTATION = re.compile(r"^(?:%|ENTRY )", re.MULTILINE)
# What may open or close something, or end a line.
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\n]', re.DOTALL)
_PERCENT = re.compile(rf"%|({_QUOTED})", re.DOTALL)
_PARENTHESIS = re.compile(r"[()]")
COMMENT = re.compile(r"/\*.*?\*/")
_CONTROL = re.compile(r", control-predecessors=\{([^}]*)\}")


# What stands for the elements of a constant that are not printed.
LEFT_OUT = "{...}"


@dataclass(slots=True)
class Instruction:
    """One instruction of HLO text; `value` is for the comparison.

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


def logical_lines(text: str) -> list[str]:
    """The lines of text as XLA prints it: one for each instruction.

    A line continues while a string or a brace in it is open: XLA prints JSON
    (`backend_config={...}`) as it was given, with its line breaks.
    """
    lines = text.split("\n")
    joined: list[str] = []
    start = index = 0
    while index < len(lines):
        line = lines[index]
        # Headers of computations end with an open brace.
        if (line[:2] == "  " or not index) and not _is_closed(line):
            line = text[start : _end_of_line(text, start)]
            index += line.count("\n")
        joined.append(line)
        start += len(line) + 1
        index += 1
    return joined


def _is_closed(line: str) -> bool:
    if '"' in line:
        line = STRING.sub("", line)
        if '"' in line:
            return False
    return line.count("{") == line.count("}")


def _end_of_line(text: str, start: int) -> int:
    depth = 0
    for found in _BRACKET.finditer(text, start):
        if found[0] == "\n" and depth <= 0:
            return found.start()
        depth += (found[0] == "{") - (found[0] == "}")
    return len(text)


def outside_strings(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """Replaces what matches the pattern, but for strings."""
    if '"' not in text:
        return pattern.sub(replacement, text)
    strings = STRING.findall(text)
    between = [pattern.sub(replacement, each) for each in STRING.split(text)]
    return "".join(itertools.chain(*zip(between, [*strings, ""], strict=True)))


def without_metadata(text: str) -> str:
    """The text without metadata about the source of the instructions."""
    header = text.partition("\n")[0]
    if not _is_closed(header):
        header = text[: _end_of_line(text, 0)]
    rest = text[len(header) + 1 :]
    start = _FIRST_COMPUTATION.search(rest)
    return header + "\n" + _drop_metadata(rest[start.start() if start else 0 :])


def _drop_metadata(text: str) -> str:
    if _BEHIND_STRING.search(text) is None:
        return _METADATA.sub("", text)
    return _METADATA_OR_STRING.sub(lambda found: found[1] or "", text)


def computation_blocks(text: str) -> list[tuple[str, str]]:
    """Name and text of each computation."""
    blocks: list[tuple[str, list[str]]] = []
    for line in logical_lines(text):
        if line.startswith(("%", "ENTRY ")) and (name := NAME.search(line)):
            blocks.append((name[1], []))
        if blocks:
            blocks[-1][1].append(line)
    return [(name, "\n".join(lines).strip()) for name, lines in blocks]


def parse_text(text: str) -> ModuleText:
    """Reads text as XLA prints it, with '%' before names, one instruction per line."""
    lines = logical_lines(text)
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
    attributes = _drop_metadata(right[end + 1 :])
    strings: list[str] = []
    if '"' in attributes:
        strings = STRING.findall(attributes)
        attributes = STRING.sub('"', attributes)
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
            attributes=("" if operands else inside)
            + _with_strings(NAME.sub("%", attributes), iter(strings)),
            callees=NAME.findall(attributes),
        )
    )


def _with_strings(text: str, strings: Iterator[str]) -> str:
    """The text with a string in place of each quotation mark."""
    if '"' not in text:
        return text
    return re.sub('"', lambda _: next(strings, '"'), text)


def attribute_text(instruction: Instruction, *, sigil: str = "%") -> str:
    """`attributes` with the names of computations; `sigil` is put before these."""
    callees = iter(instruction.callees)
    return _PERCENT.sub(
        lambda found: found[1] or sigil + next(callees, ""), instruction.attributes
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
    strings: list[str] = []
    if '"' in line:
        strings = STRING.findall(line)
        line = STRING.sub('"', line)
    for piece in COMMENT.sub("", line).split(", "):
        if depth == 0:
            parts.append(piece)
        else:
            parts[-1] += ", " + piece
        depth += sum(map(piece.count, "{([")) - sum(map(piece.count, "})]"))
    left = iter(strings)
    return [_with_strings(each, left) for each in parts][1:]
