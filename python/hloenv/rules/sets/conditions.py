# SPDX-License-Identifier: Apache-2.0
"""Conditions of rules on shapes and attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..matcher import Match
from ..rule import Condition
from ..subject import Value

# Elementwise operations of one operand, the same for every element.
UNARY = (
    *("abs", "cosine", "exponential", "exponential-minus-one", "log", "log-plus-one"),
    *("logistic", "negate", "rsqrt", "sign", "sine", "sqrt", "tanh"),
)
# Elementwise operations of two operands of one type.
BINARY = ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")


def alike(*names: str) -> Condition:
    """These values have one type and shape."""

    def check(match: Match) -> bool:
        first = match[names[0]]
        return all(
            match[name].dims == first.dims and match[name].dtype == first.dtype
            for name in names[1:]
        )

    return check


def same_type(*names: str) -> Condition:
    """These values have one type; the absolute values of complex numbers are floats."""
    return lambda match: len({match[name].dtype for name in names}) == 1


def inexact(name: str) -> Condition:
    """This value has floats or complex numbers.

    XLA's evaluator saturates convolutions of integers at the limits of their type, so
    that they are not linear; the CPU backend's wrap.
    """
    return lambda match: is_inexact(match[name])


def both(*conditions: Condition) -> Condition:
    """All of these; their placeholders together."""

    def check(match: Match) -> bool | dict[str, object]:
        texts: dict[str, object] = {}
        for condition in conditions:
            found = condition(match)
            if isinstance(found, dict):
                texts |= found
            elif not found:
                return False
        return texts or True

    return check


def alike_but(first: Value, second: Value, dimension: int) -> bool:
    """Whether two values differ in the size of this dimension only, if at all."""
    return (
        first.dtype == second.dtype
        and first.rank == second.rank
        and all(
            a == b or d == dimension
            for d, (a, b) in enumerate(zip(first.dims, second.dims, strict=True))
        )
    )


def is_inexact(value: Value) -> bool:
    """Whether an array has floats or complex numbers."""
    return value.dtype.startswith(("f", "bf", "c"))


def is_matrix_product(dot: Value) -> bool:
    """Whether a dot is one of two matrices, rows by contracted, by columns."""
    return (
        all(each.rank == 2 for each in (dot, *dot.operands))
        and dot.ints("lhs_contracting_dims") == (1,)
        and dot.ints("rhs_contracting_dims") == (0,)
    )


def free_dims(value: Value, dot: Value, side: str) -> list[int]:
    """Dimensions of an operand of a dot that are in the result alone."""
    used = {*dot.ints(f"{side}_contracting_dims"), *dot.ints(f"{side}_batch_dims")}
    return [d for d in range(value.rank) if d not in used]


def result_dims(dot: Value) -> tuple[dict[int, int], dict[int, int]]:
    """For each operand of a dot the dimension of the result by its own dimension."""
    left, right = dot.operands
    batch = {d: i for i, d in enumerate(dot.ints("lhs_batch_dims"))}
    right_batch = {d: i for i, d in enumerate(dot.ints("rhs_batch_dims"))}
    left_free, right_free = free_dims(left, dot, "lhs"), free_dims(right, dot, "rhs")
    first = len(batch)
    second = first + len(left_free)
    return (
        batch | {d: first + i for i, d in enumerate(left_free)},
        right_batch | {d: second + i for i, d in enumerate(right_free)},
    )


class ConvDims:
    """Dimension numbers of a convolution, of its `dim_labels`.

    Attributes:
        input: labels of the input, such as "b01f".
        kernel: of the kernel, such as "01io".
        output: of the output.
    """

    def __init__(self, convolution: Value) -> None:
        text = convolution.attributes.get("dim_labels", "")
        match = re.fullmatch(r"(\w+)_(\w+)->(\w+)", text)
        self.input, self.kernel, self.output = match.groups() if match else ("",) * 3

    @property
    def rank(self) -> int:
        """Number of spatial dimensions."""
        return len(self.kernel) - 2


def window(convolution: Value) -> dict[str, list[str]]:
    """The parts of a window: {"size": ["3", "3"], "pad": ["1_1", "1_1"]}."""
    text = convolution.attribute_text
    match = re.search(r"window=\{([^}]*)\}", text)
    parts = match[1].split() if match else []
    return {
        key: value.split("x") for key, _, value in (p.partition("=") for p in parts)
    }


def window_text(parts: dict[str, list[str]]) -> str:
    """`window` as text."""
    return "{" + " ".join(f"{k}={'x'.join(v)}" for k, v in parts.items()) + "}"


def zero_of(value: Value) -> str:
    """The literal of a zero of its type."""
    return "(0, 0)" if value.dtype.startswith("c") else "0"


def ungrouped(convolution: Value) -> bool:
    """Whether each output feature reads all input features, of one batch entry."""
    return not {"feature_group_count", "batch_group_count"} & set(
        convolution.attributes
    )


def broadcast_of(value: Value, dims: Sequence[int]) -> bool:
    """Whether a broadcast puts its operand into these dimensions."""
    return value.ints("dimensions") == tuple(dims)
