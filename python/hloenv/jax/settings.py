# SPDX-License-Identifier: Apache-2.0
"""Options that may make the code faster that jaxlib generates itself.

By default XLA prefers vectors of 256 bits, which is best on older processors, and asks
LLVM for its second level of optimization or above, whose loops are made for long
arrays. What a program gains by another choice cannot be told from its operations, and
is measured: up to 1.4, and nothing for most (docs/results/settings.md). Programs
without loops and scatters, which become loops, do not try the first level: it made them
faster by 1.05 at most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidModuleError
from ..graph.hlo_graph import HloGraph, opcodes
from ..runtime.jaxlib.options import WIDTH, OptionValue
from ..runtime.machine import this_machine

if TYPE_CHECKING:
    from ..hlo.module import HloModule

LEVEL = "xla_backend_optimization_level"
# By the end of an attempt's name, in the order in which they are tried, each with those
# before it that have gained.
SETTINGS: dict[str, dict[str, OptionValue]] = {
    "_wider": {WIDTH: 512},
    "_level1": {LEVEL: 1},
}
# Of the processor, where vectors of 256 bits are XLA's choice.
_HAS_WIDER = "avx512f"
# Of a call; what shorter ones take is the runtime's.
_MIN_NS = 50_000
# Instructions; of modules with more, all of which take seconds to compile once more,
# none was clearly faster by vectors of 512 bits.
_MAX_INSTRUCTIONS = 1300
# Operations in a nanosecond of dots and convolutions, on a core that is fast: their
# code is a library's.
_FLOPS = 250.0
# Share of a call in which they may be, for the rest to count.
_MAX_SHARE = 0.7
# Operations that become loops.
_LOOPS = frozenset(("while", "scatter"))


def settings_for(module: HloModule) -> Iterator[str]:
    """Those of `SETTINGS` that may be tried on this processor.

    Args:
        module: as jax lowers it.
    """
    if module.instruction_count > _MAX_INSTRUCTIONS:
        return
    given = os.environ.get("XLA_FLAGS", "")
    for name, options in SETTINGS.items():
        is_wider = WIDTH in options
        if is_wider and _HAS_WIDER not in this_machine().features.split():
            continue
        counts = module.opcode_counts()
        if LEVEL in options and _LOOPS.isdisjoint(counts):
            continue
        if not any(option in given for option in options):
            yield name


def split_name(name: str) -> tuple[str, tuple[str, ...]]:
    """The name of an attempt without settings, and the settings, in order."""
    found: list[str] = []
    for ending in reversed(SETTINGS):
        if name.endswith(ending):
            name = name.removesuffix(ending)
            found.insert(0, ending)
    return name, tuple(found)


def min_ns_of(module: HloModule) -> float:
    """Nanoseconds that a call takes at least if other code can make it faster.

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
