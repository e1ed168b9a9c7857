# SPDX-License-Identifier: Apache-2.0
"""Searches for better decisions than a policy's, and saves them as a trace."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import hloenv
from hloenv import policies

TEXT = """HloModule example

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  y = f32[8,16]{1,0} parameter(1)
  zero = f32[] constant(0)
  zeros = f32[8,16]{1,0} broadcast(zero), dimensions={}
  sum = f32[8,16]{1,0} add(x, zeros)
  flat = f32[128]{0} reshape(sum)
  again = f32[8,16]{1,0} reshape(flat)
  sin1 = f32[8,16]{1,0} sine(again)
  sin2 = f32[8,16]{1,0} sine(again)
  p = f32[8,16]{1,0} multiply(sin1, sin2)
  neg1 = f32[8,16]{1,0} negate(p)
  neg2 = f32[8,16]{1,0} negate(neg1)
  q = f32[8,16]{1,0} multiply(neg2, y)
  ROOT out = f32[8,16]{1,0} add(q, zeros)
}
"""
PASSES = ("algsimp", "cse", "reshape-mover")


def climb(env: hloenv.HloEnv, *, tries: int, rng: np.random.Generator) -> int:
    """Changes one decision that matters at a time; keeps what is no worse."""
    alternatives = env.get_alternatives(*PASSES)
    start = env.snapshot()
    decisions = np.asarray(policies.get_policy("fewest-ops")(alternatives))
    best = env.apply_alternatives(decisions, alternatives).instruction_count
    for _ in range(tries):
        relevant = np.flatnonzero(alternatives.relevant(decisions))
        if not relevant.size:
            break
        candidate = decisions.copy()
        index = rng.choice(relevant)
        candidate[index] = rng.integers(alternatives.num_choices[index])
        env.restore(start)
        size = env.apply_alternatives(candidate, alternatives).instruction_count
        if size <= best:
            best, decisions = size, candidate
    env.restore(start)
    env.apply_alternatives(decisions, alternatives)
    return best


def main() -> None:
    """Two rounds of hill climbing on the number of instructions."""
    module = hloenv.as_module(sys.argv[1] if len(sys.argv) > 1 else TEXT)
    rng = np.random.default_rng(0)
    env = hloenv.HloEnv(module)
    print(f"start: {module.instruction_count} instructions")
    for round_ in range(2):
        print(f"round {round_}: {climb(env, tries=50, rng=rng)} instructions")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.json"
        env.trace.save(path)
        again = hloenv.replay(path, module)
    assert again.fingerprint() == env.fingerprint()
    print(f"replayed {len(env.trace.steps)} steps to {env.fingerprint()}")


if __name__ == "__main__":
    main()
