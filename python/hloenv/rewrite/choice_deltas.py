# SPDX-License-Identifier: Apache-2.0
"""The change that each choice makes in a module, as sums over instructions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise, repeat

import numpy as np
import numpy.typing as npt

from .._typing import Float64Array, Int64Array
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from .alternatives import Alternatives
from .cost_delta import CostDelta

# Maps a graph to the weights [N] of its nodes.
Weights = Callable[["HloGraph"], Float64Array]


def count_weights(graph: HloGraph) -> Float64Array:
    """[N] instructions per node: itself and its share of the computations it calls.

    A computation is shared by its callers; the body of a fusion counts 0.
    """
    weights = np.ones(graph.num_nodes)
    num_callers = np.bincount(graph.call_computations, minlength=graph.num_computations)
    totals = np.diff(graph.computation_offsets).astype(np.float64)
    calls = zip(
        graph.call_nodes.tolist(), graph.call_computations.tolist(), strict=True
    )
    # Callees precede callers, so each total is complete before its use.
    for node, callee in calls:
        if not graph.computation_is_fusion[callee]:
            share = totals[callee] / num_callers[callee]
            weights[node] += share
            totals[graph.computation[node]] += share
    return weights


def byte_weights(graph: HloGraph) -> Float64Array:
    """[N] bytes read and written, by XLA's cost analysis.

    For unknown ones (custom calls), the bytes of the operands and the output.
    """
    known = graph.bytes_accessed
    return np.where(known >= 0, known, graph.input_bytes + graph.output_bytes)


def flop_weights(graph: HloGraph) -> Float64Array:
    """[N] floating-point operations, by XLA's cost analysis; 0 if unknown."""
    return np.maximum(graph.flops, 0).astype(np.float64)


def transcendental_weights(graph: HloGraph) -> Float64Array:
    """[N] transcendental operations, likewise."""
    return np.maximum(graph.transcendentals, 0).astype(np.float64)


def choice_costs(alternatives: Alternatives) -> CostDelta:
    """The static cost differences of a capture."""
    effects = ChoiceDeltas(alternatives, count_weights)
    changes = [
        effects.change_of(weights)
        for weights in (flop_weights, transcendental_weights, byte_weights)
    ]
    return CostDelta(effects.first, effects.change, *changes)


class ChoiceDeltas:
    """The change of each choice if it alone is taken.

    X counts the choices of all alternatives, one alternative after the other,
    including the originals (0). A set of (choice, node) pairs is an array of
    `choice * (N + 1) + node`; node N represents computations without callers.

    Attributes:
        first: [A] number of each alternative's choice 0.
        change: [X] float64, change of the sum of weights.
        is_indivisible: [A] whether the alternative replaces the whole module.
    """

    def __init__(self, alternatives: Alternatives, weights: Weights) -> None:
        self._alternatives = alternatives
        self._graph = graph = alternatives.graph
        self._base = graph.num_nodes + 1
        counts = alternatives.num_choices
        self.first = np.cumsum(counts) - counts
        kinds = [alternative.kind for alternative in alternatives]
        self.is_indivisible = np.fromiter((kind == "pass" for kind in kinds), np.bool_)
        self._size = int(counts.sum())
        self._added, self._reads = self._below(is_original(alternatives))
        self._dead = self._made_dead(alternatives)
        self.change = self.change_of(weights)

    def change_of(self, weights: Weights) -> Float64Array:
        """[X] change of the sum of these weights by each choice."""
        by_node = np.append(weights(self._graph), 0.0)
        change = self._sum(self._added, by_node) - self._sum(self._dead, by_node)
        for index in np.flatnonzero(self.is_indivisible):
            for choice in range(1, int(self._alternatives.num_choices[index])):
                change[self.first[index] + choice] = _module_effect(
                    self._alternatives, int(index), choice, weights
                )
        return change

    def dead(self) -> list[frozenset[int]]:
        """[X] originals that each choice makes dead."""
        return self._as_sets(self._dead)

    def reads(self) -> list[frozenset[int]]:
        """[X] originals that each choice reads, or is."""
        return self._as_sets(self._reads)

    def _made_dead(self, alternatives: Alternatives) -> Int64Array:
        rows = {name: row for row, name in enumerate(self._graph.node_names)}
        names = [choice.makes_dead for each in alternatives for choice in each.choices]
        choice = np.repeat(np.arange(len(names)), list(map(len, names)))
        node = map(rows.get, chain.from_iterable(names), repeat(self._graph.num_nodes))
        return choice * self._base + np.fromiter(node, np.int64, len(choice))

    def _below(
        self, is_original: npt.NDArray[np.bool_]
    ) -> tuple[Int64Array, Int64Array]:
        """The nodes that each choice adds, and the originals that these read."""
        graph = self._graph
        alternative = np.repeat(np.arange(len(self.first)), np.diff(graph.site_offsets))
        num_choices = np.diff(graph.site_choice_offsets)
        start = self.first[alternative] - graph.site_choice_offsets[:-1]
        choice = np.repeat(start, num_choices) + np.arange(num_choices.sum())
        is_new = ~np.isin(choice, self.first)
        choice, node = choice[is_new], graph.site_choice_nodes[is_new]
        seen = added = reads = np.zeros(0, np.int64)
        while len(node):
            # A site is read as its original.
            while (at_site := graph.is_alternative[node]).any():
                node = node.copy()
                node[at_site] = graph.edge_sources[graph.in_offsets[node[at_site]]]
            pairs = np.setdiff1d(choice * self._base + node, seen)
            seen = np.append(seen, pairs)
            is_read = is_original[pairs % self._base]
            reads = np.append(reads, pairs[is_read])
            added = np.append(added, pairs[~is_read])
            choice, node = self._operands(pairs[~is_read])
        return added, reads

    def _operands(self, pairs: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(choice, node) of the operands of the nodes in `pairs`."""
        choice, node = np.divmod(pairs, self._base)
        begin = self._graph.in_offsets[node]
        lengths = self._graph.in_offsets[node + 1] - begin
        within = np.arange(lengths.sum()) - np.repeat(
            np.cumsum(lengths) - lengths, lengths
        )
        edges = np.repeat(begin, lengths) + within
        return np.repeat(choice, lengths), self._graph.edge_sources[edges]

    def _sum(self, pairs: Int64Array, by_node: Float64Array) -> Float64Array:
        choice, node = np.divmod(pairs, self._base)
        sums = np.bincount(choice, by_node[node], minlength=self._size)
        return sums.astype(np.float64, copy=False)

    def _as_sets(self, pairs: Int64Array) -> list[frozenset[int]]:
        choice, node = np.divmod(np.sort(pairs), self._base)
        bounds = np.searchsorted(choice, np.arange(self._size + 1)).tolist()
        nodes = node.tolist()
        return [frozenset(nodes[begin:end]) for begin, end in pairwise(bounds)]


def is_original(alternatives: Alternatives) -> npt.NDArray[np.bool_]:
    """[N] whether a node of the alternative graph is in the module."""
    module = HloModule._wrap(alternatives._capture.module())
    names = frozenset(HloGraph.from_module(module).node_names)
    return np.fromiter(map(names.__contains__, alternatives.graph.node_names), np.bool_)


def _module_effect(
    alternatives: Alternatives, index: int, choice: int, weights: Weights
) -> float:
    decisions = alternatives.reject_all()
    before = HloGraph.from_module(alternatives.apply(decisions))
    decisions[index] = choice
    after = HloGraph.from_module(alternatives.apply(decisions))
    return _entry_sum(after, weights) - _entry_sum(before, weights)


def _entry_sum(graph: HloGraph, weights: Weights) -> float:
    """Sum over the entry, whose calls represent all other computations."""
    return float(weights(graph)[graph.computation_offsets[-2] :].sum())
