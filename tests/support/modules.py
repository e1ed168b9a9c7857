# SPDX-License-Identifier: Apache-2.0
"""Small modules of which it can be said beforehand what passes do to them."""

from __future__ import annotations

# `sin` is computed twice (cse saves one), and `x + 0` is just `x` (algsimp).
TWO_REWRITES = """HloModule two_rewrites

ENTRY main {
  x = f32[1024]{0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[1024]{0} broadcast(zero), dimensions={}
  sum = f32[1024]{0} add(x, zeros)
  sin1 = f32[1024]{0} sine(sum)
  sin2 = f32[1024]{0} sine(sum)
  ROOT product = f32[1024]{0} multiply(sin1, sin2)
}
"""

# XLA's reshape-mover moves the reshape past the fusion, but not its computation's root.
RESHAPED_FUSION = """HloModule m

fused {
  a = f32[5]{0} parameter(0)
  ROOT b = pred[5]{0} is-finite(a)
}

ENTRY main {
  p = f32[5,1]{1,0} parameter(0)
  r = f32[5]{0} reshape(p)
  ROOT f = pred[5]{0} fusion(r), kind=kLoop, calls=fused
}
"""

ADD = """
HloModule add
ENTRY e {
  a = f32[3,4] parameter(0)
  b = f32[3,4] parameter(1)
  ROOT r = f32[3,4] add(a, b)
}
"""


def entry_of(parameters: str, body: str, extra: str = "") -> str:
    """A module whose entry has these lines.

    Args:
        parameters: the first line.
        body: the others.
        extra: of the module's first line.
    """
    lines = "".join(f"  {line}\n" for line in body.strip().split("\n"))
    return f"HloModule m{extra}\nENTRY e {{\n  {parameters}\n{lines}}}\n"
