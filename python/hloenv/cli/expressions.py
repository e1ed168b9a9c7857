# SPDX-License-Identifier: Apache-2.0
"""Choices as one-line expressions: what becomes what."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph.hlo_graph import HloGraph, opcodes
from ..rewrite.alternatives import Alternatives

_MAX_DEPTH = 4


class Expressions:
    """Writes the choices of some alternatives down.

    Instructions that a choice adds are spelt out, `add(multiply(x, y), z)`; what it
    reads of the original module stands by its name, and below a few levels "...".
    """

    def __init__(self, alternatives: Alternatives) -> None:
        self._graph: HloGraph = alternatives.graph
        self._names = self._graph.node_names
        self._kind = {
            node: alternative
            for alternative, nodes in enumerate(_sites(self._graph))
            for node in nodes
        }

    def original(self, alternative: int, kind: str) -> str:
        """Choice 0, with the operands that it reads."""
        if kind == "pass":
            return "the module"
        return self._spell(self._graph.choice_node(alternative, 0), frozenset(), 0)

    def choice(
        self, alternative: int, choice: int, kind: str, added: tuple[str, ...]
    ) -> str:
        """A choice above 0; `added` are the names of the instructions it adds."""
        if kind == "pass":
            return "what the pass makes of the module"
        node = self._graph.choice_node(alternative, choice)
        if self._names[node] not in added:
            return self._name(node)
        return self._spell(node, frozenset(added), 0)

    def _name(self, node: int) -> str:
        # What reads a site reads the value that is to be decided: name that.
        while node in self._kind:
            node = int(self._graph.operands(node)[0])
        return self._names[node]

    def _spell(self, node: int, added: frozenset[str], depth: int) -> str:
        graph = self._graph
        while node in self._kind:
            node = int(graph.operands(node)[0])
        if depth > 0 and self._names[node] not in added:
            return self._names[node]
        opcode = opcodes()[graph.opcode[node]]
        operands = graph.operands(node)[: graph.operand_count[node]].tolist()
        if not operands:
            return (
                opcode
                if self._names[node] in added
                else f"{opcode} {self._names[node]}"
            )
        if depth >= _MAX_DEPTH:
            return f"{opcode}(...)"
        inside = ", ".join(self._spell(each, added, depth + 1) for each in operands)
        return f"{opcode}({inside})"


def _sites(graph: HloGraph) -> Iterator[list[int]]:
    for first, last in zip(graph.site_offsets, graph.site_offsets[1:], strict=False):
        yield graph.site_nodes[first:last].tolist()
