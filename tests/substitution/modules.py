# SPDX-License-Identifier: Apache-2.0
"""Modules that substitutions improve."""

from __future__ import annotations

from hloenv import HloModule, compare_outputs, interpret, random_inputs

_MM = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def sum_of_products() -> HloModule:
    """The transpose of a sum of products that share an operand.

    One product is enough; the transpose is free where the operands are exchanged.
    """
    return HloModule.from_text(
        f"""HloModule sum_of_products

ENTRY main {{
  a = f32[64,64] parameter(0)
  b = f32[64,32] parameter(1)
  c = f32[64,64] parameter(2)
  k = f32[32,64] parameter(3)
  ab = f32[64,32] dot(a, b), {_MM}
  cb = f32[64,32] dot(c, b), {_MM}
  s = f32[64,32] add(ab, cb)
  n = f32[64,32] negate(s)
  t = f32[32,64] transpose(n), dimensions={{1,0}}
  u = f32[32,64] multiply(t, k)
  m = f32[64,64] maximum(a, c)
  ROOT r = (f32[32,64], f32[64,64]) tuple(u, m)
}}
"""
    )


def equal(module: HloModule, other: HloModule) -> bool:
    """Whether both compute the same on random inputs, up to the tolerance."""
    inputs = random_inputs(module)
    return compare_outputs(
        interpret(module, *inputs), interpret(other, *inputs)
    ).is_equal
