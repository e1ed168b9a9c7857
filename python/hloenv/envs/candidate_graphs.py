# SPDX-License-Identifier: Apache-2.0
"""Graphs of many similar modules: only what differs from one of them.

In a graph network whose messages go from operands to users, `HOPS` layers deep, the
embedding of a node depends on its opcode, its operands, theirs, and so on. Two nodes
that are equal in all of this have equal embeddings in every layer, whichever graphs
they are in. A hash of it (the colours of Weisfeiler and Lehman's refinement) finds the
nodes of a candidate that have no equal node in the module that it was made from: some
ten of its hundreds of nodes. Only these are kept, and encoded; for the others, the
module's nodes stand.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._typing import Int64Array
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule

# Layers of a network that the embeddings are exact for.
HOPS = 5

_INDEX = np.dtype(np.int32)
_Hashes = npt.NDArray[np.uint64]


class Rows(NamedTuple):
    """The nodes of a module that its reference does not have; all without a reference.

    Attributes:
        opcode: [R] index into `opcodes()`.
        edge_index: [2, E] the edges to these rows. Targets are rows; sources are nodes
            of the reference, and from their number on, rows.
        edge_attr: [E, F] float32, named by `hloenv.graph.pyg.edge_features()`.
        moved: [K] nodes of the reference that are in the module more or less often. Of
            nodes that are equal, the first stands for all.
        times: [K] how much more often, negative for less.
    """

    opcode: Int64Array
    edge_index: Int64Array
    edge_attr: npt.NDArray[np.float32]
    moved: Int64Array
    times: Int64Array


@dataclass(frozen=True)
class PackedGraph:
    """`Rows`, compressed.

    Attributes:
        num_nodes: of the whole graph.
        num_rows, num_edges, num_moved: of the `Rows`.
        data: their bytes, compressed.
        reference: the whole graph that they complete; None for a whole graph.
        colours: [num_nodes] of a whole graph: equal where the embeddings are.
    """

    num_nodes: int
    num_rows: int
    num_edges: int
    num_moved: int
    data: bytes
    reference: PackedGraph | None
    colours: _Hashes | None = field(default=None, compare=False, repr=False)

    def unpack(self) -> Rows:
        """The rows."""
        raw = zlib.decompress(self.data)
        at = 0

        def read(dtype: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
            nonlocal at
            found = np.frombuffer(raw, dtype, count, at)
            at += found.nbytes
            return found

        opcode = read(np.int16, self.num_rows).astype(np.int64)
        edges = read(_INDEX, 2 * self.num_edges).reshape(2, -1).astype(np.int64)
        moved = read(_INDEX, 2 * self.num_moved).reshape(2, -1).astype(np.int64)
        features = read(np.float32, self.num_edges * _num_features())
        attributes = np.ascontiguousarray(features.reshape(_num_features(), -1).T)
        return Rows(opcode, edges, attributes, *moved)

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        """The nodes in the order of their colours."""
        assert self.colours is not None
        return np.argsort(self.colours, kind="stable")

    @cached_property
    def _times(self) -> Int64Array:
        """[num_nodes] how many nodes each stands for."""
        assert self.colours is not None
        equal = self._equal_nodes(self.colours)
        return np.bincount(equal, minlength=self.num_nodes)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is cached."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _equal_nodes(self, colours: _Hashes) -> Int64Array:
        """A node of this whole graph for each colour; -1 where it has none."""
        assert self.colours is not None
        place = np.searchsorted(self.colours, colours, sorter=self._order)
        nodes = self._order[np.minimum(place, len(self._order) - 1)]
        return np.where(self.colours[nodes] == colours, nodes, -1).astype(np.int64)


def pack(module: HloModule) -> PackedGraph:
    """The whole graph of a module."""
    (graph,) = _read([module])
    rows = Rows(
        graph.opcode,
        np.stack([graph.sources, graph.targets]),
        graph.attributes,
        *np.zeros((2, 0), np.int64),
    )
    return _packed(graph, rows, None)


def pack_candidates(
    modules: Sequence[HloModule], reference: PackedGraph
) -> list[PackedGraph]:
    """The graphs of modules that are similar to another.

    Args:
        modules: any modules.
        reference: the whole graph of the other, of `pack`.
    """
    first = reference.num_nodes
    packed = []
    for graph in _read(modules):
        equal = reference._equal_nodes(graph.colours)
        is_row = equal < 0
        times = np.bincount(equal[~is_row], minlength=first) - reference._times
        # Nodes by their number in the reference, then the rows.
        number = np.where(is_row, first + np.cumsum(is_row) - 1, equal)
        kept = np.flatnonzero(is_row[graph.targets])
        moved = np.flatnonzero(times)
        sources, targets = graph.sources[kept], graph.targets[kept]
        rows = Rows(
            graph.opcode[is_row],
            np.stack([number[sources], number[targets] - first]),
            graph.attributes[kept],
            moved,
            times[moved],
        )
        packed.append(_packed(graph, rows, reference))
    return packed


class _Graph(NamedTuple):
    """A module's graph and the colours of its nodes."""

    opcode: Int64Array
    sources: Int64Array
    targets: Int64Array
    attributes: npt.NDArray[np.float32]
    colours: _Hashes


def _read(modules: Sequence[HloModule]) -> list[_Graph]:
    """The graphs, with the colours of all of them found at once."""
    from ..graph.pyg import edge_matrix

    graphs = [HloGraph.from_module(each) for each in modules]
    attributes = [edge_matrix(each).numpy() for each in graphs]
    starts = np.cumsum([0, *(each.num_nodes for each in graphs)])
    if not graphs:
        return []
    colours = _colours(
        np.concatenate([each.opcode for each in graphs]),
        np.concatenate(
            [g.edge_sources + n for g, n in zip(graphs, starts, strict=False)]
        ),
        np.concatenate(
            [g.edge_targets + n for g, n in zip(graphs, starts, strict=False)]
        ),
        np.concatenate(attributes),
    )
    return [
        _Graph(
            each.opcode.astype(np.int64),
            each.edge_sources.astype(np.int64),
            each.edge_targets.astype(np.int64),
            attributes[i],
            colours[starts[i] : starts[i + 1]],
        )
        for i, each in enumerate(graphs)
    ]


def _packed(graph: _Graph, rows: Rows, reference: PackedGraph | None) -> PackedGraph:
    parts = (
        rows.opcode.astype(np.int16),
        rows.edge_index.astype(_INDEX),
        np.stack([rows.moved, rows.times]).astype(_INDEX),
        np.ascontiguousarray(rows.edge_attr.T),
    )
    return PackedGraph(
        len(graph.opcode),
        len(rows.opcode),
        rows.edge_index.shape[1],
        len(rows.moved),
        zlib.compress(b"".join(each.tobytes() for each in parts), 1),
        reference,
        graph.colours if reference is None else None,
    )


def _colours(
    opcode: npt.NDArray[np.integer],
    sources: npt.NDArray[np.integer],
    targets: npt.NDArray[np.integer],
    attributes: npt.NDArray[np.float32],
) -> _Hashes:
    """[N] hashes, equal where nodes and what they see of their operands are equal."""
    edges = np.zeros(len(sources), np.uint64)
    for column in np.ascontiguousarray(attributes.T).view(np.uint32):
        edges = _mixed(edges + column)
    colours = _mixed(opcode.astype(np.uint64))
    for _ in range(HOPS):
        sums = _mixed(colours)
        # Addition: the order of equal edges does not matter, their number does.
        np.add.at(sums, targets, _mixed(colours[sources] ^ edges))
        colours = _mixed(sums)
    return colours


def _mixed(numbers: _Hashes) -> _Hashes:
    """Each number hashed (the finalizer of SplitMix64, Steele et al., 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _num_features() -> int:
    from ..graph.pyg import edge_features

    return len(edge_features())
