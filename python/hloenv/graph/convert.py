# SPDX-License-Identifier: Apache-2.0
"""Conversion of graphs to PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, overload, runtime_checkable

from .._optional import needed_by
from ..errors import ArgumentTypeError
from ..hlo.module import HloModule
from ..hlo.source import Source
from .hlo_graph import (
    HloGraph,
)

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from .pyg import HloData


@runtime_checkable
class HasGraph(Protocol):
    """An object with a graph, such as `Alternatives`."""

    @property
    def graph(self) -> HloGraph:
        """The graph."""
        ...


GraphLike = HloGraph | HloModule | HasGraph


@overload
def to_pyg(
    graph: GraphLike, *, hetero: Literal[False] = False, passes: Sequence[str] = ()
) -> HloData: ...


@overload
def to_pyg(
    graph: GraphLike, *, hetero: Literal[True], passes: Sequence[str] = ()
) -> HeteroData: ...


def to_pyg(
    graph: GraphLike, *, hetero: bool = False, passes: Sequence[str] = ()
) -> HloData | HeteroData:
    """A graph for PyTorch Geometric; `Batch.from_data_list` takes any number of them.

    Tensors are copies. `hloenv.graph.pyg.HloData` lists those of the homogeneous form,
    `hloenv.graph.pyg.to_hetero` the node and edge types of the heterogeneous form.

    Args:
        graph: a graph, a module, or alternatives.
        hetero: node types for instructions, computations, alternatives and choices.
        passes: names of passes. Each becomes a column: whether it proposes a choice.
            Graphs of one batch need the same names.

    Raises:
        ArgumentTypeError: `graph` has another type.
        ImportError: torch or torch-geometric is not installed.
        GraphError: an alternative has no site in the graph.
    """
    source = graph_of(graph)
    with needed_by("to_pyg", "torch and torch-geometric", "learn"):
        from . import pyg
    return pyg.to_hetero(source, passes) if hetero else pyg.to_data(source, passes)


def sources_of(graph: GraphLike) -> dict[str, Source]:
    """Source locations of nodes by name; empty for an `HloGraph`."""
    module = graph if isinstance(graph, HloModule) else getattr(graph, "module", None)
    return module.sources() if isinstance(module, HloModule) else {}


def graph_of(source: GraphLike) -> HloGraph:
    """The graph of `source`: itself, of a module, or of alternatives.

    Raises:
        ArgumentTypeError: `source` has another type.
    """
    if isinstance(source, HloGraph):
        return source
    if isinstance(source, HloModule):
        return HloGraph.from_module(source)
    if isinstance(source, HasGraph) and isinstance(source.graph, HloGraph):
        return source.graph
    raise ArgumentTypeError(
        "source must be an HloGraph, an HloModule or Alternatives, got "
        f"{type(source).__name__}"
    )
