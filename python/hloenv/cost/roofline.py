# SPDX-License-Identifier: Apache-2.0
"""Static estimate of the run time of a final module: a roofline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import HloEnvError
from ..graph.hlo_graph import HloGraph, opcodes
from ..hlo.module import HloModule
from .base import Estimate, decided_module

# Their cost is counted in the computations that they call.
_CALLERS = frozenset({"call", "while", "conditional", "async-start"})
# Take no time.
_FREE = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast"),
        *("after-all", "async-done", "async-update", "opt-barrier"),
    }
)
# A part of what reads them, after XLA's passes.
_VIEWS = frozenset({"broadcast", "reshape", "slice"})
# Not computed while a module is compiled.
_NOT_FOLDED = _CALLERS | {
    *("custom-call", "rng", "rng-bit-generator", "rng-get-and-update-state"),
    *("infeed", "outfeed", "send", "recv", "after-all", "add-dependency"),
}


@dataclass(frozen=True)
class Rates:
    """Rates of a machine: the constants of the roofline.

    The defaults are for one core of a server of 2023; `calibrate` measures them.

    Attributes:
        dot_flops_per_s: of matrix products.
        convolution_flops_per_s: of small convolutions.
        flops_per_s: of all other operations.
        transcendentals_per_s: exp, log, tanh and the like.
        cache_bytes: number of bytes that a kernel moves at the rate of the cache; the
            rest moves at the rate of the memory.
        cache_bytes_per_s: from and to the cache.
        memory_bytes_per_s: from and to the memory.
        s_per_kernel: overhead of a kernel.
    """

    dot_flops_per_s: float = 1e11
    convolution_flops_per_s: float = 5e9
    flops_per_s: float = 4e10
    transcendentals_per_s: float = 1e9
    cache_bytes: float = 2e6
    cache_bytes_per_s: float = 4e10
    memory_bytes_per_s: float = 1e10
    s_per_kernel: float = 1e-7


class Roofline:
    """Estimates modules by the operations and memory traffic of their kernels.

    Attributes:
        rates: of the machine.
        threads: cores that the modules will run on.
    """

    def __init__(self, rates: Rates | None = None, *, threads: int = 1):
        """Without `rates`, only the order of the estimates is meaningful."""
        self.rates = rates or Rates()
        self.threads = threads

    def estimate(self, module: HloModule) -> Estimate:
        """Estimated time of one run of `module`, after the rest of XLA's passes."""
        return self.estimate_many([module])[0]

    def estimate_many(self, modules: Sequence[HloModule]) -> list[Estimate]:
        """One estimate for each module; a failure is the error of its estimate."""
        return [self._estimate(module) for module in modules]

    def _estimate(self, module: HloModule) -> Estimate:
        try:
            decided = decided_module(module, threads=self.threads)
            graph = HloGraph.from_module(decided)
        except HloEnvError as error:
            return Estimate(math.nan, error=str(error))
        times, runs = _kernels(graph, self.rates)
        num_kernels = int(np.count_nonzero((times > 0) & (runs > 0)))
        return Estimate(float(times @ runs), num_kernels)


def estimate_seconds(
    graph: HloGraph, rates: Rates | None = None, *, is_before_passes: bool = False
) -> float:
    """Seconds for one run of a module after XLA's passes.

    A kernel takes a fixed overhead plus the maximum of its arithmetic and its memory
    traffic. The body of a loop counts times its trip count, 1 if unknown; the branches
    of a conditional have equal probability.

    Args:
        graph: of the module.
        rates: of the machine.
        is_before_passes: whether operations take no time that XLA's passes remove:
            those on constants alone, which are computed when a module is compiled, and
            views of an array, which are a part of what reads them.
    """
    times, runs = _kernels(graph, rates or Rates())
    if is_before_passes:
        views = np.isin(np.array(opcodes()), list(_VIEWS))[graph.opcode]
        times[views | _is_constant(graph)] = 0
    return float(times @ runs)


def _is_constant(graph: HloGraph) -> npt.NDArray[np.bool_]:
    """[N] whether a node depends on constants alone, through up to 64 operations."""
    names = np.array(opcodes())
    found: npt.NDArray[np.bool_] = graph.opcode == _index("constant")
    may_be = (np.diff(graph.in_offsets) > 0) & ~np.isin(names, list(_NOT_FOLDED))[
        graph.opcode
    ]
    for _ in range(64):
        others = np.bincount(
            graph.edge_targets[~found[graph.edge_sources]], minlength=graph.num_nodes
        )
        more = found | (may_be & (others == 0))
        if bool((more == found).all()):
            break
        found = more
    return found


def node_seconds(
    graph: HloGraph, rates: Rates | None = None
) -> npt.NDArray[np.float64]:
    """[N] seconds of one run of each node by itself; 0 for calls and control flow."""
    return _kernels(graph, rates or Rates())[0]


def _kernels(
    graph: HloGraph, rates: Rates
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """[N] seconds of each node by itself, and [N] its number of runs."""
    names = np.array(opcodes())
    is_caller = np.isin(names, list(_CALLERS))[graph.opcode]
    is_free = np.isin(names, list(_FREE))[graph.opcode]
    moved = np.where(
        graph.bytes_accessed >= 0,
        graph.bytes_accessed,
        graph.input_bytes + graph.output_bytes,
    )
    cached = np.minimum(moved, rates.cache_bytes)
    traffic = (
        cached / rates.cache_bytes_per_s + (moved - cached) / rates.memory_bytes_per_s
    )
    times = np.maximum(_arithmetic(graph, rates), traffic)
    runs, is_started = _runs(graph, is_caller)
    times += np.where(is_started, rates.s_per_kernel, 0.0)[graph.computation]
    times[is_caller | is_free] = 0
    # XLA compiles the callee to one kernel.
    times[graph.opcode == _index("call")] = rates.s_per_kernel
    return times, runs[graph.computation]


def _arithmetic(graph: HloGraph, rates: Rates) -> npt.NDArray[np.float64]:
    """[N] seconds of arithmetic; that of a fusion is the sum over its body."""
    flops_per_s = np.full(len(opcodes()), rates.flops_per_s)
    flops_per_s[_index("dot")] = rates.dot_flops_per_s
    flops_per_s[_index("convolution")] = rates.convolution_flops_per_s
    times: npt.NDArray[np.float64] = (
        np.maximum(graph.flops, 0) / flops_per_s[graph.opcode]
        + np.maximum(graph.transcendentals, 0) / rates.transcendentals_per_s
    )
    times[graph.opcode == _index("fusion")] = 0
    inner = np.flatnonzero(graph.fusion_node >= 0)
    np.add.at(times, graph.fusion_node[inner], times[inner])
    return times


def _runs(
    graph: HloGraph, is_caller: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """[C] runs of each computation, and whether its nodes are separate kernels.

    Reducers, fusions and similar computations have 0 runs.
    """
    runs = graph.computation_is_entry.astype(np.float64)
    is_started = np.ones(graph.num_computations, np.bool_)
    num_calls = np.bincount(graph.call_nodes, minlength=graph.num_nodes)
    # Callers come after their callees.
    for call in range(len(graph.call_nodes) - 1, -1, -1):
        node = graph.call_nodes[call]
        if not is_caller[node]:
            continue
        times = 1.0
        if graph.opcode[node] == _index("conditional"):
            times = 1 / num_calls[node]
        elif graph.trip_count[node] >= 0:
            times = float(graph.trip_count[node])
        caller, callee = graph.computation[node], graph.call_computations[call]
        runs[callee] += times * runs[caller]
        if graph.opcode[node] == _index("call") or not is_started[caller]:
            is_started[callee] = False
    return runs, is_started


def _index(name: str) -> int:
    return opcodes().index(name)
