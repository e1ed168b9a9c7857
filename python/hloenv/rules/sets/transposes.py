# SPDX-License-Identifier: Apache-2.0
"""Transposes commute with elementwise operations, concatenations and dots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..matcher import Match
from ..rule import Condition, Rule
from .conditions import BINARY, UNARY, is_matrix_product

_UNARY = {"f": UNARY}
_BINARY = {"f": BINARY}


def _after_transpose(match: Match) -> dict[str, object]:
    (dimension,) = match.ints("dimension")
    return {"other": (match.ints("p").index(dimension),)}


def _before_transpose(match: Match) -> dict[str, object]:
    (dimension,) = match.ints("dimension")
    return {"other": (match.ints("p")[dimension],)}


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
    check = _flipped(side, operand)

    def both(match: Match) -> bool | Mapping[str, Any]:
        contracted = match["r"].ints(f"{side}_contracting_dims")
        return check(match) if contracted == (1 - wanted,) else False

    return both


RULES = (
    Rule(
        "transpose-of-unary",
        before="""
            fa = $f(a), $rest
            ROOT r = transpose(fa), $p
        """,
        after="""
            t = transpose(a), $p
            ROOT r = $f(t), $rest
        """,
        opcodes=_UNARY,
        numerics="exact",
        doc="Rewrites the transpose of f(a) as f of a transpose.",
    ),
    Rule(
        "unary-of-transpose",
        before="""
            t = transpose(a), $p
            ROOT r = $f(t), $rest
        """,
        after="""
            fa = $f(a), $rest
            ROOT r = transpose(fa), $p
        """,
        opcodes=_UNARY,
        numerics="exact",
        doc="Rewrites f of a transpose as the transpose of f(a).",
    ),
    Rule(
        "transpose-of-binary",
        before="""
            fab = $f(a, b)
            ROOT r = transpose(fab), $p
        """,
        after="""
            ta = transpose(a), $p
            tb = transpose(b), $p
            ROOT r = $f(ta, tb)
        """,
        opcodes=_BINARY,
        numerics="exact",
        doc="Rewrites the transpose of f(a, b) as f of two transposes.",
    ),
    Rule(
        "binary-of-transposes",
        before="""
            ta = transpose(a), $p
            tb = transpose(b), $p
            ROOT r = $f(ta, tb)
        """,
        after="""
            fab = $f(a, b)
            ROOT r = transpose(fab), $p
        """,
        opcodes=_BINARY,
        numerics="exact",
        doc="Rewrites f of two transposes as the transpose of f(a, b).",
    ),
    Rule(
        "transpose-of-concat",
        before="""
            ab = concatenate(a, b), dimensions=$dimension
            ROOT r = transpose(ab), dimensions=$p
        """,
        after="""
            ta = transpose(a), dimensions=$p
            tb = transpose(b), dimensions=$p
            ROOT r = concatenate(ta, tb), dimensions=$other
        """,
        where=_after_transpose,
        numerics="exact",
        doc="Rewrites the transpose of a concatenation as one of transposes.",
    ),
    Rule(
        "concat-of-transposes",
        before="""
            ta = transpose(a), dimensions=$p
            tb = transpose(b), dimensions=$p
            ROOT r = concatenate(ta, tb), dimensions=$dimension
        """,
        after="""
            ab = concatenate(a, b), dimensions=$other
            ROOT r = transpose(ab), dimensions=$p
        """,
        where=_before_transpose,
        numerics="exact",
        doc="Rewrites a concatenation of transposes as the transpose of one.",
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
