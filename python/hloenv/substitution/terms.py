# SPDX-License-Identifier: Apache-2.0
"""HLO as terms of an e-graph, and e-graphs as nodes with shapes and costs.

A term keeps what its operation needs besides its operands as text: the attributes, and
the shape of a broadcast. Instructions that no rule knows are opaque: they keep their
place in the module, and their operands are substituted like all others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..cost.roofline import Rates
from ..rules.sets.conditions import BINARY, UNARY, is_inexact
from ..rules.subject import Value

DECLARATIONS = """
(datatype* (T
  (Opaque i64 Args)
  (Unary String T)
  (Binary String T T)
  (Dot T T String String String)
  (Conv T T String)
  (Concat T T String)
  (Transpose T String)
  (Broadcast T String String))
 (Args (Nil) (Cons T Args)))
(function shape (T) String :merge old)
(function place (i64) T :no-merge)
(relation matrix (T))
"""


def quoted(text: str) -> str:
    """A string of egglog."""
    return json.dumps(text)


def term_of(value: Value, name_of: Mapping[Value, str]) -> str:
    """The term of an instruction, whose operands have these names."""
    operands = [name_of[each] for each in value.operands]
    known = _known_term(value, operands)
    if known is not None:
        return known
    arguments = "(Nil)"
    for operand in reversed(operands):
        arguments = f"(Cons {operand} {arguments})"
    return f"(Opaque {value.number} {arguments})"


def _known_term(value: Value, operands: list[str]) -> str | None:
    # Terms have no type of their own: each has that of its operands, which products of
    # bf16 in f32 and the absolute values of complex numbers lack.
    if not value.is_plain or not all(
        each.is_plain and each.dtype == value.dtype for each in value.operands
    ):
        return None
    names = set(value.attributes)
    dims = value.attributes.get("dimensions", "")
    if value.opcode in UNARY and not names:
        return f"(Unary {quoted(value.opcode)} {operands[0]})"
    if value.opcode in BINARY and not names:
        return f"(Binary {quoted(value.opcode)} {operands[0]} {operands[1]})"
    if value.opcode == "dot":
        left = value.attributes.get("lhs_contracting_dims", "")
        right = value.attributes.get("rhs_contracting_dims", "")
        rest = ", ".join(
            f"{key}={text}"
            for key, text in value.attributes.items()
            if key not in ("lhs_contracting_dims", "rhs_contracting_dims")
        )
        texts = " ".join(map(quoted, (left, right, rest)))
        return f"(Dot {operands[0]} {operands[1]} {texts})"
    if value.opcode == "convolution" and is_inexact(value):
        text = ", ".join(f"{key}={text}" for key, text in value.attributes.items())
        return f"(Conv {operands[0]} {operands[1]} {quoted(text)})"
    if names != {"dimensions"}:
        return None
    if value.opcode == "concatenate" and len(operands) > 1:
        joined = operands[0]
        for operand in operands[1:]:
            joined = f"(Concat {joined} {operand} {quoted(dims)})"
        return joined
    if value.opcode == "transpose":
        return f"(Transpose {operands[0]} {quoted(dims)})"
    if value.opcode == "broadcast":
        return f"(Broadcast {operands[0]} {quoted(dims)} {quoted(shape_text(value))})"
    return None


def shape_text(value: Value) -> str:
    """A shape without its layout."""
    return f"{value.dtype}[{','.join(map(str, value.dims))}]"


@dataclass(frozen=True)
class Shape:
    """Type and dimensions of an array."""

    dtype: str
    dims: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Reads "f32[2,3]"."""
        dtype, _, dims = text.rstrip("]").partition("[")
        return cls(dtype, tuple(int(each) for each in dims.split(",") if each))

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for each in self.dims:
            size *= each
        return size

    @property
    def num_bytes(self) -> int:
        """Bytes, with a byte for each element of a type without a number."""
        bits = re.match(r"[a-z]+(\d+)", self.dtype)  # of f8e4m3fn, 8
        return self.size * max(int(bits[1]) // 8 if bits else 1, 1)


@dataclass(frozen=True)
class Node:
    """One e-node.

    Attributes:
        op: name of the constructor.
        children: the e-classes of its operands.
        texts: its text arguments, or the number of an opaque instruction.
    """

    op: str
    children: tuple[str, ...]
    texts: tuple[str, ...]


def ints(text: str) -> tuple[int, ...]:
    """The numbers of "{1,0}"."""
    return tuple(int(each) for each in text.strip("{}").split(",") if each)


def shape_of(node: Node, shapes: list[Shape]) -> Shape | None:
    """The shape of a node whose children have these.

    None where it is not known, or the children lack a dimension that the node names.
    """
    try:
        return _shape_of(node, shapes) if shapes else None
    except IndexError:
        return None


def _shape_of(node: Node, shapes: list[Shape]) -> Shape | None:
    first = shapes[0]
    if node.op in ("Unary", "Binary"):
        return first
    if node.op == "Broadcast":
        return Shape.parse(node.texts[1])
    if node.op == "Transpose":
        return Shape(first.dtype, tuple(first.dims[d] for d in ints(node.texts[0])))
    if node.op == "Concat":
        (along,) = ints(node.texts[0])
        dims = list(first.dims)
        dims[along] += shapes[1].dims[along]
        return Shape(first.dtype, tuple(dims))
    if node.op == "Dot" and not node.texts[2]:
        left, right = ints(node.texts[0]), ints(node.texts[1])
        if [first.dims[d] for d in left] != [shapes[1].dims[d] for d in right]:
            return None
        dims = [each for d, each in enumerate(first.dims) if d not in left]
        dims += [each for d, each in enumerate(shapes[1].dims) if d not in right]
        return Shape(first.dtype, tuple(dims))
    return None


def seconds_of(node: Node, out: Shape, shapes: Iterable[Shape], rates: Rates) -> float:
    """Roofline time of a node; opaque instructions cost nothing, as they all stay."""
    if node.op == "Opaque":
        return 0.0
    operands = list(shapes)
    flops, rate = 0.0, rates.flops_per_s
    if node.op == "Dot":
        contracted = 1
        for d in ints(node.texts[0]):
            contracted *= operands[0].dims[d]
        flops, rate = 2.0 * out.size * contracted, rates.dot_flops_per_s
    elif node.op == "Conv":
        # Each element of the output is a sum over a slice of the kernel, whose size is
        # that of the kernel by its output features.
        labels = node.texts[0].partition("dim_labels=")[2].partition("->")[0]
        kernel = labels.partition("_")[2]
        features = operands[1].dims[kernel.index("o")] if "o" in kernel else 1
        flops = 2.0 * out.size * operands[1].size / max(features, 1)
        rate = rates.convolution_flops_per_s
    elif node.op in ("Unary", "Binary"):
        flops = float(out.size)
    moved = out.num_bytes + sum(each.num_bytes for each in operands)
    cached = min(moved, rates.cache_bytes)
    traffic = cached / rates.cache_bytes_per_s
    traffic += (moved - cached) / rates.memory_bytes_per_s
    return max(flops / rate, traffic) + rates.s_per_kernel
