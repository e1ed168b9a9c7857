# SPDX-License-Identifier: Apache-2.0
"""The dataset: HLO modules of public JAX projects.

    for record in hloenv.dataset.load("train"):
        env = hloenv.HloEnv(record.module)

`find_benchmarks("hloenv://dataset/test/flax")` finds modules by URI.
`hloenv.dataset.pyg` provides the dataset as PyTorch Geometric graphs.
"""

from __future__ import annotations

from .benchmarks import Benchmark, find_benchmarks, list_benchmark_sets
from .reader import (
    EXTENTS,
    SPLITS,
    UNSEEN,
    Dataset,
    InputDistribution,
    InputRange,
    Record,
    check,
    folder,
    load,
)

__all__ = [
    "EXTENTS",
    "SPLITS",
    "UNSEEN",
    "Benchmark",
    "Dataset",
    "InputDistribution",
    "InputRange",
    "Record",
    "check",
    "find_benchmarks",
    "folder",
    "list_benchmark_sets",
    "load",
]
