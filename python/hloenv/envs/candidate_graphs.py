# SPDX-License-Identifier: Apache-2.0
"""Graphs of many similar modules, in little memory."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._typing import Int64Array
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule

_INDEX = np.dtype(np.int32)


class CandidateGraph(NamedTuple):
    """A module as X-RLflow's network reads it; indices as in `HloData`.

    Attributes:
        opcode: [N] index into `opcodes()`.
        edge_index: [2, E] source and target of each edge.
        edge_attr: [E, F] float32, named by `hloenv.graph.pyg.edge_features()`.
    """

    opcode: Int64Array
    edge_index: Int64Array
    edge_attr: npt.NDArray[np.float32]


@dataclass(frozen=True)
class PackedGraph:
    """A `CandidateGraph`, compressed.

    Attributes:
        num_nodes, num_edges: of the graph.
        data: its bytes, compressed by zlib with those of `reference` as dictionary.
        reference: a similar graph, itself without a reference; None for no dictionary.
    """

    num_nodes: int
    num_edges: int
    data: bytes
    reference: PackedGraph | None

    def unpack(self) -> CandidateGraph:
        """The graph."""
        raw = self._raw if self.reference is None else self._read()
        opcode = np.frombuffer(raw, np.int16, self.num_nodes)
        start, count = opcode.nbytes, 2 * self.num_edges
        steps, offsets = np.frombuffer(raw, _INDEX, count, start).reshape(2, -1)
        target = np.cumsum(steps, dtype=np.int64)
        features = np.frombuffer(raw, np.float32, -1, start + count * _INDEX.itemsize)
        return CandidateGraph(
            opcode.astype(np.int64),
            np.stack([target + offsets, target]),
            np.ascontiguousarray(features.reshape(_num_features(), -1).T),
        )

    @cached_property
    def _raw(self) -> bytes:
        return self._read()

    def _read(self) -> bytes:
        words = b"" if self.reference is None else self.reference._raw
        reader = zlib.decompressobj(zdict=words) if words else zlib.decompressobj()
        return reader.decompress(self.data)


def pack(module: HloModule, reference: PackedGraph | None = None) -> PackedGraph:
    """The graph of a module.

    Args:
        module: any module.
        reference: the packed graph of a similar one.
    """
    from ..graph.pyg import edge_matrix

    graph = HloGraph.from_module(module)
    targets = graph.edge_targets
    parts = (
        graph.opcode.astype(np.int16),
        # Relative, so that a change in one place leaves the rest alike.
        np.diff(targets, prepend=0).astype(_INDEX),
        (graph.edge_sources - targets).astype(_INDEX),
        edge_matrix(graph).numpy().T,
    )
    base = None if reference is None else reference.reference or reference
    words = b"" if base is None else base._raw
    writer = zlib.compressobj(1, zdict=words) if words else zlib.compressobj(1)
    data = writer.compress(b"".join(each.tobytes() for each in parts)) + writer.flush()
    return PackedGraph(graph.num_nodes, graph.num_edges, data, base)


def _num_features() -> int:
    from ..graph.pyg import edge_features

    return len(edge_features())
