# SPDX-License-Identifier: Apache-2.0
"""Values and instructions of random modules, and how to find and bound them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
INTS = ("s32", "s32", "u32", "s64", "s8", "u8")
MAX_ELEMENTS = 256
MAX_MAGNITUDE = 50.0
SIGNED = ("s8", "s32", "s64")


@dataclass(frozen=True)
class ArrayType:
    """An element type and dimensions."""

    dtype: str
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    @property
    def is_float(self) -> bool:
        """Whether rounding happens to it."""
        return self.dtype in FLOATS

    @property
    def is_int(self) -> bool:
        """Whether it holds integers; pred does not count."""
        return self.dtype in INTS

    def with_dims(self, dims: tuple[int, ...]) -> ArrayType:
        """The same element type with other dimensions."""
        return ArrayType(self.dtype, dims)


@dataclass(frozen=True)
class Value:
    """An array in a computation.

    `magnitude` bounds floats; `is_exact` says that no rounding has touched it.
    """

    name: str
    type: ArrayType
    magnitude: float = 1.0
    is_exact: bool = True


@dataclass
class Computation:
    """A computation that is being written: its lines, and what they define."""

    name: str
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)


def braces(values: Iterable[object]) -> str:
    """A list as HLO's attributes have it."""
    return "{" + ",".join(map(str, values)) + "}"


class Builder:
    """What every step of a generator needs.

    Attributes:
        rng: all of the randomness.
        size: about how many steps build the entry.
        texts: finished computations.
        shared: names of reducers, by what they do.
        depth: how many computations are being built in each other.
        max_elements: of an array.
    """

    max_elements = MAX_ELEMENTS

    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng = rng
        self.size = size
        self.next_name = 0
        self.texts: list[str] = []  # of finished computations
        self.shared: dict[str, str] = {}  # helpers by what they do
        self.depth = 0

    def _name(self, stem: str) -> str:
        self.next_name += 1
        return f"{stem.replace('-', '_')}.{self.next_name}"

    def _emit(
        self,
        c: Computation,
        type_: ArrayType,
        opcode: str,
        operands: list[Value],
        attributes: str = "",
        *,
        magnitude: float | None = None,
        is_exact: bool | None = None,
    ) -> Value:
        """Adds an instruction; by default as large and exact as its operands."""
        name = self._name(opcode)
        names = ", ".join(operand.name for operand in operands)
        suffix = f", {attributes}" if attributes else ""
        c.lines.append(f"  {name} = {type_} {opcode}({names}){suffix}")
        if magnitude is None:
            magnitude = max((o.magnitude for o in operands), default=1.0)
        if is_exact is None:
            is_exact = all(operand.is_exact for operand in operands)
        value = Value(name, type_, magnitude, is_exact)
        c.values.append(value)
        return value

    def _parameter(self, c: Computation, number: int, type_: ArrayType) -> Value:
        name = self._name("p")
        c.lines.append(f"  {name} = {type_} parameter({number})")
        value = Value(name, type_, 4.0)
        c.values.append(value)
        return value

    def _finish(self, c: Computation, root: str) -> str:
        body = "\n".join([*c.lines, root])
        self.texts.append(f"{c.name} {{\n{body}\n}}\n")
        return c.name

    def _type(self, dtype: str | None = None) -> ArrayType:
        rng = self.rng
        if dtype is None:
            dtype = rng.choice(FLOATS if rng.random() < 0.7 else INTS)
        rank = rng.choices(range(6), weights=[2, 5, 5, 3, 1, 1])[0]
        while True:
            largest = {0: 1, 1: 16, 2: 8, 3: 4}.get(rank, 3)
            dims = tuple(rng.randint(1, largest) for _ in range(rank))
            if rank and rng.random() < 0.02:
                dims = (0, *dims[1:])
            if math.prod(dims) <= self.max_elements:
                return ArrayType(dtype, dims)

    def _literal(self, dtype: str) -> str:
        rng = self.rng
        if dtype == "pred":
            return rng.choice(["true", "false"])
        if dtype in FLOATS:
            return rng.choice(["0", "1", "2", "-1", "0.5", "0.25", "-3", "4"])
        return rng.choice(["0", "1", "2", "3", "5"] + ["-1"] * (dtype in SIGNED))

    def _constant(
        self, c: Computation, type_: ArrayType, literal: str | None = None
    ) -> Value:
        """A broadcast scalar constant of `type_`, or a plain one."""
        text = literal or self._literal(type_.dtype)
        name = self._name("constant")
        c.lines.append(f"  {name} = {type_.dtype}[] constant({text})")
        scalar = Value(name, ArrayType(type_.dtype, ()), 4.0)
        c.values.append(scalar)
        if not type_.dims:
            return scalar
        return self._emit(c, type_, "broadcast", [scalar], "dimensions={}")

    def _pick(
        self, c: Computation, test: Callable[[Value], bool] | None = None
    ) -> Value | None:
        values = [v for v in c.values if test is None or test(v)]
        if not values:
            return None
        # Late values more often, so that chains grow.
        return values[int(len(values) * math.sqrt(self.rng.random()))]

    def _like(self, c: Computation, value: Value) -> Value:
        """Another value of the same type, made from one of any shape if need be."""
        other = self._pick(c, lambda v: v.type == value.type)
        if other is not None and (other is not value or self.rng.random() < 0.3):
            return other
        if self.rng.random() < 0.5:
            scalar = self._pick(
                c,
                lambda v: v.type == ArrayType(value.type.dtype, ()) and not v.type.dims,
            )
            if scalar is not None and value.type.dims:
                return self._emit(c, value.type, "broadcast", [scalar], "dimensions={}")
        return self._constant(c, value.type)

    def _bounded(self, c: Computation, value: Value) -> Value:
        """The value, or its tanh where it could be large."""
        if not value.type.is_float or value.magnitude <= MAX_MAGNITUDE:
            return value
        return self._emit(c, value.type, "tanh", [value], magnitude=1, is_exact=False)
