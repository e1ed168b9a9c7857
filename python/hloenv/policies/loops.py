# SPDX-License-Identifier: Apache-2.0
"""Accepts loops and runs as single kernels where an estimate expects a gain.

The rates were measured on one core of a server, with loops of one operation each, as
thunks and as one kernel. They decide only between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from .base import register_policy

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph
    from ..rewrite.alternatives import Alternatives

_PASS = "single-kernel"
_RUN = "run"  # a rule of it
# They make XLA's runtime do less: small dots without a library, steps in sequence.
_OF_RUNTIME = frozenset({"dot-lowering", "thunk-order"})

# Nanoseconds to start a thunk, and to do the same inside a kernel.
_THUNK_NS = 50.0
_STEP_NS = 8.0
# To start a library's matrix product, in addition to a thunk.
_LIBRARY_NS = 350.0
# For each element that a library reduces, there and in a kernel, which has no vectors
# for it; nor for columns of a slice. Other reductions are the same loops in both.
_LIBRARY_REDUCED_NS = 0.25
_REDUCED_NS = 0.7
# For each element of a reduction of several arrays, such as an argmax: a loop of
# compares, which LLVM vectorizes in a function of its own.
_SEVERAL_NS, _SEVERAL_IN_KERNEL_NS = 0.6, 2.5
# To run a scatter's update as an iteration of a loop inside a kernel.
_UPDATE_NS = 40.0
# For each product of a dot of f32: in a library; and in a kernel, if LLVM unrolls the
# innermost loop and vectorizes the next, if it only unrolls, and if neither.
_LIBRARY_PRODUCT_NS = 0.04
_VECTOR_PRODUCT_NS = 0.04
_UNROLLED_NS = 0.002  # in addition, for each iteration of the innermost loop
_ROW_PRODUCT_NS = 0.7
_SCALAR_PRODUCT_NS = 1.1
_CONVOLUTION_PRODUCT_NS = 2.0
# LLVM unrolls loops up to this.
_MAX_UNROLLED = 32
# What both do, for each byte, operation and exp, log, tanh and the like.
_BYTE_NS = 0.02
_FLOP_NS = 0.02
_TRANSCENDENTAL_NS = 0.5
# XLA partitions larger operations among threads; a kernel has one.
_MAX_BYTES = 1 << 17
_LOST_THREADS_NS = 0.1  # for each byte
# Iterations of a loop whose number is not known.
_UNKNOWN_TRIPS = 16
# Compiling a kernel takes a time that grows with the square of its size.
_MAX_INSTRUCTIONS = 2000
# The expected speedup and the expected gain of a call must exceed these.
_MIN_SPEEDUP = 1.15
_MIN_GAIN_NS = 1000.0
# Loops around a computation that are looked at.
_MAX_DEPTH = 8

_FREE = frozenset(
    {
        "add-dependency",
        "after-all",
        "bitcast",
        "constant",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "tuple",
    }
)
_DOT = ("dot_batch_size", "dot_lhs_size", "dot_rhs_size", "dot_contracting_size")


@dataclass
class _Time:
    """Nanoseconds of one run of a computation."""

    thunks: float = 0.0
    kernel: float = 0.0

    def add(self, other: _Time, times: float = 1.0) -> None:
        self.thunks += times * other.thunks
        self.kernel += times * other.kernel


class SmallLoops:
    """Accepts single-kernel loops and runs that are estimated to be faster.

    A kernel starts no thunks, which dominate small loops, but has no library and no
    threads. The estimate adds up, for each iteration, the thunks, the products of dots
    and convolutions in either form, and what both do. Loops without a known number of
    iterations count as 16. Loops of more than 2,000 instructions are left alone, since
    they would take long to compile. A run of small instructions in another loop is
    estimated in the same way, as often as that runs. All other alternatives stay
    undecided.
    """

    def __init__(self, *, everywhere: bool = False, min_gain_ns: float = 0.0) -> None:
        """Sets what is accepted.

        Args:
            everywhere: also runs outside of loops.
            min_gain_ns: what all that is accepted must save of a call; nothing is if
                it saves less.
        """
        self._everywhere = everywhere
        self._min_gain_ns = min_gain_ns

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the choice of the first rule of single-kernel, or -1 (undecided)."""
        decisions = alternatives.leave_to_xla()
        found = {
            each.index: choice
            for each in alternatives
            for choice in range(each.num_choices - 1, 0, -1)
            if _PASS in each.choices[choice].passes
        }
        if found:
            estimate = _Estimate(alternatives.graph)
            total_ns = 0.0
            for index, choice in found.items():
                is_run = alternatives[index].choices[choice].rule == _RUN
                if is_run:
                    gain_ns = estimate.run_gain(index, choice, self._everywhere)
                else:
                    gain_ns = estimate.loop_gain(index)
                if gain_ns:
                    decisions[index] = choice
                total_ns += gain_ns
            if total_ns < self._min_gain_ns:
                decisions[list(found)] = -1
        return decisions


class LowOverhead:
    """Accepts what makes XLA's runtime do less, for modules of microseconds.

    Single kernels as `SmallLoops`, the lowering of dots to tiled LLVM IR, and thunks in
    sequence. Which dots are offered is an option of dot-lowering. All other
    alternatives stay undecided.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the first choice of these passes, or -1 (undecided)."""
        decisions = SmallLoops(everywhere=True)(alternatives)
        for each in alternatives:
            if _OF_RUNTIME.intersection(each.choices[-1].passes):
                decisions[each.index] = 1
        return decisions


def _gain(time: _Time, runs: float) -> float:
    """Nanoseconds of a call that a kernel saves; 0 if that is too little."""
    gain = (time.thunks - time.kernel) * runs
    pays = gain > _MIN_GAIN_NS and time.thunks > _MIN_SPEEDUP * time.kernel
    return gain if pays else 0.0


class _Estimate:
    """Times of the computations of an alternative graph."""

    def __init__(self, graph: HloGraph) -> None:
        from ..graph.hlo_graph import fusion_kinds, opcodes

        self._graph = graph
        self._opcodes = opcodes()
        self._library_kind = fusion_kinds().index("kCustom")
        self._dots = graph.attribute_block([*_DOT, "rhs_contracting_0"])
        self._times: dict[int, _Time] = {}
        self._sizes: dict[int, int] = {}

    def loop_gain(self, alternative: int) -> float:
        """What a kernel of the original of an alternative saves, as of `_gain`."""
        loop = self._graph.choice_node(alternative, 0)
        if self._size_of(loop) > _MAX_INSTRUCTIONS:
            return 0.0
        return _gain(self._of_node(loop), 1.0)

    def run_gain(self, alternative: int, choice: int, everywhere: bool) -> float:
        """What the call saves that a choice makes of a run, as of `_gain`."""
        graph = self._graph
        node = graph.choice_node(alternative, choice)
        while self._opcodes[graph.opcode[node]] != "call":  # an element of its result
            node = int(graph.edge_sources[graph.in_offsets[node]])
        runs = self._runs_of(int(graph.computation[node]))
        if runs <= 1 and not everywhere:
            return 0.0
        (region,) = self._callees[node]
        time = _Time(0.0, _THUNK_NS)
        begin, end = graph.computation_offsets[region : region + 2]
        for each in range(int(begin), int(end)):
            time.add(self._of_node(each))
        return _gain(time, runs)

    def _runs_of(self, computation: int) -> float:
        """How often a computation runs in a call of the module."""
        times = 1.0
        for _ in range(_MAX_DEPTH):
            (places,) = np.nonzero(self._graph.call_computations == computation)
            if not len(places):
                return times
            caller = int(self._graph.call_nodes[places[0]])
            if self._opcodes[self._graph.opcode[caller]] == "while":
                trips = int(self._graph.trip_count[caller])
                times *= trips if trips >= 0 else _UNKNOWN_TRIPS
            computation = int(self._graph.computation[caller])
        return times

    def _size_of(self, node: int) -> int:
        """Number of instructions of everything that it calls."""
        return sum(self._size_inside(each) for each in self._callees.get(node, ()))

    def _size_inside(self, computation: int) -> int:
        if computation not in self._sizes:
            begin, end = self._graph.computation_offsets[computation : computation + 2]
            first, last = np.searchsorted(self._callers, (begin, end))
            own = int(self._graph.computation_num_instructions[computation])
            called = map(self._size_of, self._callers[first:last].tolist())
            self._sizes[computation] = own + sum(called)
        return self._sizes[computation]

    @cached_property
    def _callers(self) -> np.ndarray:
        """The nodes that call computations, sorted."""
        return np.unique(self._graph.call_nodes)

    @cached_property
    def _callees(self) -> dict[int, list[int]]:
        callees: dict[int, list[int]] = {}
        graph = self._graph
        for node, computation in zip(
            graph.call_nodes.tolist(), graph.call_computations.tolist(), strict=True
        ):
            callees.setdefault(node, []).append(computation)
        return callees

    @cached_property
    def _is_choice(self) -> np.ndarray:
        """[N] made by a choice, or the site of an alternative."""
        graph = self._graph
        marked = graph.is_alternative.copy()
        marked[graph.site_choice_nodes] = True
        marked[graph.site_choice_nodes[graph.site_choice_offsets[:-1]]] = False
        return marked

    def _of_computation(self, computation: int) -> _Time:
        time = self._times.get(computation)
        if time is None:
            time = _Time()
            begin, end = self._graph.computation_offsets[computation : computation + 2]
            for node in range(int(begin), int(end)):
                if not self._is_choice[node]:
                    time.add(self._of_node(node))
            self._times[computation] = time
        return time

    def _of_node(self, node: int) -> _Time:
        opcode = self._opcodes[self._graph.opcode[node]]
        if opcode in _FREE:
            return _Time()
        callees = self._callees.get(node, [])
        if opcode == "while":
            return self._of_loop(node, callees)
        if opcode in ("call", "conditional"):
            time = _Time(_THUNK_NS, _STEP_NS)
            share = 1.0 / len(callees) if callees else 0.0
            for callee in callees:
                time.add(self._of_computation(callee), share)
            return time
        if opcode == "fusion":
            return self._of_fusion(node, callees[0])
        if opcode == "dot":
            return self._of_dot(node)
        return self._of_operation(node, opcode)

    def _of_loop(self, node: int, callees: list[int]) -> _Time:
        trips = int(self._graph.trip_count[node])
        time = _Time(_THUNK_NS, _STEP_NS)
        for callee in callees:
            time.add(
                self._of_computation(callee), trips if trips >= 0 else _UNKNOWN_TRIPS
            )
        return time

    def _of_fusion(self, node: int, fused: int) -> _Time:
        """A library's fusion is the sum of its operations, another one of its own."""
        graph = self._graph
        begin, end = graph.computation_offsets[fused : fused + 2]
        inside = range(int(begin), int(end))
        names = [self._opcodes[each] for each in graph.opcode[begin:end]]
        for inner, name in zip(inside, names, strict=True):
            if name == "dot":
                return self._of_dot(inner)
            if name == "scatter":
                return self._of_scatter(inner)
        time = self._of_operation(node, "fusion")
        for inner, name in zip(inside, names, strict=True):
            if name == "reduce":
                self._add_reduced(time, inner)
        is_library = graph.fusion_kind[node] == self._library_kind
        if is_library or "dynamic-slice" in names:
            for inner, name in zip(inside, names, strict=True):
                if name != "reduce":
                    continue
                read = int(graph.edge_sources[graph.in_offsets[inner]])
                elements = float(graph.element_count[read])
                if is_library:
                    time.thunks += elements * _LIBRARY_REDUCED_NS
                if is_library or self._keeps_last(read, inner):
                    time.kernel += elements * _REDUCED_NS
        return time

    def _keeps_last(self, array: int, reduced: int) -> bool:
        """Whether a reduction keeps the last dimension; a square counts as if so."""
        graph = self._graph
        ranks = (int(graph.rank[array]), int(graph.rank[reduced]))
        if min(ranks) == 0:
            return False
        last = [
            int(graph.dims[node, rank - 1])
            for node, rank in zip((array, reduced), ranks, strict=True)
        ]
        return last[0] == last[1]

    def _of_operation(self, node: int, opcode: str) -> _Time:
        if opcode == "scatter":
            return self._of_scatter(node)
        graph = self._graph
        size = max(float(graph.bytes_accessed[node]), 0.0)
        flops = max(float(graph.flops[node]), 0.0)
        if opcode == "convolution":
            products = flops / 2
            return _Time(
                _THUNK_NS + _LIBRARY_NS + products * _LIBRARY_PRODUCT_NS,
                _STEP_NS + products * _CONVOLUTION_PRODUCT_NS,
            )
        work = size * _BYTE_NS + flops * _FLOP_NS
        work += float(graph.transcendentals[node]) * _TRANSCENDENTAL_NS
        lost = size * _LOST_THREADS_NS if size > _MAX_BYTES else 0.0
        time = _Time(_THUNK_NS + work, _STEP_NS + work + lost)
        if opcode == "reduce":
            self._add_reduced(time, node)
        return time

    def _add_reduced(self, time: _Time, node: int) -> None:
        """Adds what a reduction takes beside its bytes if it is of several arrays."""
        graph = self._graph
        first, end = graph.in_offsets[node : node + 2]
        if end - first > 2:
            elements = float(graph.element_count[graph.edge_sources[first]])
            time.thunks += elements * _SEVERAL_NS
            time.kernel += elements * _SEVERAL_IN_KERNEL_NS

    def _of_dot(self, node: int) -> _Time:
        batch, lhs, rhs, contracted, dimension = self._dots[node].tolist()
        products = float(batch * lhs * rhs * contracted)
        graph = self._graph
        # Wider types take longer in proportion.
        elements = max(float(graph.element_count[node]), 1.0)
        products *= float(graph.output_bytes[node]) / elements / 4
        if min(lhs, rhs) == 1:
            # Products with a vector are the same loops in a thunk.
            work = products * _VECTOR_PRODUCT_NS
            return _Time(_THUNK_NS + work, _STEP_NS + work)
        right = int(graph.in_offsets[node]) + 1
        if contracted > _MAX_UNROLLED:
            rate = _SCALAR_PRODUCT_NS
        elif int(graph.edge_minor_to_major[right, 0]) == dimension:
            rate = _ROW_PRODUCT_NS
        else:
            rate = _VECTOR_PRODUCT_NS + _UNROLLED_NS * contracted
        return _Time(
            _THUNK_NS + _LIBRARY_NS + products * _LIBRARY_PRODUCT_NS,
            _STEP_NS + products * rate,
        )

    def _of_scatter(self, node: int) -> _Time:
        graph = self._graph
        indices = int(graph.edge_sources[graph.in_offsets[node] + 1])
        updates = int(graph.edge_sources[graph.in_offsets[node + 1] - 1])
        rows = min(int(graph.element_count[each]) for each in (indices, updates))
        work = float(graph.element_count[updates])
        return _Time(
            _THUNK_NS + work + rows * 2.0,
            _STEP_NS + work + rows * _UPDATE_NS,
        )


register_policy(
    "small-loops",
    "make loops, and runs of small instructions in loops, single kernels where that is "
    "estimated to be faster; leave the rest undecided",
    lambda _: SmallLoops(),
)

register_policy(
    "low-overhead",
    "as small-loops, and small dots without a library, steps in sequence; leave the "
    "rest undecided",
    lambda _: LowOverhead(),
)
