# SPDX-License-Identifier: Apache-2.0
"""A module as values, which the patterns of rules are matched against."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from ..hlo.module import HloModule
from ..hlo.text import (
    LEFT_OUT,
    NAME,
    Instruction,
    ModuleText,
    attribute_text,
    computation_blocks,
    parse_text,
    split_parts,
    without_metadata,
)

_ARRAY = re.compile(r"^([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?$")
_ATTRIBUTE = re.compile(r", [a-z_]+=")
# The value of an attribute that names computations.
_CALLED = re.compile(r"[a-z_]+=(%[\w.\-]+|\{\s*%[^}]*\})")
# Computations of these are rewritten; those of fusions and reductions are not.
CONTROL_FLOW = frozenset({"call", "conditional", "while"})


class Value:
    """One instruction of a module.

    Attributes:
        name: unique in the module.
        opcode: XLA's name: "dot".
        dtype: XLA's name of the type of an array: "f32"; "" if it is no array.
        dims: dimensions of an array, in elements.
        shape: as the module prints it.
        is_array: whether it is a static array without control dependencies, and
            without tiles.
        is_plain: whether it is so and row-major, so that a rule may read it.
        operands: in order.
        users: in order, each once.
        number: position among the values of the subject.
        attribute_text: the attributes, as the module prints them.
    """

    __slots__ = (
        "__dict__",
        "_literal",
        "_subject",
        "attribute_text",
        "computation",
        "dims",
        "dtype",
        "index",
        "is_array",
        "is_plain",
        "name",
        "number",
        "opcode",
        "operands",
        "shape",
        "users",
    )

    def __init__(
        self, subject: Subject, computation: str, index: int, name: str, opcode: str
    ) -> None:
        self._subject = subject
        self.computation = computation
        self.index = index
        self.number = 0
        self.name = name
        self.opcode = opcode
        self.shape = self.dtype = self._literal = self.attribute_text = ""
        self.dims: tuple[int, ...] = ()
        self.is_array = self.is_plain = False
        self.operands: tuple[Value, ...] = ()
        self.users: list[Value] = []

    @property
    def literal(self) -> str:
        """Text of a constant, or number of a parameter."""
        if self._literal == LEFT_OUT:
            self._literal = self._subject.literal_of(self)
        return self._literal

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """Attributes by name: `{"dimensions": "{1,0}"}`."""
        return split_attributes(self.attribute_text)

    def ints(self, name: str) -> tuple[int, ...]:
        """The numbers of an attribute such as `dimensions={1,0}`; empty if absent."""
        return tuple(map(int, re.findall(r"-?\d+", self.attributes.get(name, ""))))

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}>"


def split_attributes(text: str) -> dict[str, str]:
    """Attributes by name; `text` as after an instruction's operands."""
    parts = split_parts("," + " " + text) if text else []
    pairs = (part.partition("=") for part in parts)
    return {key.strip(): normalized(value) for key, _, value in pairs}


def normalized(text: str) -> str:
    """An attribute's value with single blanks, and none after commas."""
    return re.sub(r",\s+", ",", " ".join(text.split()))


class Subject:
    """The values of a module that rules may rewrite.

    Attributes:
        values: in order, computation by computation.
        by_opcode: the same, by opcode.
    """

    def __init__(self, module: HloModule) -> None:
        """Reads a module; time is linear in its text, large constants left out."""
        self._module = module
        self._text = without_metadata(module.to_text(all_constants=False))
        self._parsed = parsed = parse_text(self._text)
        self.values: list[Value] = []
        self.by_opcode: dict[str, list[Value]] = {}
        for name in _rewritable(parsed):
            self._add(name, parsed)

    def _add(self, name: str, parsed: ModuleText) -> None:
        values: list[Value] = []
        for index, line in enumerate(parsed.computations[name].instructions):
            value = Value(self, name, index, line.name, line.opcode)
            value.shape = line.shape
            if match := _ARRAY.match(line.shape):
                value.dtype = match[1]
                value.dims = tuple(map(int, match[2].split(","))) if match[2] else ()
                layout = match[3] or ""
                value.is_array = not line.controls and ":" not in layout
                value.is_plain = value.is_array and _is_row_major(layout)
            value.operands = tuple(values[i] for i in line.operands)
            for operand in dict.fromkeys(value.operands):
                operand.users.append(value)
            value._literal, value.attribute_text = _split(line)
            value.number = len(self.values)
            values.append(value)
            self.values.append(value)
            self.by_opcode.setdefault(line.opcode, []).append(value)

    def computation_text(self, name: str) -> str:
        """Text of a computation and of those that it calls, these first.

        Args:
            name: of a computation of the module.
        """
        found, left = {name}, [name]
        while left:
            for line in self._parsed.computations[left.pop()].instructions:
                for each in line.callees:
                    if each in self._parsed.computations and each not in found:
                        found.add(each)
                        left.append(each)
        # The module has callees in front of callers.
        order = [each for each in self._parsed.computations if each in found]
        text = "".join(f"{self._blocks[each]}\n\n" for each in order)
        if f"({LEFT_OUT}" in text:
            blocks = dict(computation_blocks(self._whole))
            text = "".join(f"{blocks[each]}\n\n" for each in order)
        return text

    def literal_of(self, value: Value) -> str:
        """The literal of a constant that is not in the text."""
        computation = self._whole_parsed.computations[value.computation]
        return _split(computation.instructions[value.index])[0]

    def called_in(self, text: str) -> Iterator[str]:
        """Names of computations of the module that the attributes in `text` name.

        Instructions and computations may have the same names.
        """
        for value in _CALLED.findall(text) if "%" in text else ():
            for each in NAME.findall(value):
                if each in self._blocks and each != self._parsed.entry:
                    yield each

    @cached_property
    def _blocks(self) -> dict[str, str]:
        return dict(computation_blocks(self._text))

    @cached_property
    def _whole(self) -> str:
        return without_metadata(self._module.to_text())

    @cached_property
    def _whole_parsed(self) -> ModuleText:
        return parse_text(self._whole)


def _split(line: Instruction) -> tuple[str, str]:
    """Literal and attributes, as the module prints them."""
    text = attribute_text(line)
    start = _ATTRIBUTE.search(text)
    split = start.start() if start else len(text)
    return text[:split], text[split:].removeprefix(",").strip()


def _is_row_major(layout: str) -> bool:
    order = [int(each) for each in layout.split(",") if each]
    return order == sorted(order, reverse=True)


def _rewritable(parsed: ModuleText) -> list[str]:
    """The entry and what control flow calls from it, callees first."""
    found = {parsed.entry}
    # Callees precede their callers.
    for name in reversed(parsed.computations):
        if name in found:
            for each in parsed.computations[name].instructions:
                if each.opcode in CONTROL_FLOW:
                    found.update(c for c in each.callees if c in parsed.computations)
    return [name for name in parsed.computations if name in found]
