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
