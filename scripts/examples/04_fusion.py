# SPDX-License-Identifier: Apache-2.0
"""Decides fusion where XLA does, after layout assignment, and times the result.

`general-fusion` proposes every fusion that the backend can compile; XLA's own pass only
those that its heuristic expects to gain.
"""

from __future__ import annotations

import hloenv
from hloenv import policies

TEXT = """HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[512,512]{1,0} parameter(0)
  y = f32[512,512]{1,0} parameter(1)
  zero = f32[] constant(0)
  product = f32[512,512]{1,0} multiply(x, y)
  tanh = f32[512,512]{1,0} tanh(product)
  shifted = f32[512,512]{1,0} subtract(tanh, x)
  squares = f32[512,512]{1,0} multiply(shifted, shifted)
  ROOT total = f32[512]{0} reduce(squares, zero), dimensions={1}, to_apply=sum
}
"""


def main() -> None:
    """Compares policies on the fusions of a small module."""
    env = hloenv.HloEnv(TEXT)
    env.run_until("fusion")
    start = env.snapshot()
    candidates = []
    for name in ("reject-all", "accept-all", "least-bytes"):
        env.restore(start)
        alternatives = env.get_alternatives("general-fusion")
        env.apply_alternatives(policies.get_policy(name)(alternatives))
        print(f"{name}: {env.module.opcode_counts().get('fusion', 0)} fusions")
        candidates.append(env.module)

    results = hloenv.measure(candidates, baseline=TEXT, repeats=50)
    for name, result in zip(("reject", "accept", "least"), results, strict=True):
        print(f"{name:>7}: {result}")


if __name__ == "__main__":
    main()
