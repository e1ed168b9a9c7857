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
