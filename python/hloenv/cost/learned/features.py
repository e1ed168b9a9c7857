# SPDX-License-Identifier: Apache-2.0
"""Kernels as arrays: what the learned cost model sees.

A kernel is its instruction, the parameters and constants that it reads, and the
instructions inside it: of a fusion, or of a call that XLA compiles to one function.
Features depend on the kernel alone, not on the others of its module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt

from ...errors import GraphError
from ...graph.hlo_graph import MAX_RANK, HloGraph, dtypes, opcodes
from ...graph.pyg import node_features, node_matrix
from ...hlo.module import HloModule
from ...hlo.text import logical_lines
from ..roofline import node_seconds

# Of these functions; other columns, or columns that mean something else, add 1.
FEATURE_VERSION = 1
# In one batch: what fits into about 2 GB with the default widths.
MAX_NODES = 500_000
# Computations of these are part of the kernel; those of others, such as reducers, are
# features of the instruction that calls them.
_INSIDE = ("fusion", "call", "while", "conditional", "async-start")
# Of a frontend attribute; see csrc/backend/dot_lowering.h.
_TILED_MARK = "hloenv_dot"
_TILED = re.compile(rf' *(?:ROOT )?%?([^ ]+) = .*{_TILED_MARK}="loops"', re.DOTALL)
_ASSUMED_TRIPS = 16  # as for loops outside kernels
_INDEX_ATTRIBUTES = (
    *(f"dimensions_{k}" for k in range(4)),
    *("lhs_contracting_0", "rhs_contracting_0", "input_feature", "output_feature"),
    *("kernel_input_feature", "kernel_output_feature"),
)
_SIZE_ATTRIBUTES = (
    *(f"sizes_{k}" for k in range(4)),
    *(f"strides_{k}" for k in range(4)),
    *(f"low_{k}" for k in range(3)),
    *(f"high_{k}" for k in range(3)),
    *("base_dilations_0", "window_dilations_0", "feature_group_count"),
)


def kernel_node_features() -> tuple[str, ...]:
    """Names of the columns of `Kernels.x`.

    Those of `hloenv.graph.pyg.node_features`, attributes, and what follows from the
    kernel: `log_minor` and `log_second_minor` are the two extents that vary fastest in
    memory, `runs` those in one run of the kernel, `callee` a reducer or comparator.
    `evaluations` are the elements that a fusion computes of a node: more than it has,
    `repetitions` times, where users read elements several times. `is_tiled` are dots
    that the backend lowers to tiled LLVM IR by a decision of `dot-lowering`.
    """
    return (
        *node_features(),
        *_INDEX_ATTRIBUTES,
        *(f"log_{name}" for name in _SIZE_ATTRIBUTES),
        *("log_minor", "log_second_minor", "log_runs", "is_kernel", "is_outside"),
        *("log_callee_instructions", "log_callee_flops", "log_node_s"),
        *("log_evaluations", "log_repetitions", "is_tiled"),
    )


def edge_features() -> tuple[str, ...]:
    """Names of the columns of `Kernels.edge_x`."""
    return (
        *("log_bytes", "is_first_operand", "is_second_operand"),
        *("has_same_minor", "has_same_size", "is_from_root", "is_to_parameter"),
    )


def kernel_features() -> tuple[str, ...]:
    """Names of the columns of `Kernels.kernel_x`; sums over one run of the kernel."""
    return (
        *("log_flops", "log_transcendentals", "log_bytes", "log_input_bytes"),
        *("log_output_bytes", "log_num_nodes", "log_work", "log_roofline_ns"),
    )


@cache
def feature_digest() -> str:
    """Identifies the meaning of all columns and indices."""
    names = (
        *(str(FEATURE_VERSION), "nodes", *kernel_node_features()),
        *("edges", *edge_features(), "kernels", *kernel_features()),
        *("opcodes", *opcodes(), "dtypes", *dtypes()),
    )
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Kernels:
    """Arrays of K kernels, with N nodes and E edges in all.

    Attributes:
        opcode: [N] int64 index into `opcodes()`.
        callee_opcode: [N] int64 1 + the opcode of the root of a node's reducer or the
            like; 0 for none.
        dtype: [N] int64 index into `dtypes()`.
        x: [N, F] float32, named by `kernel_node_features`.
        work: [N] float32 log of 1 + the elements or operations that one run of its
            kernel computes for the node, with repetitions.
        node_kernel: [N] int64 kernel of each node.
        edges: [2, E] int64 source and target node; a source comes from the same kernel.
        edge_x: [E, F] float32, named by `edge_features`.
        kernel_x: [K, F] float32, named by `kernel_features`.
    """

    opcode: npt.NDArray[np.int64]
    callee_opcode: npt.NDArray[np.int64]
    dtype: npt.NDArray[np.int64]
    x: npt.NDArray[np.float32]
    work: npt.NDArray[np.float32]
    node_kernel: npt.NDArray[np.int64]
    edges: npt.NDArray[np.int64]
    edge_x: npt.NDArray[np.float32]
    kernel_x: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.kernel_x)

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.opcode)

    @classmethod
    def concatenate(cls, parts: Sequence[Kernels]) -> Kernels:
        """The kernels of all parts, in order; at least one part."""
        nodes = np.cumsum([0, *(part.num_nodes for part in parts)])
        kernels = np.cumsum([0, *(len(part) for part in parts)])
        shifted = {
            "node_kernel": [
                part.node_kernel + start
                for part, start in zip(parts, kernels, strict=False)
            ],
            "edges": [
                part.edges + start for part, start in zip(parts, nodes, strict=False)
            ],
        }
        columns = {
            each.name: np.concatenate(
                shifted.get(each.name, [getattr(part, each.name) for part in parts]),
                axis=1 if each.name == "edges" else 0,
            )
            for each in fields(cls)
        }
        return cls(**columns)

    def select(self, kernels: npt.NDArray[np.int64]) -> Kernels:
        """Some of the kernels, in this order; each at most once."""
        number = np.full(len(self), -1, np.int64)
        number[kernels] = np.arange(len(kernels))
        of_node = number[self.node_kernel]
        # By kernel, and in the order of before inside each.
        nodes = np.argsort(of_node, kind="stable")[np.count_nonzero(of_node < 0) :]
        place = np.full(self.num_nodes, -1, np.int64)
        place[nodes] = np.arange(len(nodes))
        edges = np.flatnonzero(place[self.edges[0]] >= 0)
        edges = edges[np.argsort(of_node[self.edges[1, edges]], kind="stable")]
        return Kernels(
            self.opcode[nodes],
            self.callee_opcode[nodes],
            self.dtype[nodes],
            self.x[nodes],
            self.work[nodes],
            of_node[nodes],
            place[self.edges[:, edges]],
            self.edge_x[edges],
            self.kernel_x[kernels],
        )


def kernels_of(module: HloModule, *, max_nodes: int = MAX_NODES) -> Kernels:
    """The kernels of a module that `KernelSplit.extract` made, in its order.

    Raises:
        GraphError: the module has more than `max_nodes` nodes, or is not of that form.
    """
    graph = HloGraph.from_module(module)
    if graph.num_nodes > max_nodes:
        raise GraphError(
            f"the kernels have {graph.num_nodes:,} instructions, more than the limit "
            f"of {max_nodes:,}; estimate fewer modules at a time, or use the roofline "
            "or the kernel cache"
        )
    entry = int(np.flatnonzero(graph.computation_is_entry)[0])
    root = int(graph.computation_roots[entry])
    outputs = graph.operands(root)
    if opcodes()[graph.opcode[root]] != "tuple" or not len(outputs):
        raise GraphError(
            f"{graph.module_name!r} does not end with a tuple of its kernels; make it "
            "by KernelSplit.extract"
        )
    return _Builder(graph, entry, outputs, _tiled(module, graph)).build()


class _Builder:
    """Arrays of the kernels `outputs`, which are nodes of the entry."""

    def __init__(
        self,
        graph: HloGraph,
        entry: int,
        outputs: npt.NDArray[np.int64],
        is_tiled: npt.NDArray[np.bool_],
    ) -> None:
        self._is_tiled = is_tiled
        self._graph = graph
        self._entry = entry
        self._outputs = outputs
        self._of_node, self._runs = self._assign()
        self._evaluations = _evaluations(graph)
        kept = np.flatnonzero(self._of_node >= 0)
        self._nodes = kept[np.argsort(self._of_node[kept], kind="stable")]
        self._place = np.full(graph.num_nodes, -1, np.int64)
        self._place[self._nodes] = np.arange(len(self._nodes))

    def build(self) -> Kernels:
        graph, nodes = self._graph, self._nodes
        node_s = node_seconds(graph)
        callees = self._callees()
        edges, edge_x = self._edges()
        x = np.concatenate(
            [node_matrix(graph).numpy(), self._columns(node_s, callees)], axis=1
        )
        work = self._work()
        return Kernels(
            graph.opcode[nodes].astype(np.int64),
            callees["opcode"][nodes],
            graph.dtype[nodes].astype(np.int64),
            x[nodes].astype(np.float32),
            np.log1p(work[nodes]).astype(np.float32),
            self._of_node[nodes],
            edges,
            edge_x,
            self._kernel_x(node_s, work),
        )

    def _assign(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """[N] kernel of each node, -1 for none; [N] its runs in one of the kernel."""
        graph = self._graph
        of_node = np.full(graph.num_nodes, -1, np.int64)
        of_node[self._outputs] = np.arange(len(self._outputs))
        is_read = (of_node[graph.edge_targets] >= 0) & (of_node[graph.edge_sources] < 0)
        of_node[graph.edge_sources[is_read]] = of_node[graph.edge_targets[is_read]]
        caller = graph.computation_callers
        is_inside = (caller >= 0) & np.isin(graph.opcode[caller], _indices(_INSIDE))
        is_inside[self._entry] = False
        trips = np.where(graph.trip_count >= 0, graph.trip_count, _ASSUMED_TRIPS)
        trips = np.where(graph.opcode == _index("while"), trips, 1)
        nodes = np.flatnonzero(graph.computation != self._entry)
        computation = graph.computation[nodes]
        runs = np.ones(graph.num_nodes)
        # A level of nested computations in each round.
        for _ in range(graph.num_computations):
            kernel = np.where(is_inside, of_node[caller], -1)[computation]
            if np.array_equal(kernel, of_node[nodes]):
                break
            of_node[nodes] = kernel
            runs[nodes] = (runs[caller] * trips[caller])[computation]
        return of_node, runs

    def _work(self) -> npt.NDArray[np.float64]:
        """[N] elements or operations in one run of the kernel, with repetitions."""
        graph = self._graph
        size = np.maximum(graph.element_count, 1)
        per_element = np.maximum(graph.flops / size, 1)
        return np.asarray(self._evaluations * self._runs * per_element, np.float64)

    def _callees(self) -> dict[str, npt.NDArray[np.int64]]:
        """[N] of reducers and the like: root's opcode + 1, instructions, operations."""
        graph = self._graph
        is_outside = ~np.isin(graph.opcode[graph.call_nodes], _indices(_INSIDE))
        node = graph.call_nodes[is_outside]
        called = graph.call_computations[is_outside]
        opcode = np.zeros(graph.num_nodes, np.int64)
        opcode[node] = graph.opcode[graph.computation_roots[called]] + 1
        instructions = np.zeros(graph.num_nodes, np.int64)
        np.add.at(instructions, node, graph.computation_num_instructions[called])
        flops = np.zeros(graph.num_nodes, np.int64)
        np.add.at(flops, node, graph.computation_flops[called].astype(np.int64))
        return {"opcode": opcode, "instructions": instructions, "flops": flops}

    def _columns(
        self, node_s: npt.NDArray[np.float64], callees: dict[str, npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.float64]:
        """[N, F] what `node_matrix` does not have."""
        graph = self._graph
        minor, second = _minor_extents(graph)
        is_kernel = np.zeros(graph.num_nodes)
        is_kernel[self._outputs] = 1
        is_outside = (graph.computation == self._entry) & (is_kernel == 0)
        repetitions = self._evaluations / np.maximum(graph.element_count, 1)
        indices = (graph.attribute_block(_INDEX_ATTRIBUTES) + 1) / MAX_RANK
        sizes = graph.attribute_block(_SIZE_ATTRIBUTES, absent=0)
        columns = (
            *(_log(minor), _log(second), _log(self._runs), is_kernel, is_outside),
            *(_log(callees["instructions"]), _log(callees["flops"])),
            _log(node_s * 1e9),
            *(_log(self._evaluations), _log(repetitions), self._is_tiled),
        )
        block = np.stack([np.asarray(each, np.float64) for each in columns], axis=1)
        return np.concatenate(
            [indices, np.sign(sizes) * _log(abs(sizes)), block], axis=1
        )

    def _edges(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Operands; from a computation's root to its caller, and to its parameters."""
        graph = self._graph
        inside = np.flatnonzero(graph.computation_callers >= 0)
        inside = inside[self._of_node[graph.computation_roots[inside]] >= 0]
        roots, callers = (
            graph.computation_roots[inside],
            graph.computation_callers[inside],
        )
        of_parameter = np.repeat(
            np.arange(graph.num_computations), np.diff(graph.parameter_offsets)
        )
        is_inside = np.isin(of_parameter, inside)
        parameters = graph.parameter_nodes[is_inside]
        owners = graph.computation_callers[of_parameter[is_inside]]
        sources = np.concatenate([graph.edge_sources, roots, owners])
        targets = np.concatenate([graph.edge_targets, callers, parameters])
        counts = len(graph.edge_sources), len(roots), len(owners)
        kind = np.repeat([0, 1, 2], counts)
        operand = np.full(len(sources), -1)
        operand[: counts[0]] = graph.edge_operand_index
        places = self._place[sources], self._place[targets]
        is_kept = (places[0] >= 0) & (places[1] >= 0)
        minor = _minor_extents(graph)[0]
        size = graph.element_count
        edge_x = np.stack(
            [
                _log(graph.output_bytes[sources]),
                operand == 0,
                operand == 1,
                minor[sources] == minor[targets],
                size[sources] == size[targets],
                kind == 1,
                kind == 2,
            ],
            axis=1,
        )
        kept = np.flatnonzero(is_kept)
        # In an order that does not depend on the other kernels.
        kept = kept[
            np.lexsort((places[0][kept], operand[kept], kind[kept], places[1][kept]))
        ]
        return np.stack(places)[:, kept], edge_x[kept].astype(np.float32)

    def _kernel_x(
        self, node_s: npt.NDArray[np.float64], work: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float32]:
        graph, outputs = self._graph, self._outputs
        kernel, nodes = self._of_node[self._nodes], self._nodes
        num_nodes = np.bincount(kernel, minlength=len(outputs))
        all_work = np.bincount(kernel, work[nodes], minlength=len(outputs))
        columns = (
            *(graph.flops[outputs], graph.transcendentals[outputs]),
            *(graph.bytes_accessed[outputs], graph.input_bytes[outputs]),
            *(graph.output_bytes[outputs], num_nodes, all_work),
            node_s[outputs] * 1e9,
        )
        return np.stack([_log(each) for each in columns], axis=1).astype(np.float32)


# Read several elements of their operands for each of their own.
_READ_MANY = ("reduce", "reduce-window", "dot", "convolution", "select-and-scatter")
# Each of their own elements is one of an operand.
_JOIN = ("concatenate", "pad", "dynamic-update-slice")
_MAX_EVALUATIONS = 1e15
# Levels of a fusion that are followed.
_MAX_DEPTH = 256


def _evaluations(graph: HloGraph) -> npt.NDArray[np.float64]:
    """[N] elements that are computed of each node in one run of its computation.

    In a fusion, a node is computed anew for each element that a user reads, but once
    for users that read the same.
    """
    size = graph.element_count.astype(np.float64)
    is_fused = graph.computation_is_fusion[graph.computation]
    is_tuple = graph.opcode == _index("tuple")
    start = np.where(is_fused & ~graph.is_root, 0, size)
    source, target = graph.edge_sources, graph.edge_targets
    is_edge = is_fused[target] & ~graph.edge_is_control
    source, target = source[is_edge], target[is_edge]
    is_output = is_tuple[target] & graph.is_root[target]
    start[source[is_output]] = size[source[is_output]]
    own = np.maximum(size[target], 1)
    ratio = np.ones(len(source))
    many = np.isin(graph.opcode[target], _indices(_READ_MANY))
    ratio[many] = np.maximum(graph.flops[target[many]] / own[many], 1)
    joined = np.isin(graph.opcode[target], _indices(_JOIN))
    ratio[joined] = np.minimum(size[source[joined]] / own[joined], 1)
    ratio[is_output] = 0  # counted above
    found = start.copy()
    # A level of the fusions in each round.
    for _ in range(_MAX_DEPTH):
        before = found.copy()
        read = np.minimum(before[target] * ratio, _MAX_EVALUATIONS)
        np.maximum.at(found, source, read)
        if np.array_equal(before, found):
            break
    return found


def _tiled(module: HloModule, graph: HloGraph) -> npt.NDArray[np.bool_]:
    """[N] dots with the mark of `dot-lowering`, which is not in the graph."""
    marked: list[str] = []
    if _TILED_MARK.encode() in module.to_bytes():
        found = map(_TILED.match, logical_lines(module.to_text()))
        marked = [each[1] for each in found if each is not None]
    if not marked:
        return np.zeros(graph.num_nodes, np.bool_)
    return np.isin(np.array(graph.node_names), np.array(marked))


def _minor_extents(
    graph: HloGraph,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """[N] extents of the two dimensions that vary fastest in memory; 1 for none."""
    nodes = np.arange(graph.num_nodes)
    extents = []
    for k in (0, 1):
        dimension = graph.minor_to_major[:, k]
        # Of arrays of a higher rank, the graph has the first dimensions only.
        is_known = (dimension >= 0) & (dimension < graph.dims.shape[1])
        extent = graph.dims[nodes, np.where(is_known, dimension, 0)]
        extents.append(np.where(is_known, extent, 1))
    return extents[0], extents[1]


def _log(
    values: npt.NDArray[np.generic] | npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """log(1 + n); 0 where n is negative, which means unknown."""
    result: npt.NDArray[np.float64] = np.log1p(np.maximum(values, 0))
    return result


@cache
def _index(opcode: str) -> int:
    return opcodes().index(opcode)


def _indices(names: Sequence[str]) -> list[int]:
    return [_index(name) for name in names]
