# SPDX-License-Identifier: Apache-2.0
"""Decides inside XLA's own compiler, pass by pass.

Usage: python scripts/examples/07_intercept.py [MODULE.hlo] [TARGET]

TARGET is "cpu", or a GPU ("h100", "a100", ...), for which hloenv[cuda] has to be
installed and no GPU is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hloenv

TEXT = """
HloModule example

ENTRY main {
  x = f32[64,64]{1,0} parameter(0)
  one = f32[] constant(1)
  ones = f32[64,64]{1,0} broadcast(one), dimensions={}
  same = f32[64,64]{1,0} multiply(x, ones)
  e1 = f32[64,64]{1,0} exponential(same)
  e2 = f32[64,64]{1,0} exponential(x)
  sum = f32[64,64]{1,0} add(e1, e2)
  t = f32[64,64]{1,0} transpose(sum), dimensions={1,0}
  y = f32[64,64]{1,0} dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[64,64]{1,0} tanh(y)
}
"""


def main() -> None:
    """Compiles twice: as XLA would, and with every second fusion."""
    arguments = sys.argv[1:]
    path = Path(arguments[0]) if arguments and "." in arguments[0] else None
    target = arguments[-1] if arguments and "." not in arguments[-1] else "cpu"
    module = (
        hloenv.HloModule.from_text(TEXT)
        if path is None
        else hloenv.HloModule.from_file(path)
    )

    # What XLA does by itself.
    with hloenv.intercept(module, target=target) as pipeline:
        default = pipeline.finish()

    # The same, with every rewrite seen on the way, and fusion left to us: we take
    # every second of its fusions.
    num_found = num_taken = 0
    with hloenv.intercept(module, target=target) as pipeline:
        for stage in pipeline:
            alternatives = stage.get_alternatives()
            decisions = alternatives.decisions_for(stage.name)
            if stage.name in ("fusion", "priority-fusion"):
                decisions[::2] = 0
            stage.apply_alternatives(decisions)
            if len(alternatives):
                taken = int((decisions > 0).sum())
                print(f"{stage.index:4} {stage.path}: took {taken} of {len(decisions)}")
                num_found += len(alternatives)
                num_taken += taken
    decided = pipeline.module
    print(f"{target}: {stage.index + 1} stages, took {num_taken} of {num_found}")
    print(f"XLA's default: {default.instruction_count} instructions, ", end="")
    print(f"decided: {decided.instruction_count}")


if __name__ == "__main__":
    main()
