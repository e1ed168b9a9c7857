# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of `hloenv.dataset`, which episodes start from."""

from __future__ import annotations

from ..dataset.benchmarks import (
    MODULE_SCHEME,
    SCHEME,
    Benchmark,
    find_benchmarks,
    list_benchmark_sets,
)

__all__ = [
    "DEFAULT_BENCHMARK",
    "MODULE_SCHEME",
    "SCHEME",
    "Benchmark",
    "find_benchmarks",
    "list_benchmark_sets",
]

# Of the environments of rewrites and substitutions.
DEFAULT_BENCHMARK = f"{SCHEME}dataset/train?max_instructions=600"
