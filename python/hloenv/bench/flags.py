# SPDX-License-Identifier: Apache-2.0
"""XLA flags of a benchmark: those of its baseline, and settings to compare with."""

from __future__ import annotations

import os

from ..errors import ArgumentError

# XLA's own default. hloenv.compile uses xla_cpu_enable_fast_min_max=false.
BASELINE_FLAGS = "--xla_cpu_enable_fast_min_max=true"

EIGEN_ON_ONE_CORE = "--xla_cpu_multi_thread_eigen=false"
NO_FAST_MIN_MAX = "--xla_cpu_enable_fast_min_max=false"

# Candidates for the best flags of a module, in addition to the baseline's.
SETTINGS = (
    EIGEN_ON_ONE_CORE,
    f"{EIGEN_ON_ONE_CORE} --xla_cpu_prefer_vector_width=512",
    NO_FAST_MIN_MAX,
    "--xla_cpu_enable_fast_math=true",
    "--xla_cpu_prefer_vector_width=512",
    "--xla_cpu_prefer_vector_width=128",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_enable_concurrency_optimized_scheduler=true",
    "--xla_cpu_copy_insertion_use_region_analysis=true",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_experimental_onednn_custom_call=true",
)

_VARIABLE = "XLA_FLAGS"


def baseline_flags() -> str:
    """`BASELINE_FLAGS`, changed by the user's XLA_FLAGS.

    Raises:
        ArgumentError: XLA_FLAGS names a file.
    """
    given = os.environ.get(_VARIABLE, "").strip()
    if given and not given.startswith("-"):
        raise ArgumentError(
            f"{_VARIABLE} names the file {given!r}; set it to the flags themselves, "
            "which a benchmark reports"
        )
    return joined(BASELINE_FLAGS, given)


def joined(*flags: str) -> str:
    """All of the flags; XLA uses the last of equal ones."""
    return " ".join(" ".join(flags).split())


def use(flags: str) -> None:
    """Sets XLA's flags for this process; call it before the first use of XLA."""
    if flags:
        os.environ[_VARIABLE] = flags
    else:
        os.environ.pop(_VARIABLE, None)
