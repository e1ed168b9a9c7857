# SPDX-License-Identifier: Apache-2.0
"""Small modules for the environments."""

from __future__ import annotations

from hloenv import HloModule

# cse, then algsimp, then dce leave least; dce alone removes nothing.
SMALL = """HloModule small

ENTRY e {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  a = f32[4] add(x, zeros)
  b = f32[4] exponential(a)
  c = f32[4] exponential(a)
  d = f32[4] add(b, c)
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  ROOT r = f32[4] multiply(d, ones)
}"""


def small() -> HloModule:
    return HloModule.from_text(SMALL)
