# SPDX-License-Identifier: Apache-2.0
"""Texts on which XLA fails a CHECK or does not end, or did in some version."""

from __future__ import annotations

_UNARY = "f {\n  a = f32[] parameter(0)\n  ROOT b = f32[] negate(a)\n}\n\n"
_BINARY = (
    "f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
    "  ROOT c = f32[] add(a, b)\n}\n\n"
)


def _module(entry: str, helper: str = "") -> str:
    return f"HloModule crash\n\n{helper}ENTRY e {{\n{entry}}}\n"


CRASHES = {
    "map without dimensions": _module(
        "  x = f32[4] parameter(0)\n  ROOT y = f32[4] map(x), to_apply=f\n", _UNARY
    ),
    "map over another dimension": _module(
        "  x = f32[4] parameter(0)\n"
        "  ROOT y = f32[4] map(x), dimensions={7}, to_apply=f\n",
        _UNARY,
    ),
    "reduce of a tuple": _module(
        "  x = f32[4] parameter(0)\n"
        "  t = (f32[4], f32[4]) tuple(x, x)\n"
        "  z = f32[] constant(0)\n"
        "  ROOT y = f32[] reduce(t, z), dimensions={0}, to_apply=f\n",
        _BINARY,
    ),
    "transpose by no permutation": _module(
        "  p = f32[2,3]{1,0} parameter(0)\n"
        "  ROOT y = f32[2,3]{1,0} transpose(p), dimensions={7,8}\n"
    ),
    "convolution of no groups": _module(
        "  x = f32[1,8,4]{2,1,0} parameter(0)\n"
        "  k = f32[3,4,4]{2,1,0} parameter(1)\n"
        "  ROOT y = f32[1,8,4]{2,1,0} convolution(x, k), window={size=3 pad=1_1},"
        " dim_labels=b0f_0io->b0f, feature_group_count=0\n"
    ),
}
# Of these, the ones that end even the process that only reads them.
FATAL_TO_READ = "reduce of a tuple"

# In XLA's evaluator, a loop that takes minutes and knows of no signal.
ENDLESS = """HloModule slow

body {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT next = s32[] add(i, one)
}

condition {
  i = s32[] parameter(0)
  limit = s32[] constant(2000000000)
  ROOT less = pred[] compare(i, limit), direction=LT
}

ENTRY main {
  i = s32[] parameter(0)
  ROOT last = s32[] while(i), condition=condition, body=body
}
"""
