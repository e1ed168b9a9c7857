# SPDX-License-Identifier: Apache-2.0
"""Decisions that make the runtime of the wheel's XLA do less."""

from __future__ import annotations

from ..hlo.module import HloModule
from ..hlo.passes import Pass
from ..policies import get_policy
from ..search.spaces import SMALL_DOT_PRODUCTS
from .decide import Decided, as_pipelines, decide

_PASSES = (
    Pass("dot-lowering", max_products=SMALL_DOT_PRODUCTS),
    "single-kernel",
    "thunk-order",
)
# Above this, what a call takes is not the runtime's.
MAX_NS = 300_000


def with_less_overhead(module: HloModule) -> Decided | None:
    """The module for the wheel's XLA with less overhead; None if no rule applies.

    Args:
        module: before XLA's passes; decisions on it stay.

    Raises:
        HloEnvError: a pass fails.
    """
    decided = decide(
        module, get_policy("low-overhead"), as_pipelines(_PASSES), until=None
    )
    return decided if decided.num_accepted else None
