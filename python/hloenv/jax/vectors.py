# SPDX-License-Identifier: Apache-2.0
"""Where vectors of 512 bits may make jaxlib's own code faster.

By default XLA prefers vectors of 256 bits, which is best on older processors. On those
with AVX-512, wider ones have made real programs up to 1.3 times as fast, and one GRU
slower (docs/results/settings.md): what a program gains cannot be told from its
operations, and is measured.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidModuleError
from ..graph.hlo_graph import HloGraph, opcodes
from ..runtime.jaxlib.options import OptionValue
from ..runtime.machine import this_machine

if TYPE_CHECKING:
    from ..hlo.module import HloModule

OPTION = "xla_cpu_prefer_vector_width"
WIDE: dict[str, OptionValue] = {OPTION: 512}
# Where those of 256 bits are XLA's choice.
_FEATURE = "avx512f"
# Of a call; what shorter ones take is the runtime's.
_MIN_NS = 50_000
# Instructions; modules with more take many seconds to compile once more.
_MAX_INSTRUCTIONS = 4000
# Operations in a nanosecond of dots and convolutions, on a core that is fast: their
# code is a library's, and has vectors of 512 bits already.
_FLOPS = 250.0
# Share of a call in which they may be, for the rest to count.
_MAX_SHARE = 0.7


def may_be_wider(module: HloModule) -> bool:
    """Whether this processor has wider vectors than XLA prefers, and it can be tried.

    Args:
        module: as jax lowers it.
    """
    is_free = OPTION not in os.environ.get("XLA_FLAGS", "")
    has_them = _FEATURE in this_machine().features.split()
    return is_free and has_them and module.instruction_count <= _MAX_INSTRUCTIONS


def min_ns_of(module: HloModule) -> float:
    """Nanoseconds that a call takes at least if wider vectors can make it faster.

    Args:
        module: with its decisions; each operation of a loop counts once.
    """
    try:
        graph = HloGraph.from_module(module)
    except InvalidModuleError:  # it has no cost
        return _MIN_NS
    names = [opcodes().index(each) for each in ("dot", "convolution")]
    flops = np.maximum(graph.flops[np.isin(graph.opcode, names)], 0.0)
    rate = _FLOPS * this_machine().num_cores
    return max(_MIN_NS, float(flops.sum()) / rate / _MAX_SHARE)
