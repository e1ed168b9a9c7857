# SPDX-License-Identifier: Apache-2.0
"""Transposes commute with elementwise operations, concatenations and dots."""

from __future__ import annotations

from ..matcher import Match
from ..rule import Condition, Rule
from .conditions import BINARY, UNARY, is_matrix_product
from .pairs import both_ways

_UNARY = {"f": UNARY}
_BINARY = {"f": BINARY}


def _after_transpose(match: Match) -> dict[str, object]:
    (dimension,) = match.ints("own")
    return {"result": (match.ints("p").index(dimension),)}


def _before_transpose(match: Match) -> dict[str, object]:
    (dimension,) = match.ints("result")
    return {"own": (match.ints("p")[dimension],)}


def _is_product(name: str) -> Condition:
    return lambda match: is_matrix_product(match[name])


def _flipped(side: str, operand: str) -> Condition:
    """The contracted dimension of the matrix before its transpose."""

    def check(match: Match) -> bool | dict[str, object]:
        dot = match["r"]
        contracted = dot.ints(f"{side}_contracting_dims")
        if match[operand].rank != 2 or len(contracted) != 1 or dot.rank != 2:
            return False
        return {"flipped": (1 - contracted[0],)}

    return check


def _unflipped(side: str, operand: str, wanted: int) -> Condition:
    """A contraction that is not the one of a plain product becomes so."""
    flipped = _flipped(side, operand)

    def check(match: Match) -> bool:
        contracted = match["r"].ints(f"{side}_contracting_dims")
        return contracted == (1 - wanted,) and bool(flipped(match))

    return check


RULES = (
    *both_ways(
        ("transpose-of-unary", "unary-of-transpose"),
        """
            fa = $f(a), $rest
            ROOT r = transpose(fa), $p
        """,
        """
            t = transpose(a), $p
            ROOT r = $f(t), $rest
        """,
        opcodes=_UNARY,
        numerics="exact",
        docs=(
            "Rewrites the transpose of f(a) as f of a transpose.",
            "Rewrites f of a transpose as the transpose of f(a).",
        ),
    ),
    *both_ways(
        ("transpose-of-binary", "binary-of-transposes"),
        """
            fab = $f(a, b)
            ROOT r = transpose(fab), $p
        """,
        """
            ta = transpose(a), $p
            tb = transpose(b), $p
            ROOT r = $f(ta, tb)
        """,
        opcodes=_BINARY,
        numerics="exact",
        docs=(
            "Rewrites the transpose of f(a, b) as f of two transposes.",
            "Rewrites f of two transposes as the transpose of f(a, b).",
        ),
    ),
    *both_ways(
        ("transpose-of-concat", "concat-of-transposes"),
        """
            ab = concatenate(a, b), dimensions=$own
            ROOT r = transpose(ab), dimensions=$p
        """,
        """
            ta = transpose(a), dimensions=$p
            tb = transpose(b), dimensions=$p
            ROOT r = concatenate(ta, tb), dimensions=$result
        """,
        where=(_after_transpose, _before_transpose),
        numerics="exact",
        docs=(
            "Rewrites the transpose of a concatenation as one of transposes.",
            "Rewrites a concatenation of transposes as the transpose of one.",
        ),
    ),
    Rule(
        "transpose-of-dot",
        before="""
            ab = dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            ROOT r = transpose(ab), dimensions={1,0}
        """,
        after="""
            ROOT r = dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}
        """,
        where=_is_product("ab"),
        doc="Rewrites the transpose of a b as a product with exchanged operands.",
    ),
    Rule(
        "exchange-dot",
        before="""
            ROOT r = dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        """,
        after="""
            ba = dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}
            ROOT r = transpose(ba), dimensions={1,0}
        """,
        where=_is_product("r"),
        doc="Rewrites a b as the transpose of a product with exchanged operands.",
    ),
    Rule(
        "dot-of-transpose-left",
        before="""
            t = transpose(a), dimensions={1,0}
            ROOT r = dot(t, b), lhs_contracting_dims=$c, rhs_contracting_dims=$d
        """,
        after="""
            ROOT r = dot(a, b), lhs_contracting_dims=$flipped, rhs_contracting_dims=$d
        """,
        where=_flipped("lhs", "a"),
        doc="Contracts the other dimension in place of a transpose on the left.",
    ),
    Rule(
        "dot-of-transpose-right",
        before="""
            t = transpose(b), dimensions={1,0}
            ROOT r = dot(a, t), lhs_contracting_dims=$c, rhs_contracting_dims=$d
        """,
        after="""
            ROOT r = dot(a, b), lhs_contracting_dims=$c, rhs_contracting_dims=$flipped
        """,
        where=_flipped("rhs", "b"),
        doc="Contracts the other dimension in place of a transpose on the right.",
    ),
    Rule(
        "transpose-dot-left",
        before="""
            ROOT r = dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims=$d
        """,
        after="""
            t = transpose(a), dimensions={1,0}
            ROOT r = dot(t, b), lhs_contracting_dims={1}, rhs_contracting_dims=$d
        """,
        where=_unflipped("lhs", "a", 1),
        doc="Transposes the left operand so that its columns are contracted.",
    ),
    Rule(
        "transpose-dot-right",
        before="""
            ROOT r = dot(a, b), lhs_contracting_dims=$c, rhs_contracting_dims={1}
        """,
        after="""
            t = transpose(b), dimensions={1,0}
            ROOT r = dot(a, t), lhs_contracting_dims=$c, rhs_contracting_dims={0}
        """,
        where=_unflipped("rhs", "b", 0),
        doc="Transposes the right operand so that its rows are contracted.",
    ),
)
