# SPDX-License-Identifier: Apache-2.0
"""Alternative graphs that another program wrote, in the place of a capture.

Each alternative is an ordinary custom call:

    a.0 = f32[4] custom-call(original, choice.1, choice.2),
      custom_call_target="hloenv.alternative",
      backend_config={"alternative":"0","kind":"instruction","passes":"one|two"}

The first operand is the original. Choices may read other alternatives, as the classes
of an e-graph do, and several calls may have one number, which is one decision: of kind
"instruction" about one value, of kind "sites" about several.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from .._native import core
from ..errors import DecisionError, InvalidModuleError, UnknownPassError
from ..graph.hlo_graph import HloGraph, opcodes
from ..hlo.module import HloModule

_Site = tuple[str, str, tuple[tuple[str, int], ...]]
_Described = tuple[tuple[str, ...], str, tuple[str, ...], tuple[str, ...], str, bool]


class GivenGraph:
    """Answers what `core.Capture` answers, from an alternative graph."""

    def __init__(self, graph: HloModule) -> None:
        """Checks a graph.

        Raises:
            InvalidModuleError: its alternatives are inconsistent.
        """
        core.check_alternative_graph(graph._core)
        self._module = graph
        # Alternatives in computations that nothing calls decide nothing.
        self._graph = HloGraph.from_module(graph)
        self.pass_names = tuple(dict.fromkeys(self._graph.pass_names)) or ("given",)
        self.indivisible_reasons = ("",) * len(self.pass_names)
        for index in range(len(self)):
            self._check_originals(index)

    def __len__(self) -> int:
        return self._graph.num_alternatives

    @cached_property
    def _original(self) -> HloModule:
        return HloModule._wrap(self.apply(np.zeros(len(self), np.int64)))

    def module(self) -> core.Module:
        """The module of the originals."""
        return self._original._core

    def graph(self) -> core.Module:
        """The alternative graph."""
        return self._module._core

    def num_choices(self) -> npt.NDArray[np.int64]:
        """[A] choices, the original included."""
        return self._graph.num_choices.copy()

    def kind(self, index: int) -> str:
        """As `Alternative.kind`."""
        kind: str = self._graph.alternative_kinds[self._graph.alternative_kind[index]]
        return kind

    def sites(self, index: int) -> tuple[_Site, ...]:
        """(computation, original, ((user, operand), ...)) of each site."""
        graph, names = self._graph, self._graph.node_names
        sites = []
        for node in self._sites(index).tolist():
            begin, end = graph.out_offsets[node : node + 2]
            edges = graph.out_edges[begin:end]
            uses = [
                (names[graph.edge_targets[edge]], int(graph.edge_operand_index[edge]))
                for edge in edges.tolist()
            ]
            if graph.is_root[node]:
                uses.insert(0, ("", 0))
            computation = graph.computation_names[graph.computation[node]]
            original = names[self._resolved(int(graph.operands(node)[0]))]
            sites.append((computation, original, tuple(uses)))
        return tuple(sites)

    def describe(self, index: int, choice: int) -> _Described:
        """Passes, opcode, added and dead instructions, rule, `duplicates_compared`."""
        graph, names = self._graph, self._graph.node_names
        sites = self._sites(index)
        nodes = [int(graph.operands(int(site))[choice]) for site in sites]
        opcode = opcodes()[graph.opcode[self._resolved(nodes[0])]]
        if choice == 0:
            return (), opcode, (), (), "", False
        added = [names[i] for i in sorted(self._below(nodes) - self._kept)]
        decisions = np.zeros(len(self), np.int64)
        decisions[index] = choice
        live = _names(HloModule._wrap(self.apply(decisions)))
        dead = [name for name in _names(self._original) if name not in live]
        return self._passes(index, choice), opcode, tuple(added), tuple(dead), "", False

    def duplicates_compared(self) -> npt.NDArray[np.bool_]:
        """[X] false: another program has decided what to offer."""
        return np.zeros(int(self.num_choices().sum()), np.bool_)

    def decisions_for(self, name: str) -> npt.NDArray[np.int64]:
        """[A] the first choice that pass `name` offers, 0 if it has none."""
        if name not in self.pass_names:
            raise UnknownPassError(
                f"pass {name!r} offers no choice; these do: "
                f"{', '.join(self.pass_names)}"
            )
        decisions = np.zeros(len(self), np.int64)
        for index, count in enumerate(self.num_choices().tolist()):
            for choice in reversed(range(1, count)):
                if name in self._passes(index, choice):
                    decisions[index] = choice
        return decisions

    def rejected(self, decisions: npt.NDArray[np.int64]) -> list[str]:
        """No rewrites of XLA's passes."""
        del decisions
        return []

    def relevant(self, decisions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """[A] whether a live instruction reaches the alternative."""
        counts = self.num_choices()
        if decisions.shape != counts.shape or not bool(
            ((decisions >= -1) & (decisions < counts)).all()
        ):
            raise DecisionError(
                f"decisions must be {len(counts)} integers, each from -1 to below its "
                f"number of choices, got {decisions.tolist()[:20]}"
            )
        graph = self._graph
        number = np.full(graph.num_nodes, -1, np.int64)
        number[graph.site_nodes] = np.repeat(
            np.arange(len(self)), np.diff(graph.site_offsets)
        )
        seen: set[int] = set()
        is_in_entry = graph.computation_is_entry[graph.computation]
        is_live = (graph.is_root & is_in_entry) | graph.has_side_effect
        stack = np.flatnonzero(is_live).tolist()
        calls: dict[int, list[int]] = {}
        for node, callee in zip(
            graph.call_nodes.tolist(), graph.call_computations.tolist(), strict=True
        ):
            calls.setdefault(node, []).append(int(graph.computation_roots[callee]))
        while stack:
            node = int(stack.pop())
            if node in seen:
                continue
            seen.add(node)
            below = graph.operands(node)
            if number[node] >= 0 and decisions[number[node]] >= 0:
                below = below[[decisions[number[node]]]]
            stack += [*below.tolist(), *calls.get(node, ())]
        found = np.zeros(len(self), np.bool_)
        found[[number[node] for node in seen if number[node] >= 0]] = True
        return found

    def apply(
        self, decisions: npt.NDArray[np.int64], rebuild: bool = False
    ) -> core.Module:
        """The module with one choice at each site."""
        del rebuild  # there is no pass whose result it could copy
        module: core.Module = core.apply_to_graph(self._module._core, decisions)
        return module

    def _passes(self, index: int, choice: int) -> tuple[str, ...]:
        graph = self._graph
        row = int(graph.choice_offsets[index]) + choice
        begin, end = graph.choice_pass_offsets[row : row + 2]
        names = tuple(graph.pass_names[i] for i in graph.choice_passes[begin:end])
        return names or ("given",)

    def _sites(self, index: int) -> npt.NDArray[np.int64]:
        begin, end = self._graph.site_offsets[index : index + 2]
        return self._graph.site_nodes[begin:end]

    def _check_originals(self, index: int) -> None:
        """Checks that an alternative of one value is of one.

        Raises:
            InvalidModuleError: it is not.
        """
        if self.kind(index) != "instruction":
            return
        firsts = [
            int(self._graph.operands(int(each))[0]) for each in self._sites(index)
        ]
        names = [self._graph.node_names[self._resolved(each)] for each in firsts]
        if len(originals := list(dict.fromkeys(names))) > 1:
            raise InvalidModuleError(
                f"alternative {index} is of kind 'instruction', but has the originals "
                f"{', '.join(map(repr, originals))}; number each alternative, or give "
                "one decision about several values the kind 'sites'"
            )

    def _resolved(self, node: int) -> int:
        """The original that a node stands for."""
        while self._graph.is_alternative[node]:
            node = int(self._graph.operands(node)[0])
        return node

    @cached_property
    def _kept(self) -> set[int]:
        """Nodes of the module of the originals, and sites."""
        names = _names(self._original)
        graph = self._graph
        return {
            node
            for node, name in enumerate(graph.node_names)
            if name in names or graph.is_alternative[node]
        }

    def _below(self, nodes: list[int]) -> set[int]:
        """Nodes that these depend on, down to sites and originals."""
        seen: set[int] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node not in seen and node not in self._kept:
                seen.add(node)
                stack += self._graph.operands(node).tolist()
        return seen


def _names(module: HloModule) -> dict[str, None]:
    """Names of the instructions, in order."""
    return dict.fromkeys(HloGraph.from_module(module).node_names)
