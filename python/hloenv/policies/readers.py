# SPDX-License-Identifier: Apache-2.0
"""What reads a value of a graph."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._typing import Int64Array
from ..graph.hlo_graph import dtypes, opcodes
from ..rewrite.choice_deltas import is_original

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph
    from ..rewrite.alternatives import Alternatives

# How many times the elements of a value are read, from which computing them each time
# was slower than reading them from memory (softmax of 8 elements was not).
_MANY_TIMES = 16
# Readers to look at.
_MAX_READERS = 64
# Those that may read an element several times; and those that XLA does not fuse with
# what they read.
_REPEATING = frozenset(("broadcast", "gather"))
_SEPARATE = frozenset(
    (
        *("call", "conditional", "convolution", "dot", "dynamic-update-slice", "fft"),
        *("opt-barrier", "reduce", "reduce-window", "scatter", "sort", "tuple"),
        "while",
    )
)


# Operations that jaxlib's library takes along with a reduction.
_ARITHMETIC = frozenset(
    ("abs", "add", "divide", "maximum", "minimum", "multiply", "negate", "subtract")
)
# Those that are arrays, or read elements elsewhere, for `sources_of`.
_BOUNDARIES = (
    _REPEATING
    | _SEPARATE
    | frozenset(
        (
            *("concatenate", "constant", "custom-call", "dynamic-slice", "fusion"),
            *("get-tuple-element", "iota", "pad", "parameter", "reverse", "slice"),
            *("transpose", "triangular-solve", "cholesky", "rng-bit-generator"),
        )
    )
)
_REDUCERS = frozenset(("add", "maximum", "minimum"))
# Those that have what they read in their loop, where LLVM may make no vectors of it.
_LOOPING = frozenset(("concatenate", "pad", "reduce", "reduce-window", "sort"))


# Nodes of what is computed that are looked at.
_MAX_SOURCES = 64


def sources_of(graph: HloGraph, node: int) -> set[int]:
    """The nodes that a node is computed of, one after the other, in one kernel.

    Operations that read elements elsewhere, and arrays, are found, but not what they
    are computed of. The nearest, if there are very many.

    Args:
        graph: of the alternatives, or of a module.
        node: the node.
    """
    found: dict[int, None] = {}
    left = [node]
    for each in left:
        if each != node and opcodes()[graph.opcode[each]] in _BOUNDARIES:
            continue
        begin, end = graph.in_offsets[each : each + 2].tolist()
        new = dict.fromkeys(graph.edge_sources[begin:end].tolist())
        left += [source for source in new if source not in found]
        found |= new
        if len(found) > _MAX_SOURCES:
            break
    return set(found)


def reducer_of(graph: HloGraph, node: int) -> str:
    """The operation at the root of what a reduction calls."""
    called = graph.call_computations[graph.call_nodes == node]
    root = int(graph.computation_roots[int(called[0])])
    return str(opcodes()[graph.opcode[root]])


class Readers:
    """The readers of the values of an alternative graph."""

    def __init__(self, alternatives: Alternatives) -> None:
        """Holds alternatives and their graph."""
        self._alternatives = alternatives
        self._graph = alternatives.graph

    @functools.cached_property
    def _is_counted(self) -> npt.NDArray[np.bool_]:
        """[N] nodes of the module, and the sites of alternatives."""
        found = is_original(self._alternatives)
        found[self._graph.site_nodes] = True
        return found

    @functools.cached_property
    def _by_source(self) -> tuple[Int64Array, Int64Array]:
        order = np.argsort(self._graph.edge_sources, kind="stable")
        return self._graph.edge_sources[order], self._graph.edge_targets[order]

    @functools.cached_property
    def _opcodes(self) -> tuple[str, ...]:
        return opcodes()

    def of(self, node: int) -> list[int]:
        """The nodes that read `node`."""
        sources, targets = self._by_source
        begin, end = np.searchsorted(sources, [node, node + 1])
        found: list[int] = targets[begin:end].tolist()
        return found

    def repeat(self, node: int) -> bool:
        """Whether XLA, if it fuses `node` with its readers, computes it many times.

        Elementwise operations between them are fused too.
        """
        least = _MANY_TIMES * int(self._graph.element_count[node])
        readers, _ = self._fused(node)
        return any(
            self._opcode_of(each) in _REPEATING
            and int(self._graph.element_count[each]) >= least
            for each in readers
        )

    def loop(self, node: int) -> bool:
        """Whether XLA, if it fuses `node`, computes it inside of a reader's loop."""
        readers, are_all = self._fused(node)
        return not are_all or any(self._opcode_of(each) in _LOOPING for each in readers)

    def transpose(self, node: int, nodes: Collection[int]) -> bool:
        """Whether some of `nodes` read `node` transposed, and XLA fuses that with it.

        Other elementwise operations may be in between.
        """
        readers, _ = self._fused(node)
        transposed = (each for each in readers if self._opcode_of(each) == "transpose")
        return any(not set(self._fused(t)[0]).isdisjoint(nodes) for t in transposed)

    def reduce(self, node: int) -> bool:
        """Whether all that reads `node`, or arithmetic on it, are the library's sums.

        Or its largest or smallest numbers.
        """
        found, left = {node}, [node]
        while left and len(found) <= _MAX_READERS:
            readers = [each for each in self.of(left.pop()) if self._is_counted[each]]
            if not readers:
                return False
            for reader in readers:
                opcode = self._opcodes[self._graph.opcode[reader]]
                if opcode in _ARITHMETIC and reader not in found:
                    found.add(reader)
                    left.append(reader)
                elif opcode not in _ARITHMETIC and not self._is_of_library(reader):
                    return False
        return not left

    def _is_of_library(self, reader: int) -> bool:
        graph = self._graph
        return (
            self._opcodes[graph.opcode[reader]] == "reduce"
            and dtypes()[graph.dtype[reader]] == "f32"
            and int(graph.operand_count[reader]) == 2
            and reducer_of(graph, reader) in _REDUCERS
        )

    def _opcode_of(self, node: int) -> str:
        return str(self._opcodes[self._graph.opcode[node]])

    def _fused(self, node: int) -> tuple[list[int], bool]:
        """What reads `node`, or what XLA fuses with it; and whether these are all."""
        count = int(self._graph.element_count[node])
        found, left, readers = {node}, [node], list[int]()
        while left and len(found) <= _MAX_READERS:
            for reader in self.of(left.pop()):
                elements = int(self._graph.element_count[reader])
                readers.append(reader)
                is_fused = (
                    self._opcode_of(reader) not in _SEPARATE and elements == count
                )
                if is_fused and reader not in found:
                    found.add(reader)
                    left.append(reader)
        return readers, not left

    def add(self, node: int) -> bool:
        """Whether something is added to `node`."""
        readers = [each for each in self.of(node) if self._is_counted[each]]
        return any(self._opcodes[self._graph.opcode[each]] == "add" for each in readers)

    def branch(self, node: int) -> bool:
        """Whether XLA, if it fuses `node` with its readers, computes it several times.

        It makes one kernel of elementwise operations up to each operation that is not
        fused, and of the last ones. Operations of choices other than the originals are
        no readers.
        """
        graph = self._graph
        count = int(graph.element_count[node])
        fused, left, ends = {node}, [node], set()
        while left and len(fused) <= _MAX_READERS:
            last = left.pop()
            readers = [each for each in self.of(last) if self._is_counted[each]]
            ends |= set() if readers else {last}
            for reader in readers:
                opcode = self._opcodes[graph.opcode[reader]]
                if opcode in _SEPARATE or int(graph.element_count[reader]) != count:
                    ends.add(reader)
                elif reader not in fused:
                    fused.add(reader)
                    left.append(reader)
            if len(ends) > 1:
                return True
        return False
