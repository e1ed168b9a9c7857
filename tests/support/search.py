# SPDX-License-Identifier: Apache-2.0
"""A random search in a process of its own, for tests that kill it.

Usage: python search.py STORE
Prints one line for each candidate, in order: everything but times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

import hloenv
from hloenv.measurement.pool import Evaluator

MODULE = """
HloModule m
ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[64,64] broadcast(zero), dimensions={}
  c = f32[64,64] add(a, zeros)
  d = f32[64,64] multiply(b, c)
  t = f32[64,64] transpose(d), dimensions={1,0}
  u = f32[64,64] transpose(t), dimensions={1,0}
  e = f32[64,64] exponential(u)
  f = f32[64,64] exponential(d)
  g = f32[64,64] add(e, f)
  h = f32[64,64] subtract(g, zeros)
  ROOT r = f32[64,64] negate(h)
}
"""
WRONG = MODULE.replace("ROOT r = f32[64,64] negate(h)", "ROOT r = f32[64,64] sine(h)")
CANDIDATES = 20


def candidates() -> Iterator[hloenv.HloModule]:
    """Randomly decided versions, and a wrong one."""
    rng = np.random.default_rng(0)
    env = hloenv.HloEnv(MODULE)
    alternatives = env.get_alternatives("algsimp", "cse")
    start = env.snapshot()
    for _ in range(CANDIDATES - 1):
        env.restore(start)
        yield env.apply_alternatives(
            rng.integers(0, alternatives.num_choices), alternatives
        )
    yield hloenv.HloModule.from_text(WRONG)


def main(path: str) -> None:
    """Searches, and prints the table."""
    settings = hloenv.Settings(repeats=2)
    with (
        hloenv.Store(path) as store,
        Evaluator(settings, store=store, workers=1) as evaluator,
    ):
        for index, each in enumerate(evaluator.evaluate(candidates(), baseline=MODULE)):
            error = "" if each.error is None else each.error.kind
            line = f"{index} {each.fingerprint} {each.outputs is not None} {error}"
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
