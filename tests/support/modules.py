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

# XLA's pipeline fails on its own result: it changes layouts in the outer product.
ONLY_ONCE = """HloModule outer

ENTRY main {
  x = f32[1,16]{1,0} parameter(0)
  w = f32[16,8]{1,0} parameter(1)
  y = f32[1,8]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[1,8]{1,0} tanh(y)
  step = f32[8,16]{1,0} dot(t, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT grad = f32[16,8]{1,0} transpose(step), dimensions={1,0}
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


ADD_ZERO = """HloModule add_zero
ENTRY main {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  ROOT sum = f32[4] add(p, zeros)
}"""

LOOP = """HloModule loop
body {
  state = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8] get-tuple-element(state), index=1
  y = f32[8] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  invariant = f32[8] exponential(y)
  z = f32[8] add(x, invariant)
  ROOT result = (s32[], f32[8], f32[8]) tuple(next, z, y)
}
condition {
  state = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8], f32[8]) tuple(zero, x, x)
  done = (s32[], f32[8], f32[8]) while(start), condition=condition, body=body
  ROOT out = f32[8] get-tuple-element(done), index=1
}"""

CALLS = """HloModule calls
double {
  x = f32[4,4] parameter(0)
  ROOT sum = f32[4,4] add(x, x)
}
negative {
  x = f32[4,4] parameter(0)
  ROOT minus = f32[4,4] negate(x)
}
ENTRY main {
  p = f32[4,4] parameter(0)
  q = pred[] parameter(1)
  a = f32[4,4] call(p), to_apply=double
  b = f32[4,4] call(a), to_apply=double
  c = f32[4,4] conditional(q, a, b),
    true_computation=double, false_computation=negative
  t = f32[4,4] transpose(c), dimensions={1,0}
  d = f32[4,4] dot(t, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (f32[4,4], f32[4,4]) tuple(d, c)
}"""


def rows_of_sums(number: int, width: int = 50) -> str:
    """A module of `number` instructions and a tuple: rows of `width` sums."""
    lines = [f"p{each} = f32[8] parameter({each})" for each in range(width)]
    for each in range(width, number):
        other = min(each - width + (each * 7) % (width - 10), each - 1)
        lines.append(f"p{each} = f32[8] add(p{each - width}, p{other})")
    lines.append(f"ROOT r = (f32[8]) tuple(p{number - 1})")
    return "HloModule rows\nENTRY e {\n" + "\n".join(lines) + "\n}"
