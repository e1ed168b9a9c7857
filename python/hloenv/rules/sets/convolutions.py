# SPDX-License-Identifier: Apache-2.0
"""Convolutions are linear in input and kernel, and in channels."""

from __future__ import annotations

from ..matcher import Match
from ..rule import Condition, Rule
from ..subject import Value
from .conditions import (
    ConvDims,
    alike,
    alike_but,
    both,
    broadcast_of,
    inexact,
    ungrouped,
    window,
    window_text,
    zero_of,
)
from .pairs import both_ways

_ADDITIVE = {"f": ("add", "subtract")}
# The largest kernel that a kernel of size 1 is enlarged to.
_MAX_ENLARGED = 5


def _channels(match: Match) -> bool | dict[str, object]:
    """Input channels (of input and kernel) that two convolutions add up over."""
    first = match["p"]
    dims = ConvDims(first)
    i, k = dims.input.find("f"), dims.kernel.find("i")
    if not ungrouped(first) or not (
        alike_but(match["x"], match["y"], i) and alike_but(match["w"], match["v"], k)
    ):
        return False
    return {"input": (i,), "kernel": (k,)}


def _split_channels(match: Match) -> bool:
    """Input and kernel are concatenated along the channels, with equal parts."""
    dims = ConvDims(match["r"])
    i, k = dims.input.find("f"), dims.kernel.find("i")
    return (
        ungrouped(match["r"])
        and match.ints("input") == (i,)
        and match.ints("kernel") == (k,)
        and match["x"].dims[i] == match["w"].dims[k]
    )


def _along(conv: str, output: str, kernel: str) -> Condition:
    """A vector along a dimension of the output; its dimension of the kernel."""

    def check(match: Match) -> bool | dict[str, object]:
        dims = ConvDims(match[conv])
        want = dims.output.find(output)
        if match["s"].rank != 1 or not broadcast_of(match["bs"], (want,)):
            return False
        return {"dimension": (dims.kernel.find(kernel),)}

    return check


def _of_kernel(match: Match) -> bool | dict[str, object]:
    """A vector along the output channels of the kernel."""
    dims = ConvDims(match["r"])
    if match["s"].rank != 1 or not broadcast_of(match["bs"], (dims.kernel.find("o"),)):
        return False
    return {"dimension": (dims.output.find("f"),)}


def _of_input(match: Match) -> bool | dict[str, object]:
    """A vector along the input channels of an ungrouped convolution's input."""
    dims = ConvDims(match["r"])
    if (
        match["s"].rank != 1
        or not ungrouped(match["r"])
        or not broadcast_of(match["bs"], (dims.input.find("f"),))
    ):
        return False
    return {"dimension": (dims.kernel.find("i"),)}


def _of_kernel_inputs(match: Match) -> bool | dict[str, object]:
    """A vector along the input channels of an ungrouped convolution's kernel."""
    dims = ConvDims(match["r"])
    if (
        match["s"].rank != 1
        or not ungrouped(match["r"])
        or not broadcast_of(match["bs"], (dims.kernel.find("i"),))
    ):
        return False
    return {"dimension": (dims.input.find("f"),)}


def _joined(dimension: str) -> Condition:
    """Outputs that are concatenated along this dimension, and where it comes from."""

    def check(match: Match) -> bool | dict[str, object]:
        dims = ConvDims(match["p"])
        (along,) = match.ints("result")
        if along != dims.output.find(dimension) or not _has_one_batch(match["p"]):
            return False
        if dimension == "b":
            own = dims.input.find("b")
            return alike_but(match["x"], match["y"], own) and {"own": (own,)}
        own = dims.kernel.find("o")
        if not ungrouped(match["p"]):
            return False
        return alike_but(match["w"], match["v"], own) and {"own": (own,)}

    return check


def _parted(dimension: str) -> Condition:
    """A concatenated operand, and the dimension of the output."""

    def check(match: Match) -> bool | dict[str, object]:
        dims = ConvDims(match["r"])
        own = dims.input.find("b") if dimension == "b" else dims.kernel.find("o")
        is_free = _has_one_batch(match["r"]) and (
            dimension == "b" or ungrouped(match["r"])
        )
        if match.ints("own") != (own,) or not is_free:
            return False
        return {"result": (dims.output.find(dimension),)}

    return check


def _has_one_batch(convolution: Value) -> bool:
    return "batch_group_count" not in convolution.attributes


def _enlarged(conv: Value, size: int) -> dict[str, object] | None:
    """Attributes of a convolution whose kernel of size 1 is padded to `size`."""
    dims, parts = ConvDims(conv), window(conv)
    if dims.rank == 0 or size % 2 == 0 or size > _MAX_ENLARGED:
        return None
    if any(key not in ("size", "stride", "pad") for key in parts):
        return None
    if parts.get("size") != ["1"] * dims.rank or "pad" in parts:
        return None
    half = size // 2
    low_high = f"{half}_{half}"
    padding = [low_high if label.isdecimal() else "0_0" for label in dims.kernel]
    parts["size"] = [str(size)] * dims.rank
    parts["pad"] = [low_high] * dims.rank
    order = ("size", "stride", "pad")
    spelled = {key: parts[key] for key in order if key in parts}
    return {
        "padding": "x".join(padding),
        "window": window_text(spelled),
        "zero": zero_of(conv.operands[1]),
    }


def _enlarge(match: Match) -> bool | dict[str, object]:
    return _enlarged(match["r"], 3) or False


def _enlarge_to_merge(match: Match) -> bool | dict[str, object]:
    """A kernel of size 1 beside a larger one of the same input and output."""
    small, large = match["p"], match["q"]
    parts = window(large)
    sizes = set(parts.get("size", ()))
    if len(sizes) != 1 or not (ungrouped(small) and ungrouped(large)):
        return False
    texts = _enlarged(small, int(sizes.pop()))
    if texts is None or texts["window"] != large.attributes.get("window"):
        return False
    dims = ConvDims(small)
    own, out = dims.kernel.find("o"), dims.output.find("f")
    if match["w"].dtype != match["v"].dtype or small.dtype != large.dtype:
        return False
    return texts | _slices(match, "p", "q", out) | {"own": (own,)}


def _slices(match: Match, first: str, second: str, along: int) -> dict[str, object]:
    """Texts of slices that take a concatenation apart."""
    p, q = match[first].dims, match[second].dims
    total = list(p)
    total[along] += q[along]

    def text(start: int, size: int) -> str:
        ranges = [[0, each] for each in p]
        ranges[along] = [start, start + size]
        return "{" + ", ".join(f"[{a}:{b}]" for a, b in ranges) + "}"

    return {
        "both": f"{match[first].dtype}[{','.join(map(str, total))}]",
        "first": text(0, p[along]),
        "second": text(p[along], q[along]),
    }


def _grouped(match: Match) -> bool | dict[str, object]:
    """Texts for a convolution with half as many groups.

    Group g of the result has the input channels of groups 2g and 2g + 1. The kernel is
    repeated along its input channels, and masked: of the output channels of group
    2g + h only the half h is kept.
    """
    conv = match["r"]
    dims = ConvDims(conv)
    groups = int(match.texts["groups"])
    if groups % 2 or dims.rank == 0:
        return False
    i, o = dims.kernel.find("i"), dims.kernel.find("o")
    kernel = list(match["w"].dims)
    inputs, outputs = kernel[i], kernel[o] // groups
    kernel[i] *= 2
    shape = ",".join(map(str, kernel))
    half = groups // 2
    return {
        "i": (i,),
        "io": i,
        "oo": o,
        "dtype": match["w"].dtype,
        "wide": f"{match['w'].dtype}[{shape}]",
        "index": f"s32[{shape}]",
        "mask": f"pred[{shape}]",
        "inputs": inputs,
        "outputs": outputs,
        "zero": zero_of(match["w"]),
        "fewer": f", feature_group_count={half}" if half > 1 else "",
    }


_LINEAR = (
    *both_ways(
        ("factor-convolution-inputs", "expand-convolution-input"),
        """
            p = convolution(x, w), $attrs
            q = convolution(y, w), $attrs
            ROOT r = $f(p, q)
        """,
        """
            s = $f(x, y)
            ROOT r = convolution(s, w), $attrs
        """,
        where=(both(inexact("p"), alike("x", "y")), inexact("r")),
        opcodes=_ADDITIVE,
        docs=(
            "Rewrites x * w + y * w as (x + y) * w, likewise for differences.",
            "Rewrites (x + y) * w as x * w + y * w, likewise for differences.",
        ),
    ),
    *both_ways(
        ("factor-convolution-kernels", "expand-convolution-kernel"),
        """
            p = convolution(x, w), $attrs
            q = convolution(x, v), $attrs
            ROOT r = $f(p, q)
        """,
        """
            s = $f(w, v)
            ROOT r = convolution(x, s), $attrs
        """,
        where=(both(inexact("p"), alike("w", "v")), inexact("r")),
        opcodes=_ADDITIVE,
        docs=(
            "Rewrites x * w + x * v as x * (w + v), likewise for differences.",
            "Rewrites x * (w + v) as x * w + x * v, likewise for differences.",
        ),
    ),
    *both_ways(
        ("merge-convolution-sum", "split-convolution-sum"),
        """
            p = convolution(x, w), $attrs
            q = convolution(y, v), $attrs
            ROOT r = add(p, q)
        """,
        """
            xy = concatenate(x, y), dimensions=$input
            wv = concatenate(w, v), dimensions=$kernel
            ROOT r = convolution(xy, wv), $attrs
        """,
        where=(both(inexact("p"), _channels), both(inexact("r"), _split_channels)),
        docs=(
            "Rewrites x * w + y * v as one convolution of concatenated channels.",
            "Rewrites a convolution of concatenated channels as a sum of two.",
        ),
    ),
)

_SCALES = (
    Rule(
        "scale-into-kernel",
        before="""
            p = convolution(x, w), $attrs
            bs = broadcast(s), $d
            ROOT r = multiply(p, bs)
        """,
        after="""
            t = $w.shape broadcast(s), dimensions=$dimension
            v = multiply(w, t)
            ROOT r = convolution(x, v), $attrs
        """,
        where=both(inexact("p"), _along("p", "f", "o")),
        doc="Scales the kernel in place of the output channels, as for batch "
        "normalization.",
    ),
    Rule(
        "batch-norm-into-kernel",
        before="""
            p = convolution(x, w), $attrs
            bm = broadcast(m), $d
            t = $f(p, bm)
            bs = broadcast(s), $d
            ROOT r = multiply(t, bs)
        """,
        after="""
            u = $w.shape broadcast(s), dimensions=$dimension
            v = multiply(w, u)
            q = convolution(x, v), $attrs
            ms = multiply(m, s)
            b = $r.shape broadcast(ms), $d
            ROOT r = $f(q, b)
        """,
        where=both(inexact("p"), _along("p", "f", "o")),
        opcodes=_ADDITIVE,
        doc="Folds the scale of a batch normalization into the kernel.",
    ),
    Rule(
        "scale-out-of-kernel",
        before="""
            bs = broadcast(s), $d
            v = multiply(w, bs)
            ROOT r = convolution(x, v), $attrs
        """,
        after="""
            p = convolution(x, w), $attrs
            t = $r.shape broadcast(s), dimensions=$dimension
            ROOT r = multiply(p, t)
        """,
        where=both(inexact("r"), _of_kernel),
        doc="Scales the output channels in place of the kernel.",
    ),
    Rule(
        "scale-of-input-into-kernel",
        before="""
            bs = broadcast(s), $d
            y = multiply(x, bs)
            ROOT r = convolution(y, w), $attrs
        """,
        after="""
            t = $w.shape broadcast(s), dimensions=$dimension
            v = multiply(w, t)
            ROOT r = convolution(x, v), $attrs
        """,
        where=both(inexact("r"), _of_input),
        doc="Scales the kernel in place of the input channels.",
    ),
    Rule(
        "scale-of-kernel-into-input",
        before="""
            bs = broadcast(s), $d
            v = multiply(w, bs)
            ROOT r = convolution(x, v), $attrs
        """,
        after="""
            t = $x.shape broadcast(s), dimensions=$dimension
            y = multiply(x, t)
            ROOT r = convolution(y, w), $attrs
        """,
        where=both(inexact("r"), _of_kernel_inputs),
        doc="Scales the input channels in place of the kernel.",
    ),
)

_CONCATS = (
    *both_ways(
        ("concat-of-convolutions-kernel", "convolution-of-concat-kernel"),
        """
            p = convolution(x, w), $attrs
            q = convolution(x, v), $attrs
            ROOT r = concatenate(p, q), dimensions=$result
        """,
        """
            wv = concatenate(w, v), dimensions=$own
            ROOT r = convolution(x, wv), $attrs
        """,
        where=(_joined("f"), _parted("f")),
        docs=(
            "Rewrites concatenated convolutions of one input as one convolution.",
            "Rewrites a convolution with concatenated kernels as two, concatenated.",
        ),
    ),
    *both_ways(
        ("concat-of-convolutions-input", "convolution-of-concat-input"),
        """
            p = convolution(x, w), $attrs
            q = convolution(y, w), $attrs
            ROOT r = concatenate(p, q), dimensions=$result
        """,
        """
            xy = concatenate(x, y), dimensions=$own
            ROOT r = convolution(xy, w), $attrs
        """,
        where=(_joined("b"), _parted("b")),
        docs=(
            "Rewrites concatenated convolutions with one kernel as one of a batch.",
            "Rewrites a convolution of a concatenated batch as two, concatenated.",
        ),
    ),
)

_KERNELS = (
    Rule(
        "enlarge-kernel",
        before="ROOT r = convolution(x, w), window=$window, $attrs",
        after="""
            zero = $w.dtype[] constant($zero)
            v = pad(w, zero), padding=$padding
            ROOT r = convolution(x, v), window=$window, $attrs
        """,
        where=_enlarge,
        doc="Pads a kernel of size 1 to size 3, so that it can be merged with others.",
    ),
    Rule(
        "enlarge-and-merge",
        before="""
            p = convolution(x, w), window=$small, $attrs
            q = convolution(x, v), window=$large, $attrs
            ROOT r = tuple(p, q)
        """,
        after="""
            zero = $w.dtype[] constant($zero)
            u = pad(w, zero), padding=$padding
            uv = concatenate(u, v), dimensions=$own
            both = $both convolution(x, uv), window=$window, $attrs
            p = $p.shape slice(both), slice=$first
            q = $q.shape slice(both), slice=$second
            ROOT r = tuple(p, q)
        """,
        where=_enlarge_to_merge,
        doc="Merges convolutions of one input with kernels of size 1 and larger.",
    ),
    Rule(
        "merge-groups",
        before="ROOT r = convolution(x, w), feature_group_count=$groups, $attrs",
        after="""
            ww = concatenate(w, w), dimensions=$i
            in = $index iota(), iota_dimension=$io
            out = $index iota(), iota_dimension=$oo
            ni = s32[] constant($inputs)
            no = s32[] constant($outputs)
            two = s32[] constant(2)
            bi = $index broadcast(ni), dimensions={}
            bo = $index broadcast(no), dimensions={}
            bt = $index broadcast(two), dimensions={}
            group = $index divide(out, bo)
            half = $index remainder(group, bt)
            own = $index divide(in, bi)
            keep = $mask compare(half, own), direction=EQ
            zero = $w.dtype[] constant($zero)
            bz = $wide broadcast(zero), dimensions={}
            v = $wide select(keep, ww, bz)
            ROOT r = convolution(x, v), $attrs$fewer
        """,
        where=_grouped,
        doc="Rewrites a convolution of groups as one of half as many groups, whose "
        "kernel is half zeros.",
    ),
)

RULES = (*_LINEAR, *_SCALES, *_CONCATS, *_KERNELS)
