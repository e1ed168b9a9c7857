# SPDX-License-Identifier: Apache-2.0
"""Decisions that make the runtime of the wheel's XLA do less."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from ..graph.hlo_graph import HloGraph
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
# Above this, what a call takes is not the runtime's; except in loops.
MAX_NS = 300_000
# Of a module that has no loops, before XLA's passes; they remove much.
_MAX_INSTRUCTIONS = 3000
# For each byte, operation, and exp, log and the like.
_BYTE_NS, _FLOP_NS, _TRANSCENDENTAL_NS = 0.02, 0.02, 0.5


def for_wheel(decided: Decided) -> Decided:
    """What was decided, for the wheel's XLA, and there with less overhead.

    Args:
        decided: before XLA's passes.

    Raises:
        HloEnvError: a pass fails.
    """
    policy = get_policy("low-overhead")
    less = decide(decided.applied, policy, as_pipelines(_PASSES))
    if not less.num_accepted:
        return replace(decided, route="stablehlo", engine="wheel")
    return replace(
        less,
        module=decided.module,
        num_alternatives=decided.num_alternatives + less.num_alternatives,
        num_rejected=decided.num_rejected + less.num_rejected,
        accepted=Counter(decided.accepted) + Counter(less.accepted),
        engine="wheel",
    )


def may_be_short(module: HloModule) -> bool:
    """Whether a call of a module without loops may take less than `MAX_NS`."""
    if module.instruction_count > _MAX_INSTRUCTIONS:
        return False
    graph = HloGraph.from_module(module)
    parts = (
        (graph.bytes_accessed, _BYTE_NS),
        (graph.flops, _FLOP_NS),
        (graph.transcendentals, _TRANSCENDENTAL_NS),
    )
    total_ns = sum(float(np.maximum(each, 0).sum()) * rate for each, rate in parts)
    return total_ns <= MAX_NS
