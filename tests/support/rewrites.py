# SPDX-License-Identifier: Apache-2.0
"""Modules of which it is known which of XLA's rewrites cost, and rows of such."""

from __future__ import annotations

from typing import Any

from hloenv.rewrite_map import RewriteRow
from support.convolutions import one_convolution

_ATTRIBUTES = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"

# The last layer of a ResNet on images of 64x64: XLA's algebraic simplifier swaps the
# operands, and the backend has no library call for the result.
SMALL_IMAGE = one_convolution(*("2,2,2,512", "3,3,512,512", "2,2,2,512"), _ATTRIBUTES)

# Two of them, with fewer features.
TWO_LAYERS = f"""HloModule layers

ENTRY main {{
  x = f32[2,2,2,64] parameter(0)
  k = f32[3,3,64,64] parameter(1)
  m = f32[3,3,64,64] parameter(2)
  y = f32[2,2,2,64] convolution(x, k), {_ATTRIBUTES}
  z = f32[2,2,2,64] tanh(y)
  ROOT c = f32[2,2,2,64] convolution(z, m), {_ATTRIBUTES}
}}
"""

# One of each: the larger hides the other.
LARGE_AND_SMALL = f"""HloModule layers

ENTRY main {{
  x = f32[2,2,2,512] parameter(0)
  k = f32[3,3,512,512] parameter(1)
  y = f32[2,2,2,64] parameter(2)
  m = f32[3,3,64,64] parameter(3)
  a = f32[2,2,2,512] convolution(x, k), {_ATTRIBUTES}
  b = f32[2,2,2,64] convolution(y, m), {_ATTRIBUTES}
  ROOT both = (f32[2,2,2,512], f32[2,2,2,64]) tuple(a, b)
}}
"""

_LOOP = """HloModule loop

body {{
  state = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[256] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[256] tanh(x)
  ROOT result = (s32[], f32[256]) tuple(next, y)
}}

condition {{
  state = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  five = s32[] constant(5)
  ROOT less = pred[] compare(i, five), direction=LT
}}

ENTRY entry {{
  x = f32[256] parameter(0)
  first = s32[] {first}
  start = (s32[], f32[256]) tuple(first, x)
  loop = (s32[], f32[256]) while(start), condition=condition, body=body
  ROOT y = f32[256] get-tuple-element(loop), index=1
}}
"""
# A loop of four iterations, and one of which XLA does not know how often it runs.
COUNTED_LOOP = _LOOP.format(first="constant(1)")
OTHER_LOOP = _LOOP.format(first="parameter(1)")


def row(identity: str, worth: float, **fields: Any) -> RewriteRow:
    """A made-up row."""
    given = {"rule": "a -> b", "shape_class": "dot, f32, to 256", "count": 1, **fields}
    return RewriteRow(
        identity=identity,
        entries=(f"algsimp?{identity}",),
        pass_name="algsimp",
        path="simplification/algsimp",
        path_occurrence=1,
        before="f32[2] dot()",
        after="f32[2] multiply()",
        worth=worth,
        **given,
    )
