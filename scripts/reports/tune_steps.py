#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step of a dataflow graph costs on several threads, from measured modules.

`hloenv bench` times modules as XLA runs them and with their steps in order. With the
times of their kernels, the cost of a step follows: what makes the estimate of the graph
over that of the order what was measured. It is `_SHARED_STEP_NS` in cost/kernels.py.

    hloenv bench --split train --modules 36 --max-instructions 1200 --threads 2 \
        --workers 1 --no-baselines --precision 0.05 -c thunk-order/accept-all -o bench
    python scripts/reports/tune_steps.py bench/results.parquet
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import hloenv
from hloenv._native import core
from hloenv.cost.kernel_cache import KernelCache
from hloenv.cost.kernels import KernelSplit

_METHOD = "thunk-order/accept-all"
_MAX_STEP_NS = 20_000.0


def step_ns(
    graph: core.KernelGraph, times_ns: list[float], threads: int, ratio: float
) -> float:
    """The cost of a step with which the graph takes `ratio` times the order."""
    order = graph.total_ns(times_ns, 1, 0.0)
    low, high = 0.0, _MAX_STEP_NS
    for _ in range(40):
        middle = (low + high) / 2
        if graph.total_ns(times_ns, threads, middle) < ratio * order:
            low = middle
        else:
            high = middle
    return low


def main() -> int:
    """Prints a line for each module, and the quartiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="results.parquet of `hloenv bench`")
    parser.add_argument("--split", default="train", help="that was measured")
    args = parser.parse_args()
    rows = [
        row
        for row in pq.read_table(args.results).to_pylist()
        if row["method"] == _METHOD and not row["error"] and not row["same"]
    ]
    if not rows:
        parser.error(f"{args.results} has no module that {_METHOD} changes")
    records = {each.fingerprint: each for each in hloenv.dataset.load(args.split)}
    threads, found = rows[0]["threads"], []
    with KernelCache(threads=threads) as cache:
        for row in rows:
            split = KernelSplit(records[row["fingerprint"]].module, threads=threads)
            times = [t for t in cache.times(split) if not isinstance(t, str)]
            if len(times) < len(split):
                continue
            times_ns = [each * 1e9 for each in times]
            found.append(step_ns(split._graph, times_ns, threads, row["speedup"]))
            print(f"{found[-1]:8.0f} ns, {len(split):4} kernels, {row['module']}")
    quartiles = ", ".join(f"{each:.0f}" for each in np.percentile(found, (25, 50, 75)))
    print(f"{len(found)} modules on {threads} threads: quartiles {quartiles} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
