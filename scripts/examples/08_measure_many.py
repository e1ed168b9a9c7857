# SPDX-License-Identifier: Apache-2.0
"""Measures many candidates on several workers: here, or with --ray on a Ray cluster.

Usage: python scripts/examples/08_measure_many.py [--ray] [MODULE]

Without a cluster of its own, Ray starts a local one, of one worker process a core.
Everything is kept in a store: a second run with the same one would measure nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import hloenv
from hloenv.measurement.pool import Evaluator

TEXT = """HloModule example

ENTRY main {
  x = f32[128,128] parameter(0)
  y = f32[128,128] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[128,128] broadcast(zero), dimensions={}
  sum = f32[128,128] add(x, zeros)
  xt = f32[128,128] transpose(sum), dimensions={1,0}
  back = f32[128,128] transpose(xt), dimensions={1,0}
  exp1 = f32[128,128] exponential(back)
  exp2 = f32[128,128] exponential(x)
  both = f32[128,128] add(exp1, exp2)
  scaled = f32[128,128] multiply(both, y)
  ROOT out = f32[128,128] subtract(scaled, zeros)
}
"""


def candidates(module: hloenv.HloModule, count: int) -> Iterator[hloenv.HloModule]:
    """Random decisions, made one by one as workers get free."""
    rng = np.random.default_rng(0)
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives("algsimp", "cse")
    for _ in range(count):
        yield alternatives.apply(rng.integers(0, alternatives.num_choices))


def main() -> None:
    """Measures eight versions of a module, twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", nargs="?", default=TEXT)
    parser.add_argument("--ray", action="store_true")
    args = parser.parse_args()
    module = hloenv.as_module(args.module)
    executor = None
    if args.ray:
        from hloenv.measurement.ray import RayExecutor

        executor = RayExecutor()
    settings = hloenv.Settings(repeats=20, timeout_s=120)
    with (
        tempfile.TemporaryDirectory() as folder,
        hloenv.Store(Path(folder) / "store.sqlite") as store,
        Evaluator(settings, store=store, workers=2, executor=executor) as evaluator,
    ):
        for attempt in ("first", "second"):
            num_new = 0
            for result in evaluator.results(candidates(module, 8), baseline=module):
                num_new += result.is_new
                if attempt == "first":
                    print(f"{result.index}: {result.measurement}")
            print(f"{attempt} time: {num_new} of 8 were measured")


if __name__ == "__main__":
    main()
