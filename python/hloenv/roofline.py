# SPDX-License-Identifier: Apache-2.0
"""A static estimate of how long a final module runs: a roofline, no execution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .graph import HloGraph, opcodes

# What such instructions compute is counted in the computations that they call.
_CALLERS = frozenset({"call", "while", "conditional", "async-start"})
# Take no time: they name values that are there already.
_FREE = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast"),
        *("after-all", "async-done", "async-update", "opt-barrier"),
    }
)


@dataclass(frozen=True)
class Machine:
    """The rates of a roofline: orders of magnitude of one core of a server.

    Good for comparing modules with each other, not for predicting a time.
    """

    flops_per_s: float = 3e10
    transcendentals_per_s: float = 5e8
    bytes_per_s: float = 1e10
    s_per_instruction: float = 3e-7


def estimate_seconds(graph: HloGraph, machine: Machine | None = None) -> float:
    """Seconds for one run of a module that has been through XLA's passes.

    Each instruction takes the longer of its arithmetic and its memory traffic, and a
    fixed time to start. A loop's body counts once, as in XLA's cost analysis, since XLA
    knows how often it runs in some forms of a module and not in others; each branch of
    a conditional counts its share.
    """
    machine = machine or Machine()
    names = np.array(opcodes())
    is_caller = np.isin(names, list(_CALLERS))[graph.opcode]
    is_free = np.isin(names, list(_FREE))[graph.opcode]
    arithmetic = (
        np.maximum(graph.flops, 0) / machine.flops_per_s
        + np.maximum(graph.transcendentals, 0) / machine.transcendentals_per_s
    )
    moved = np.where(
        graph.bytes_accessed >= 0,
        graph.bytes_accessed,
        graph.input_bytes + graph.output_bytes,
    )
    time = np.maximum(arithmetic, moved / machine.bytes_per_s)
    time += machine.s_per_instruction
    time[is_caller | is_free] = 0
    return float(time @ _num_runs(graph, is_caller)[graph.computation])


def _num_runs(
    graph: HloGraph, is_caller: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """[C] how often each computation runs by itself; 0 for reducers, fusions, ..."""
    runs = graph.computation_is_entry.astype(np.float64)
    conditional = opcodes().index("conditional")
    num_calls = np.bincount(graph.call_nodes, minlength=graph.num_nodes)
    # Callers come after what they call.
    for call in range(len(graph.call_nodes) - 1, -1, -1):
        node = graph.call_nodes[call]
        if not is_caller[node]:
            continue
        times = 1 / num_calls[node] if graph.opcode[node] == conditional else 1.0
        runs[graph.call_computations[call]] += times * runs[graph.computation[node]]
    return runs
