# SPDX-License-Identifier: Apache-2.0
"""Operations as text: opcode, types, shapes and attributes, without names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..hlo.text import Computation, Instruction

_LAYOUT = re.compile(r"\{[^{}]*\}")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_WINDOW_KEY = re.compile(r"(\w+)=")
# Attributes that say nothing about the values.
_IRRELEVANT = ("backend_config=", "metadata=", "origin=", "frontend_attributes=")
_MAX_OPCODES = 6
# Entries of a window, besides its padding, where XLA leaves them out.
_WINDOW = {"size": 1, "stride": 1, "lhs_dilate": 1, "rhs_dilate": 1, "rhs_reversal": 0}


@dataclass(frozen=True)
class ArrayType:
    """An array's element type and dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Product of the dimensions."""
        product = 1
        for size in self.dims:
            product *= size
        return product


@dataclass(frozen=True)
class Operation:
    """One operation with its types.

    Attributes:
        opcode: XLA's name of it.
        shape: of the result, as HLO text without layouts.
        operands: shapes of the operands, likewise.
        attributes: `name=value` texts, in XLA's order.
        called: opcodes of the computations that it calls, each once, sorted; without
            parameters.
    """

    opcode: str
    shape: str
    operands: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    called: tuple[str, ...] = ()

    @property
    def type(self) -> ArrayType:
        """The result's type; the first array of a tuple."""
        return array_type(self.shape)

    def attribute(self, name: str) -> str:
        """The text of one attribute; "" if there is none."""
        start = name + "="
        for each in self.attributes:
            if each.startswith(start):
                return each[len(start) :]
        return ""

    def numbers(self, name: str) -> list[int]:
        """The integers of an attribute such as dimensions={0,1}."""
        return [
            int(each) for each in self.attribute(name).strip("{}").split(",") if each
        ]

    @property
    def window(self) -> dict[str, list[Any]]:
        """One entry for each dimension of the window.

        Returns:
            Numbers under "size", "stride", "lhs_dilate", "rhs_dilate" and
            "rhs_reversal"; pairs, low and high, under "pad".
        """
        parts = {
            name: values.split("x")
            for name, _, values in (
                part.partition("=")
                for part in self.attribute("window").strip("{}").split()
            )
        }
        sizes = parts.get("size", [])
        found: dict[str, list[Any]] = {
            name: [int(each) for each in parts.get(name, len(sizes) * [default])]
            for name, default in _WINDOW.items()
        }
        pads = (each.split("_") for each in parts.get("pad", len(sizes) * ["0_0"]))
        found["pad"] = [(int(low), int(high)) for low, high in pads]
        return found

    def __str__(self) -> str:
        head = f"{self.shape} {self.opcode}({', '.join(self.operands)})"
        return ", ".join((head, *self.attributes))


def array_type(shape: str) -> ArrayType:
    """The type of a shape's text; the first array of a tuple."""
    found = _ARRAY.search(shape)
    if found is None:
        return ArrayType(shape, ())
    dims = tuple(int(size) for size in found[2].split(",") if size)
    return ArrayType(found[1], dims)


def without_layout(shape: str) -> str:
    """A shape's text without layouts."""
    return _LAYOUT.sub("", shape)


def operation_of(
    instruction: Instruction,
    computation: Computation,
    computations: Mapping[str, Computation],
) -> Operation:
    """Describes an instruction of `computation`."""
    operands = tuple(
        without_layout(computation.instructions[index].shape)
        for index in instruction.operands
    )
    text = instruction.attributes if instruction.opcode != "constant" else ""
    called = {
        each.opcode
        for name in instruction.callees
        if name in computations
        for each in computations[name].instructions
    } - {"parameter"}
    return Operation(
        instruction.opcode,
        without_layout(instruction.shape),
        operands,
        tuple(_split_attributes(text)),
        tuple(sorted(called)),
    )


def _split_attributes(text: str) -> list[str]:
    """Splits ", window={size=3x3 pad=1_1}, dim_labels=..." at its outer commas."""
    parts: list[str] = []
    depth = 0
    for piece in text.lstrip("0123456789").strip(", ").split(", "):
        if depth == 0:
            parts.append(piece)
        else:
            parts[-1] += ", " + piece
        depth += piece.count("{") - piece.count("}")
    return [
        each
        for each in parts
        if "=" in each and not each.startswith(_IRRELEVANT) and not each.endswith("=%")
    ]


def rule_of(before: Operation, after: Sequence[Operation], value: str) -> str:
    """What becomes what, without shapes.

    Args:
        before: the original.
        after: the operations that the rewrite adds, operands first.
        value: opcode of what replaces the original.
    """
    if not after:
        return f"{before.opcode} -> an existing {value}"
    if after[-1].opcode == "fusion":
        kinds = Counter(_kind_of(each) for each in after[-1].called)
        return f"{before.opcode} -> fusion of {', '.join(sorted(kinds))}"
    opcodes = Counter(each.opcode for each in after)
    names = [
        f"{count} {name}" if count > 1 else name for name, count in opcodes.items()
    ]
    if len(names) > _MAX_OPCODES:
        names = [*names[: _MAX_OPCODES - 1], "..."]
    rule = f"{before.opcode} -> {', '.join(names)}"
    if len(after) == 1 and after[0].opcode == before.opcode:
        rule += _changed_attributes(before, after[0])
    return rule


def _changed_attributes(before: Operation, after: Operation) -> str:
    changed = []
    for each in after.attributes:
        name, _, value = each.partition("=")
        if value == before.attribute(name):
            continue
        old = set(_WINDOW_KEY.findall(before.attribute(name)))
        new = [key for key in _WINDOW_KEY.findall(value) if key not in old]
        changed.append(f"{name}: {' '.join(new)}" if new else name)
    if not changed:
        is_swapped = after.operands == before.operands[::-1] != before.operands
        return " (operands swapped)" if is_swapped else ""
    return f" ({', '.join(changed)})"


_KINDS = {
    **dict.fromkeys(("dot", "convolution"), "products"),
    **dict.fromkeys(("reduce", "reduce-window"), "reductions"),
    **dict.fromkeys(
        (
            *("exponential", "exponential-minus-one", "log", "log-plus-one", "tanh"),
            *("logistic", "power", "sine", "cosine", "tan", "erf", "sqrt", "rsqrt"),
            *("cbrt", "atan2", "divide", "remainder"),
        ),
        "expensive elementwise",
    ),
    **dict.fromkeys(
        (
            *("broadcast", "bitcast", "reshape", "transpose", "slice", "pad", "copy"),
            *("concatenate", "reverse", "iota", "tuple", "get-tuple-element"),
        ),
        "data movement",
    ),
    **dict.fromkeys(
        ("gather", "scatter", "dynamic-slice", "dynamic-update-slice"), "indexing"
    ),
    "constant": "constants",
}


def _kind_of(opcode: str) -> str:
    return _KINDS.get(opcode, "elementwise")
