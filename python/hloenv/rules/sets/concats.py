# SPDX-License-Identifier: Apache-2.0
"""Concatenations commute with elementwise operations, dots and each other."""

from __future__ import annotations

from ..matcher import Match
from ..rule import Condition, Rule
from .conditions import (
    BINARY,
    UNARY,
    alike,
    alike_but,
    broadcast_of,
    result_dims,
    same_type,
)
from .pairs import both_ways

_UNARY = {"f": UNARY}
_BINARY = {"f": BINARY}


def _parts_alike(match: Match) -> bool:
    """Both concatenations have equal parts."""
    return alike("a", "c")(match) is True and alike("b", "d")(match) is True


def _scalars(*broadcasts: str) -> Condition:
    def check(match: Match) -> bool:
        return match["s"].dims == () and all(
            broadcast_of(match[name], ()) for name in broadcasts
        )

    return check


def _same_output(side: int) -> Condition:
    """Products of one dimension number that can be concatenated as operands."""

    def check(match: Match) -> bool | dict[str, object]:
        inverse = {v: k for k, v in result_dims(match["p"])[side].items()}
        (dimension,) = match.ints("result")
        batch = match["p"].ints("lhs_batch_dims" if side == 0 else "rhs_batch_dims")
        own = inverse.get(dimension)
        names = ("a", "c") if side == 0 else ("b", "c")
        if own is None or own in batch:
            return False
        if not alike_but(match[names[0]], match[names[1]], own):
            return False
        return {"own": (own,)}

    return check


def _operand_dim(side: int) -> Condition:
    """The concatenated dimension of an operand is in the result alone."""

    def check(match: Match) -> bool | dict[str, object]:
        dot = match["r"]
        (dimension,) = match.ints("own")
        batch = dot.ints("lhs_batch_dims" if side == 0 else "rhs_batch_dims")
        mapping = result_dims(dot)[side]
        if dimension not in mapping or dimension in batch:
            return False
        return {"result": (mapping[dimension],)}

    return check


def _different_dims(match: Match) -> bool:
    """A grid of four parts, concatenated along two dimensions."""
    inner, outer = match.ints("inner")[0], match.ints("outer")[0]
    if inner == outer:
        return False
    return alike_but(match["a"], match["c"], outer) and alike_but(
        match["b"], match["d"], outer
    )


RULES = (
    *both_ways(
        ("concat-of-unary", "unary-of-concat"),
        """
            fa = $f(a), $rest
            fb = $f(b), $rest
            ROOT r = concatenate(fa, fb), $dims
        """,
        """
            ab = concatenate(a, b), $dims
            ROOT r = $f(ab), $rest
        """,
        where=(same_type("a", "b"), None),
        opcodes=_UNARY,
        numerics="exact",
        docs=(
            "Rewrites a concatenation of f(a) and f(b) as f of a concatenation.",
            "Rewrites f of a concatenation as a concatenation of f(a) and f(b).",
        ),
    ),
    *both_ways(
        ("concat-of-binary", "binary-of-concat"),
        """
            ac = $f(a, c)
            bd = $f(b, d)
            ROOT r = concatenate(ac, bd), $dims
        """,
        """
            ab = concatenate(a, b), $dims
            cd = concatenate(c, d), $dims
            ROOT r = $f(ab, cd)
        """,
        where=(None, _parts_alike),
        opcodes=_BINARY,
        numerics="exact",
        docs=(
            "Rewrites a concatenation of f(a, c) and f(b, d) as f of concatenations.",
            "Rewrites f of two concatenations with equal parts as a concatenation.",
        ),
    ),
    Rule(
        "concat-of-scalar-binary",
        before="""
            t = broadcast(s), $d
            fa = $f(a, t)
            u = broadcast(s), $d
            fb = $f(b, u)
            ROOT r = concatenate(fa, fb), $dims
        """,
        after="""
            ab = concatenate(a, b), $dims
            v = $r.shape broadcast(s), $d
            ROOT r = $f(ab, v)
        """,
        where=_scalars("t", "u"),
        opcodes=_BINARY,
        numerics="exact",
        doc="Rewrites a concatenation of f(a, s) and f(b, s), where s is a scalar, as "
        "in relu and scaling.",
    ),
    Rule(
        "scalar-binary-of-concat",
        before="""
            ab = concatenate(a, b), $dims
            v = broadcast(s), $d
            ROOT r = $f(ab, v)
        """,
        after="""
            t = $a.shape broadcast(s), $d
            fa = $f(a, t)
            u = $b.shape broadcast(s), $d
            fb = $f(b, u)
            ROOT r = concatenate(fa, fb), $dims
        """,
        where=_scalars("v"),
        opcodes=_BINARY,
        numerics="exact",
        doc="Rewrites f(x, s) of a concatenation x and a scalar s, as in relu and "
        "scaling.",
    ),
    *both_ways(
        ("flatten-concat-left", "nest-concat-left"),
        """
            ab = concatenate(a, b), $dims
            ROOT r = concatenate(ab, c), $dims
        """,
        "ROOT r = concatenate(a, b, c), $dims",
        numerics="exact",
        docs=(
            "Rewrites [[a b] c] as [a b c].",
            "Rewrites [a b c] as [[a b] c].",
        ),
    ),
    *both_ways(
        ("flatten-concat-right", "nest-concat-right"),
        """
            bc = concatenate(b, c), $dims
            ROOT r = concatenate(a, bc), $dims
        """,
        "ROOT r = concatenate(a, b, c), $dims",
        numerics="exact",
        docs=(
            "Rewrites [a [b c]] as [a b c].",
            "Rewrites [a b c] as [a [b c]].",
        ),
    ),
    *both_ways(
        ("flatten-concat-pairs", "nest-concat-pairs"),
        """
            ab = concatenate(a, b), $dims
            cd = concatenate(c, d), $dims
            ROOT r = concatenate(ab, cd), $dims
        """,
        "ROOT r = concatenate(a, b, c, d), $dims",
        numerics="exact",
        docs=(
            "Rewrites [[a b] [c d]] as [a b c d].",
            "Rewrites [a b c d] as [[a b] [c d]].",
        ),
    ),
    Rule(
        "exchange-concats",
        before="""
            ab = concatenate(a, b), dimensions=$inner
            cd = concatenate(c, d), dimensions=$inner
            ROOT r = concatenate(ab, cd), dimensions=$outer
        """,
        after="""
            ac = concatenate(a, c), dimensions=$outer
            bd = concatenate(b, d), dimensions=$outer
            ROOT r = concatenate(ac, bd), dimensions=$inner
        """,
        where=_different_dims,
        numerics="exact",
        doc="Concatenates the parts of a grid along the other dimension first.",
    ),
    *both_ways(
        ("concat-of-dots-left", "dot-of-concat-left"),
        """
            p = dot(a, b), $dims
            q = dot(c, b), $dims
            ROOT r = concatenate(p, q), dimensions=$result
        """,
        """
            ac = concatenate(a, c), dimensions=$own
            ROOT r = dot(ac, b), $dims
        """,
        where=(_same_output(0), _operand_dim(0)),
        docs=(
            "Rewrites a concatenation of a b and c b as one product [a; c] b.",
            "Rewrites a product [a; c] b as a concatenation of a b and c b.",
        ),
    ),
    *both_ways(
        ("concat-of-dots-right", "dot-of-concat-right"),
        """
            p = dot(a, b), $dims
            q = dot(a, c), $dims
            ROOT r = concatenate(p, q), dimensions=$result
        """,
        """
            bc = concatenate(b, c), dimensions=$own
            ROOT r = dot(a, bc), $dims
        """,
        where=(_same_output(1), _operand_dim(1)),
        docs=(
            "Rewrites a concatenation of a b and a c as one product a [b c].",
            "Rewrites a product a [b c] as a concatenation of a b and a c.",
        ),
    ),
)
