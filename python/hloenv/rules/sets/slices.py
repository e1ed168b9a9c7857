# SPDX-License-Identifier: Apache-2.0
"""Slices commute with elementwise operations, transposes, dots and convolutions."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from ..matcher import Match
from ..rule import Condition, Rule
from ..subject import Value
from .conditions import BINARY, UNARY, ConvDims, result_dims, ungrouped
from .pairs import both_ways

_UNARY = {"f": UNARY}
_BINARY = {"f": BINARY}

# Start, end and stride along one dimension.
_Range = tuple[int, int, int]


def _ranges(slice_: Value) -> list[_Range]:
    """What a slice keeps of each dimension of its operand."""
    found = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", slice_.attributes["slice"])
    return [(int(start), int(end), int(stride or 1)) for start, end, stride in found]


def _slice(name: str, ranges: Sequence[_Range], dtype: str) -> dict[str, object]:
    """Placeholders of a slice: its ranges, and its shape, which XLA does not infer."""
    sizes = [-(-(end - start) // stride) for start, end, stride in ranges]
    text = ", ".join(f"[{start}:{end}:{stride}]" for start, end, stride in ranges)
    return {name: f"{{{text}}}", "sliced": f"{dtype}[{','.join(map(str, sizes))}]"}


def _moved(
    ranges: Sequence[_Range], of: Value, to: Value, dims: Mapping[int, int]
) -> list[_Range] | None:
    """Ranges of `to` whose dimension d is taken as dimension `dims[d]` of `of` is.

    None if the ranges of `of` leave out something of another dimension.
    """
    others = set(range(of.rank)) - set(dims.values())
    if any(ranges[d] != (0, of.dims[d], 1) for d in others):
        return None
    full = ((0, size, 1) for size in to.dims)
    return [ranges[dims[d]] if d in dims else each for d, each in enumerate(full)]


def _to_operand(side: int) -> Condition:
    """The slice of a product's operand that gives this slice of the product."""

    def check(match: Match) -> bool | dict[str, object]:
        product, operand = match["p"], match["p"].operands[side]
        ranges = _ranges(match["r"])
        moved = _moved(ranges, product, operand, _own_dims(product, side))
        return moved is not None and _slice("own", moved, operand.dtype)

    return check


def _to_result(side: int) -> Condition:
    """The slice of a product that a slice of its operand gives."""

    def check(match: Match) -> bool | dict[str, object]:
        product, operand = match["r"], match["a"]
        dims = {result: own for own, result in _own_dims(product, side).items()}
        moved = _moved(_ranges(match["s"]), operand, product, dims)
        return moved is not None and _slice("part", moved, product.dtype)

    return check


def _own_dims(product: Value, side: int) -> dict[int, int]:
    """Dimensions that an operand alone gives to a product, by those of the operand."""
    if product.opcode == "dot":
        name = "lhs_batch_dims" if side == 0 else "rhs_batch_dims"
        batch = product.ints(name)
        mapping = result_dims(product)[side]
        return {own: result for own, result in mapping.items() if own not in batch}
    dims = ConvDims(product)
    if not ungrouped(product):
        return {}
    if side == 0:
        return {dims.input.find("b"): dims.output.find("b")}
    return {dims.kernel.find("o"): dims.output.find("f")}


def _of_argument(match: Match) -> dict[str, object]:
    return _slice("part", _ranges(match["r"]), match["a"].dtype)


def _of_result(match: Match) -> dict[str, object]:
    return _slice("part", _ranges(match["s"]), match["r"].dtype)


def _before_transpose(match: Match) -> dict[str, object]:
    ranges, order = _ranges(match["r"]), match.ints("order")
    own = [ranges[order.index(d)] for d in range(len(order))]
    return _slice("own", own, match["a"].dtype)


def _after_transpose(match: Match) -> dict[str, object]:
    ranges = _ranges(match["s"])
    return _slice("part", [ranges[d] for d in match.ints("order")], match["a"].dtype)


def _in_part(side: int) -> Condition:
    """The slice lies in one part of a concatenation."""

    def check(match: Match) -> bool | dict[str, object]:
        (dimension,) = match.ints("dimensions")
        ranges = _ranges(match["r"])
        start, end, stride = ranges[dimension]
        border = match["a"].dims[dimension]
        if (end > border) if side == 0 else (start < border):
            return False
        first = 0 if side == 0 else border
        ranges[dimension] = (start - first, end - first, stride)
        return _slice("own", ranges, match["r"].dtype)

    return check


def _adjacent(match: Match) -> bool | dict[str, object]:
    """Two slices, one beginning where the other ends, are one."""
    (dimension,) = match.ints("dimensions")
    first, second = _ranges(match["s"]), _ranges(match["t"])
    start, end, stride = first[dimension]
    following, last, other = second[dimension]
    first[dimension] = second[dimension] = (start, last, 1)
    if first != second or (end, stride, other) != (following, 1, 1):
        return False
    return _slice("whole", first, match["r"].dtype)


def _shaped(text: str) -> str:
    """A result, whose slice has the shape that a condition gives."""
    return text.replace("= slice(", "= $sliced slice(")


_both_ways = functools.partial(both_ways, as_result=_shaped)


def _pair(
    opcode: str, side: int, names: tuple[str, str], what: str
) -> tuple[Rule, Rule]:
    """A slice of a product is a product of a slice of an operand."""
    operands = ("s", "b") if side == 0 else ("b", "s")
    whole = ("a", "b") if side == 0 else ("b", "a")
    return _both_ways(
        names,
        f"""
            p = {opcode}({", ".join(whole)}), $rest
            ROOT r = slice(p), slice=$part
        """,
        f"""
            s = slice(a), slice=$own
            ROOT r = {opcode}({", ".join(operands)}), $rest
        """,
        where=(_to_operand(side), _to_result(side)),
        docs=(
            f"Rewrites a slice of a {opcode} along {what} as one of a slice.",
            f"Rewrites a {opcode} of a slice along {what} as a slice of a whole one.",
        ),
    )


RULES = (
    *_both_ways(
        ("slice-of-unary", "unary-of-slice"),
        """
            fa = $f(a), $rest
            ROOT r = slice(fa), slice=$part
        """,
        """
            s = slice(a), slice=$part
            ROOT r = $f(s), $rest
        """,
        where=(_of_argument, _of_result),
        opcodes=_UNARY,
        numerics="exact",
        docs=(
            "Rewrites a slice of f(a) as f of a slice.",
            "Rewrites f of a slice as a slice of f(a).",
        ),
    ),
    *_both_ways(
        ("slice-of-binary", "binary-of-slices"),
        """
            fab = $f(a, b)
            ROOT r = slice(fab), slice=$part
        """,
        """
            s = slice(a), slice=$part
            t = slice(b), slice=$part
            ROOT r = $f(s, t)
        """,
        where=(_of_argument, _of_result),
        opcodes=_BINARY,
        numerics="exact",
        docs=(
            "Rewrites a slice of f(a, b) as f of two slices.",
            "Rewrites f of two equal slices as a slice of f(a, b).",
        ),
    ),
    *_both_ways(
        ("slice-of-transpose", "transpose-of-slice"),
        """
            t = transpose(a), dimensions=$order
            ROOT r = slice(t), slice=$part
        """,
        """
            s = slice(a), slice=$own
            ROOT r = transpose(s), dimensions=$order
        """,
        where=(_before_transpose, _after_transpose),
        numerics="exact",
        docs=(
            "Rewrites a slice of a transpose as the transpose of a slice.",
            "Rewrites the transpose of a slice as a slice of a transpose.",
        ),
    ),
    *(
        Rule(
            name,
            before="""
                ab = concatenate(a, b), dimensions=$dimensions
                ROOT r = slice(ab), slice=$part
            """,
            after=f"ROOT r = $sliced slice({operand}), slice=$own",
            where=_in_part(side),
            numerics="exact",
            doc=f"Rewrites a slice of [a b] that lies in {operand} as one of it.",
        )
        for side, (name, operand) in enumerate(
            [("slice-of-concat-left", "a"), ("slice-of-concat-right", "b")]
        )
    ),
    Rule(
        "join-slices",
        before="""
            s = slice(a), slice=$first
            t = slice(a), slice=$second
            ROOT r = concatenate(s, t), dimensions=$dimensions
        """,
        after="ROOT r = $sliced slice(a), slice=$whole",
        where=_adjacent,
        numerics="exact",
        doc="Rewrites a concatenation of adjacent slices as one slice.",
    ),
    *_pair("dot", 0, ("slice-of-dot-left", "dot-of-slice-left"), "rows"),
    *_pair("dot", 1, ("slice-of-dot-right", "dot-of-slice-right"), "columns"),
    *_pair(
        "convolution",
        0,
        ("slice-of-convolution-batch", "convolution-of-slice-batch"),
        "the batch",
    ),
    *_pair(
        "convolution",
        1,
        ("slice-of-convolution-features", "convolution-of-slice-features"),
        "the output features",
    ),
)
