# SPDX-License-Identifier: Apache-2.0
"""Loads a module, runs XLA's passes on it, and looks at what they did.

Usage: python scripts/examples/01_load_and_run_pass.py [MODULE]
"""

from __future__ import annotations

import sys

import hloenv
from hloenv.hlo.diff import diff_modules

TEXT = """HloModule example

ENTRY main {
  x = f32[128,64]{1,0} parameter(0)
  one = f32[] constant(1)
  ones = f32[128,64]{1,0} broadcast(one), dimensions={}
  scaled = f32[128,64]{1,0} multiply(x, ones)
  there = f32[64,128]{1,0} transpose(scaled), dimensions={1,0}
  back = f32[128,64]{1,0} transpose(there), dimensions={1,0}
  sin1 = f32[128,64]{1,0} sine(back)
  sin2 = f32[128,64]{1,0} sine(back)
  ROOT out = f32[128,64]{1,0} add(sin1, sin2)
}
"""


def main() -> None:
    """Runs the algebraic simplifier, then a pipeline to its fixed point."""
    module = hloenv.as_module(sys.argv[1] if len(sys.argv) > 1 else TEXT)
    print(f"{module}, {module.cost().flops:.0f} flops")

    env = hloenv.HloEnv(module)
    changed = env.run("algsimp")
    print(f"algsimp: changed={changed}, {env.module.instruction_count} instructions")

    simplify = hloenv.Pipeline("simplify", ["algsimp", "cse", "dce"], fixed_point=True)
    result = hloenv.run_passes(module, simplify)
    print(
        f"{simplify.name}: {result.iterations} rounds, {result.stop_reason}, "
        f"{result.module.instruction_count} instructions"
    )
    difference = diff_modules(module, result.module)
    for kind in ("removed", "changed", "added"):
        print(f"  {difference.count(kind)} {kind}")
    print(f"fingerprint {module.fingerprint()} -> {result.module.fingerprint()}")


if __name__ == "__main__":
    main()
