# SPDX-License-Identifier: Apache-2.0
"""Patterns of rules: HLO text with placeholders.

    ab = dot(a, b), $dims
    cb = dot(c, b), $dims
    ROOT r = add(ab, cb)

One instruction per line, operands before users. Names that no line defines are
arguments, which match any array; a name that is used twice is one value. A shape may be
left out, or be a pattern: `T[m,k]` binds the type and the dimensions, where they are
not numbers or a type of XLA; a dot or convolution of another type than its operands
matches only a line with a type. An attribute's value may be a placeholder
(`dimensions=$d`), and a lone `$name` binds all attributes that the line does not
mention, possibly none; without it, an instruction with other attributes does not match.
An opcode may be a placeholder (`$f(a)`), for which the rule lists the opcodes. A root
that is a tuple means several values, which are replaced together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import ArgumentError
from ..hlo.text import split_parts
from .subject import normalized

_LINE = re.compile(
    r"^(?P<root>ROOT\s+)?%?(?P<name>[A-Za-z_][\w.\-]*)\s*=\s*"
    r"(?:(?P<dtype>[A-Za-z]\w*)\[(?P<dims>[^\]]*)\](?:\{[\d,]*\})?\s+)?"
    r"(?P<opcode>\$?[a-z][a-z0-9\-]*)\((?P<operands>[^()]*)\)"
    r"(?:\s*,\s*(?P<attributes>.*))?$"
)
_NAME = re.compile(r"^%?[A-Za-z_][\w.\-]*$")
# Types of XLA; others are placeholders.
_DTYPE = re.compile(r"^(pred|token|opaque|bf16|[suf]\d+\w*|c64|c128)$")
# Their operands may be exchanged.
COMMUTATIVE = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
MAX_LINES = 64


class RuleError(ArgumentError):
    """A rule is not well-formed, or computes something else."""


@dataclass(frozen=True)
class Line:
    """One instruction of a pattern.

    Attributes:
        name: what the pattern calls it.
        opcode: XLA's name.
        operands: names of other lines or of arguments.
        literal: text of a constant, or number of a parameter.
        dtype: type or placeholder; "" for any.
        dims: numbers or placeholders; None for any.
        attributes: text or placeholder ("$d") by name.
        rest: placeholder for all other attributes, without "$"; "" for none.
    """

    name: str
    opcode: str
    operands: tuple[str, ...] = ()
    literal: str = ""
    dtype: str = ""
    dims: tuple[str, ...] | None = None
    attributes: Mapping[str, str] | None = None
    rest: str = ""

    @property
    def is_argument(self) -> bool:
        """Whether it matches any instruction."""
        return self.opcode == "parameter"


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern.

    Attributes:
        lines: by name; arguments are lines with opcode "parameter".
        roots: names of the values that a match replaces, in order.
        opcodes: of each placeholder for an opcode, without "$".
    """

    lines: Mapping[str, Line]
    roots: tuple[str, ...]
    opcodes: Mapping[str, Sequence[str]]

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in order of their first use."""
        return tuple(name for name, line in self.lines.items() if line.is_argument)

    def opcodes_of(self, name: str) -> Sequence[str]:
        """The opcodes that a line matches."""
        opcode = self.lines[name].opcode
        return self.opcodes[opcode[1:]] if opcode.startswith("$") else (opcode,)

    def below(self, name: str) -> set[str]:
        """Names of a line and of all that it depends on."""
        found: set[str] = set()
        stack = [name]
        while stack:
            top = stack.pop()
            if top not in found:
                found.add(top)
                stack += self.lines[top].operands
        return found


def parse_pattern(
    text: str, opcodes: Mapping[str, Sequence[str]] | None = None
) -> Pattern:
    """Reads a pattern.

    Args:
        text: of the language that this module describes.
        opcodes: of each placeholder for an opcode.

    Raises:
        RuleError: a line is not an instruction; a name is defined twice or after its
            use; there is no root, an unused line, or a root that is an argument.
    """
    lines: dict[str, Line] = {}
    defined: set[str] = set()
    roots: list[str] = []
    texts = [each.strip() for each in text.strip().splitlines()]
    texts = [each for each in texts if each and not each.startswith("//")]
    if len(texts) > MAX_LINES:
        raise RuleError(f"a pattern has {len(texts)} lines; at most {MAX_LINES} fit")
    for each in texts:
        line, is_root = _parse_line(each)
        if line.name in defined or (line.name in lines and not line.is_argument):
            raise RuleError(
                f"pattern line {each!r} defines {line.name!r} a second time or after "
                "its use; give each value one name, operands first"
            )
        defined.add(line.name)
        for operand in line.operands:
            lines.setdefault(operand, Line(operand, "parameter"))
        lines[line.name] = line
        if is_root:
            roots.append(line.name)
    if len(roots) != 1:
        raise RuleError(f"a pattern needs one line with ROOT, got {len(roots)}")
    root = lines[roots[0]]
    if root.opcode == "tuple":
        roots = list(root.operands)
        lines = {name: line for name, line in lines.items() if name != root.name}
    pattern = Pattern(lines, tuple(roots), opcodes or {})
    _check(pattern)
    return pattern


def _check(pattern: Pattern) -> None:
    for line in pattern.lines.values():
        if line.opcode.startswith("$") and line.opcode[1:] not in pattern.opcodes:
            raise RuleError(
                f"the opcode of {line.name!r} is the placeholder {line.opcode!r}; say "
                "which opcodes it stands for: opcodes={'f': ('abs', 'negate')}"
            )
    used: set[str] = set()
    for root in pattern.roots:
        if pattern.lines[root].is_argument:
            raise RuleError(f"the root {root!r} of a pattern is an argument")
        used |= pattern.below(root)
    if len(set(pattern.roots)) < len(pattern.roots):
        raise RuleError("a pattern has one root twice; give each value once")
    if unused := set(pattern.lines) - used:
        raise RuleError(
            f"the root of a pattern does not depend on {sorted(unused)}; remove them"
        )


def _parse_line(text: str) -> tuple[Line, bool]:
    match = _LINE.match(text)
    if match is None:
        raise RuleError(
            f"pattern line {text!r} is not 'NAME = [TYPE[DIMS]] OPCODE(OPERANDS)[, "
            "ATTRIBUTES]'"
        )
    inside = [each.strip() for each in match["operands"].split(",") if each.strip()]
    operands: tuple[str, ...] = ()
    literal = ""
    if match["opcode"] in ("constant", "parameter"):
        literal = match["operands"].strip()
    else:
        for each in inside:
            if not _NAME.match(each):
                raise RuleError(f"pattern line {text!r}: {each!r} is not a name")
        operands = tuple(each.removeprefix("%") for each in inside)
    attributes: dict[str, str] = {}
    rest = ""
    for part in split_parts(", " + match["attributes"]) if match["attributes"] else ():
        key, equals, value = part.partition("=")
        if equals:
            attributes[key.strip()] = normalized(value)
        elif part.startswith("$") and not rest:
            rest = part[1:]
        else:
            raise RuleError(
                f"pattern line {text!r}: {part!r} is neither NAME=VALUE nor the one "
                "$NAME for all other attributes"
            )
    dims = match["dims"]
    line = Line(
        match["name"],
        match["opcode"],
        operands,
        literal,
        match["dtype"] or "",
        None
        if dims is None
        else tuple(each.strip() for each in dims.split(",") if each.strip()),
        attributes,
        rest,
    )
    return line, bool(match["root"])


def is_type(text: str) -> bool:
    """Whether this is a type of XLA, and no placeholder."""
    return bool(_DTYPE.match(text))
