# SPDX-License-Identifier: Apache-2.0
"""Decides rewrites one by one with a policy of one's own, and checks the result."""

from __future__ import annotations

import numpy as np

import hloenv

TEXT = """HloModule example

ENTRY main {
  x = f32[64,64]{1,0} parameter(0)
  y = f32[64,64]{1,0} parameter(1)
  two = f32[] constant(2)
  twos = f32[64,64]{1,0} broadcast(two), dimensions={}
  half = f32[64,64]{1,0} divide(x, twos)
  square = f32[64,64]{1,0} power(half, twos)
  product1 = f32[64,64]{1,0} multiply(square, y)
  product2 = f32[64,64]{1,0} multiply(square, y)
  ROOT out = f32[64,64]{1,0} subtract(product1, product2)
}
"""


def no_division(alternatives: hloenv.Alternatives) -> list[int]:
    """A policy: takes what replaces a division or a power, and nothing else."""
    return [
        1 if alternative.choices[0].opcode in ("divide", "power") else 0
        for alternative in alternatives
    ]


def main() -> None:
    """Captures two passes, decides, and compares the outputs with the original's."""
    env = hloenv.HloEnv(TEXT)
    original = env.module
    alternatives = env.get_alternatives("algsimp", "cse")
    for alternative in alternatives:
        print(alternative)
    worst = max(error.relative for error in hloenv.verify_alternatives(alternatives))
    print(f"each choice equals its original to {worst:.1e}")

    decisions = no_division(alternatives)
    decided = env.apply_alternatives(decisions)
    print(f"decisions {decisions}: {original} became {decided}")

    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(spec.shape).astype(spec.dtype)
        for spec in original.input_specs()
    ]
    expected = hloenv.compile(original)(*inputs)
    outputs = hloenv.compile(decided)(*inputs)
    for before, after in zip(expected, outputs, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    print("outputs are equal")


if __name__ == "__main__":
    main()
