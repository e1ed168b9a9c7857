# SPDX-License-Identifier: Apache-2.0
"""Dots are linear in both operands."""

from __future__ import annotations

from ..matcher import Match
from ..rule import Condition, Rule
from .conditions import alike, alike_but, broadcast_of, is_matrix_product, result_dims
from .pairs import both_ways

_ADDITIVE = {"f": ("add", "subtract")}


def _contracted_alike(match: Match) -> bool | dict[str, object]:
    """The four operands differ in one contracted dimension only."""
    ab, cd = match["ab"], match["cd"]
    left, right = ab.ints("lhs_contracting_dims"), ab.ints("rhs_contracting_dims")
    if len(left) != 1 or ab.dtype != cd.dtype:
        return False
    if not (
        alike_but(match["a"], match["c"], left[0])
        and alike_but(match["b"], match["d"], right[0])
    ):
        return False
    return {"left": left, "right": right}


def _split_alike(match: Match) -> bool:
    """Both concatenations are along the contracted dimension, with equal parts."""
    r, a, b = match["r"], match["a"], match["b"]
    left, right = r.ints("lhs_contracting_dims"), r.ints("rhs_contracting_dims")
    return (
        len(left) == 1
        and match.ints("left") == left
        and match.ints("right") == right
        and a.dims[left[0]] == b.dims[right[0]]
    )


def _scalar(match: Match) -> bool:
    return match["s"].dims == () and broadcast_of(match["bs"], ())


def _scale_out_of(side: str, dot: str, scaled: str) -> Condition:
    """The scale is along a dimension of the operand that the result has too."""

    def check(match: Match) -> bool | dict[str, object]:
        dims = match[scaled].ints("dimensions")
        mapping = result_dims(match[dot])[0 if side == "lhs" else 1]
        if match["s"].rank != 1 or len(dims) != 1 or dims[0] not in mapping:
            return False
        return {"dimension": (mapping[dims[0]],)}

    return check


def _scale_into(side: str, dot: str) -> Condition:
    """The scale of the result is along a dimension of this operand."""

    def check(match: Match) -> bool | dict[str, object]:
        dims = match["bs"].ints("dimensions")
        mapping = result_dims(match[dot])[0 if side == "lhs" else 1]
        inverse = {result: own for own, result in mapping.items()}
        if match["s"].rank != 1 or len(dims) != 1 or dims[0] not in inverse:
            return False
        return {"dimension": (inverse[dims[0]],)}

    return check


def _scale_across(side: str, other: str) -> Condition:
    """The scale is along a contracted dimension of `side`; that of `other`."""

    def check(match: Match) -> bool | dict[str, object]:
        own = match["r"].ints(f"{side}_contracting_dims")
        opposite = match["r"].ints(f"{other}_contracting_dims")
        dims = match["bs"].ints("dimensions")
        if match["s"].rank != 1 or len(dims) != 1 or dims[0] not in own:
            return False
        return {"dimension": (opposite[own.index(dims[0])],)}

    return check


def _row_bias(match: Match) -> bool | dict[str, object]:
    """The bias is one row, added to every row of a matrix that is multiplied."""
    dot = match["r"]
    ok = is_matrix_product(dot) and match["v"].rank == 1
    if not (ok and broadcast_of(match["bv"], (1,))):
        return False
    # Other attributes, such as shardings, are of matrices.
    names = ("operand_precision", "algorithm")
    texts = [f"{k}={dot.attributes[k]}" for k in names if k in dot.attributes]
    return {"kept": ", ".join(texts)}


_SUMS = (
    *both_ways(
        ("factor-dot-left-operands", "expand-dot-left-operand"),
        """
            ab = dot(a, b), $dims
            cb = dot(c, b), $dims
            ROOT r = $f(ab, cb)
        """,
        """
            s = $f(a, c)
            ROOT r = dot(s, b), $dims
        """,
        where=(alike("a", "c"), None),
        opcodes=_ADDITIVE,
        docs=(
            "Rewrites a b + c b as (a + c) b, likewise for differences.",
            "Rewrites (a + c) b as a b + c b, likewise for differences.",
        ),
    ),
    *both_ways(
        ("factor-dot-right-operands", "expand-dot-right-operand"),
        """
            ab = dot(a, b), $dims
            ac = dot(a, c), $dims
            ROOT r = $f(ab, ac)
        """,
        """
            s = $f(b, c)
            ROOT r = dot(a, s), $dims
        """,
        where=(alike("b", "c"), None),
        opcodes=_ADDITIVE,
        docs=(
            "Rewrites a b + a c as a (b + c), likewise for differences.",
            "Rewrites a (b + c) as a b + a c, likewise for differences.",
        ),
    ),
    *both_ways(
        ("merge-dot-sum", "split-dot-sum"),
        """
            ab = dot(a, b), $dims
            cd = dot(c, d), $dims
            ROOT r = add(ab, cd)
        """,
        """
            ac = concatenate(a, c), dimensions=$left
            bd = concatenate(b, d), dimensions=$right
            ROOT r = dot(ac, bd), $dims
        """,
        where=(_contracted_alike, _split_alike),
        docs=(
            "Rewrites a b + c d as one product [a c] [b; d].",
            "Rewrites a product [a c] [b; d] as a b + c d.",
        ),
    ),
    Rule(
        "bias-through-dot",
        before="""
            bv = broadcast(v), $d
            s = add(x, bv)
            ROOT r = dot(s, w), $dims
        """,
        after="""
            xw = dot(x, w), $dims
            vw = dot(v, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}, $kept
            b = $r.shape broadcast(vw), dimensions={1}
            ROOT r = add(xw, b)
        """,
        where=_row_bias,
        doc="Rewrites (x + v) w as x w + v w, where v is one row.",
    ),
)

_SCALES = (
    Rule(
        "scalar-out-of-dot-left",
        before="""
            bs = broadcast(s), $d
            sa = multiply(a, bs)
            ROOT r = dot(sa, b), $dims
        """,
        after="""
            ab = dot(a, b), $dims
            t = $r.shape broadcast(s), dimensions={}
            ROOT r = multiply(ab, t)
        """,
        where=_scalar,
        doc="Rewrites (s a) b as s (a b), where s is a scalar.",
    ),
    Rule(
        "scalar-out-of-dot-right",
        before="""
            bs = broadcast(s), $d
            sb = multiply(b, bs)
            ROOT r = dot(a, sb), $dims
        """,
        after="""
            ab = dot(a, b), $dims
            t = $r.shape broadcast(s), dimensions={}
            ROOT r = multiply(ab, t)
        """,
        where=_scalar,
        doc="Rewrites a (s b) as s (a b), where s is a scalar.",
    ),
    Rule(
        "scalar-into-dot-left",
        before="""
            ab = dot(a, b), $dims
            bs = broadcast(s), $d
            ROOT r = multiply(ab, bs)
        """,
        after="""
            t = $a.shape broadcast(s), dimensions={}
            sa = multiply(a, t)
            ROOT r = dot(sa, b), $dims
        """,
        where=_scalar,
        doc="Rewrites s (a b) as (s a) b, where s is a scalar.",
    ),
    Rule(
        "scalar-into-dot-right",
        before="""
            ab = dot(a, b), $dims
            bs = broadcast(s), $d
            ROOT r = multiply(ab, bs)
        """,
        after="""
            t = $b.shape broadcast(s), dimensions={}
            sb = multiply(b, t)
            ROOT r = dot(a, sb), $dims
        """,
        where=_scalar,
        doc="Rewrites s (a b) as a (s b), where s is a scalar.",
    ),
    Rule(
        "scale-rows-out-of-dot",
        before="""
            bs = broadcast(s), $d
            sa = multiply(a, bs)
            ROOT r = dot(sa, b), $dims
        """,
        after="""
            ab = dot(a, b), $dims
            t = $r.shape broadcast(s), dimensions=$dimension
            ROOT r = multiply(ab, t)
        """,
        where=_scale_out_of("lhs", "r", "bs"),
        doc="Scales the rows of a product in place of those of its left operand.",
    ),
    Rule(
        "scale-columns-out-of-dot",
        before="""
            bs = broadcast(s), $d
            sb = multiply(b, bs)
            ROOT r = dot(a, sb), $dims
        """,
        after="""
            ab = dot(a, b), $dims
            t = $r.shape broadcast(s), dimensions=$dimension
            ROOT r = multiply(ab, t)
        """,
        where=_scale_out_of("rhs", "r", "bs"),
        doc="Scales the columns of a product in place of those of its right operand.",
    ),
    Rule(
        "scale-rows-into-dot",
        before="""
            ab = dot(a, b), $dims
            bs = broadcast(s), $d
            ROOT r = multiply(ab, bs)
        """,
        after="""
            t = $a.shape broadcast(s), dimensions=$dimension
            sa = multiply(a, t)
            ROOT r = dot(sa, b), $dims
        """,
        where=_scale_into("lhs", "ab"),
        doc="Scales the rows of the left operand in place of those of a product.",
    ),
    Rule(
        "scale-columns-into-dot",
        before="""
            ab = dot(a, b), $dims
            bs = broadcast(s), $d
            ROOT r = multiply(ab, bs)
        """,
        after="""
            t = $b.shape broadcast(s), dimensions=$dimension
            sb = multiply(b, t)
            ROOT r = dot(a, sb), $dims
        """,
        where=_scale_into("rhs", "ab"),
        doc="Scales the columns of the right operand in place of those of a product.",
    ),
    Rule(
        "scale-across-dot",
        before="""
            bs = broadcast(s), $d
            sa = multiply(a, bs)
            ROOT r = dot(sa, b), $dims
        """,
        after="""
            t = $b.shape broadcast(s), dimensions=$dimension
            sb = multiply(b, t)
            ROOT r = dot(a, sb), $dims
        """,
        where=_scale_across("lhs", "rhs"),
        doc="Moves a scale of the contracted dimension to the right operand.",
    ),
    Rule(
        "scale-across-dot-back",
        before="""
            bs = broadcast(s), $d
            sb = multiply(b, bs)
            ROOT r = dot(a, sb), $dims
        """,
        after="""
            t = $a.shape broadcast(s), dimensions=$dimension
            sa = multiply(a, t)
            ROOT r = dot(sa, b), $dims
        """,
        where=_scale_across("rhs", "lhs"),
        doc="Moves a scale of the contracted dimension to the left operand.",
    ),
    Rule(
        "scale-of-biased",
        before="""
            bv = broadcast(v), $d
            t = $f(x, bv)
            bs = broadcast(s), $d
            ROOT r = multiply(t, bs)
        """,
        after="""
            sv = multiply(v, s)
            b = $r.shape broadcast(sv), $d
            xs = multiply(x, bs)
            ROOT r = $f(xs, b)
        """,
        where=alike("v", "s"),
        opcodes=_ADDITIVE,
        doc="Rewrites (x + v) s as x s + v s, where v and s are broadcast alike, as in "
        "batch normalization.",
    ),
    Rule(
        "merge-biases",
        before="""
            first = broadcast(u), $d
            t = $f(x, first)
            bv = broadcast(v), $d
            ROOT r = add(t, bv)
        """,
        after="""
            w = $f(v, u)
            b = $r.shape broadcast(w), $d
            ROOT r = add(x, b)
        """,
        where=alike("u", "v"),
        opcodes=_ADDITIVE,
        doc="Rewrites (x + u) + v as x + (v + u), where u and v are broadcast alike.",
    ),
)

RULES = (*_SUMS, *_SCALES)
