# SPDX-License-Identifier: Apache-2.0
"""Chooses the rules of an e-graph one by one, by Monte Carlo tree search.

Saturation runs all rules in every round, and large programs reach the limit of nodes
after one or two of them, with what commutativity and associativity add. Here each move
runs one rule at all places; a move is chosen by simulations, whose worth is what
extraction saves. Source: Hartmann and others, "Optimizing Tensor Computation Graphs
with Equality Saturation and Monte Carlo Tree Search", PACT 2024.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np

from ..cost.roofline import Rates
from ..errors import ArgumentError
from ..hlo.module import HloModule
from .egraph import Egraph, Entry
from .extraction import Method, check_method, extract
from .saturation import Saturated, SaturationLimits, extracted
from .saturation_rules import RULES


@dataclass(frozen=True)
class TreeSearch:
    """Extent of the search.

    Attributes:
        moves: rules that are run for good, at most.
        simulations: of each move.
        depth: rules of a simulation.
        exploration: weight of what was seldom tried; the worth of a move is 1 for the
            best that was found.
        seed: of the draws.
    """

    moves: int = 20
    simulations: int = 40
    depth: int = 8
    exploration: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the extent.

        Raises:
            ArgumentError: a number is not positive, or the exploration negative.
        """
        for name in ("moves", "simulations", "depth"):
            if getattr(self, name) < 1:
                raise ArgumentError(
                    f"{name} must be positive, got {getattr(self, name)}"
                )
        if not self.exploration >= 0:
            raise ArgumentError(
                f"exploration must be at least 0, got {self.exploration}"
            )


@dataclass
class _Node:
    """An e-graph that some rules lead to.

    Attributes:
        untried: rules that were not run here yet, in random order.
        children: by the rule that leads to them.
        visits: simulations through it.
        most: seconds that the best of them saved.
    """

    untried: list[int]
    children: dict[int, _Node] = field(default_factory=dict)
    visits: int = 0
    most: float = 0.0


def saturate_by_tree_search(
    module: HloModule,
    *,
    method: Method = "ilp",
    limits: SaturationLimits | None = None,
    search: TreeSearch | None = None,
    rates: Rates | None = None,
) -> Saturated:
    """Builds the e-graph of a module's entry by tree search; extracts the cheapest one.

    Args:
        module: as for `saturate`.
        method: of the extraction at the end; simulations use the greedy one.
        limits: of nodes and seconds; its iterations do not apply.
        search: extent of the search.
        rates: of the machine, for the costs of operators.

    Returns:
        As `saturate`; num_iterations is the number of rules that ran for good, and
        is_saturated whether none of them adds anything more.

    Raises:
        ArgumentError, ImportError, InvalidModuleError: as `saturate`.
    """
    started = time.perf_counter()
    check_method(method)
    limits = limits or SaturationLimits()
    rates = rates or Rates()
    entry = Entry(module)
    builder = _Builder(
        Egraph(entry), limits, search or TreeSearch(), rates, started + limits.seconds
    )
    num_rules, is_saturated = builder.build()
    return extracted(
        builder.graph,
        entry,
        method=method,
        limits=limits,
        rates=rates,
        start_cost=builder.start_cost,
        num_iterations=num_rules,
        is_saturated=is_saturated,
        started=started,
    )


class _Builder:
    """Builds one e-graph."""

    def __init__(
        self,
        graph: Egraph,
        limits: SaturationLimits,
        search: TreeSearch,
        rates: Rates,
        deadline: float,
    ) -> None:
        self.graph = graph
        self.start_cost = sum(graph.read().costs(rates).values())
        self._limits = limits
        self._search = search
        self._rates = rates
        self._deadline = deadline
        self._rng = np.random.default_rng(search.seed)
        # What saved most, and the rules that led to it from the current e-graph on.
        self._most = 0.0
        self._best: list[int] = []

    def build(self) -> tuple[int, bool]:
        """Returns the number of rules that ran, and whether no rule adds anything."""
        root = self._node()
        done = 0
        is_saturated = False
        while done < self._search.moves and not self._is_over():
            for _ in range(self._search.simulations):
                if time.perf_counter() > self._deadline:
                    break
                with self.graph.undone():
                    self._simulate(root)
            rule = self._best_rule(root)
            if rule is None:
                is_saturated = not root.untried
                break
            self.graph.run_rule(rule)
            done += 1
            root = root.children[rule]
            if self._best[:1] == [rule]:
                self._best = self._best[1:]
            else:  # what saved most is elsewhere: look for the best from here on
                self._most, self._best = 0.0, []
        # Simulations went further than the moves.
        for rule in self._best:
            if self._is_over():
                break
            done += self.graph.run_rule(rule)
        return done, is_saturated

    def _is_over(self) -> bool:
        is_late = time.perf_counter() > self._deadline
        return is_late or self.graph.num_nodes() > self._limits.nodes

    def _node(self) -> _Node:
        return _Node(self._rng.permutation(len(RULES)).tolist())

    def _simulate(self, root: _Node) -> None:
        """Goes down the tree, adds a node, goes on at random; notes what it saves."""
        path = [root]
        rules: list[int] = []
        while (rule := self._next_rule(path[-1])) is not None:
            rules.append(rule)
            is_new = rule not in path[-1].children
            if is_new:
                path[-1].children[rule] = self._node()
            path.append(path[-1].children[rule])
            if is_new or len(rules) >= self._search.depth:
                break
        rules += self._rollout(self._search.depth - len(rules))
        saved = self.start_cost - self._cost()
        if saved > self._most:
            self._most, self._best = saved, rules
        for node in path:
            node.visits += 1
            node.most = max(node.most, saved)

    def _next_rule(self, node: _Node) -> int | None:
        """A rule of the node that adds something, which is run; None if none does."""
        while node.untried:
            rule = node.untried.pop()
            if self.graph.run_rule(rule):
                return rule
        if not node.children or self.graph.num_nodes() > self._limits.nodes:
            return None
        chosen = max(node.children, key=lambda each: self._score(node, each))
        self.graph.run_rule(chosen)
        return chosen

    def _score(self, node: _Node, rule: int) -> float:
        child = node.children[rule]
        worth = child.most / self._most if self._most > 0 else 0.0
        seldom = math.sqrt(math.log(node.visits + 1) / max(child.visits, 1))
        return worth + self._search.exploration * seldom

    def _rollout(self, steps: int) -> list[int]:
        """Runs random rules that add something; returns them."""
        rules: list[int] = []
        for rule in self._rng.permutation(len(RULES)).tolist():
            is_large = self.graph.num_nodes() > self._limits.nodes
            if len(rules) >= steps or is_large:
                break
            if self.graph.run_rule(rule):
                rules.append(rule)
        return rules

    def _cost(self) -> float:
        read = self.graph.read()
        costs = read.costs(self._rates)
        return extract(
            read.classes, costs, read.roots, method="greedy", seconds=1.0
        ).cost

    def _best_rule(self, node: _Node) -> int | None:
        """The rule of the best simulation, then the one that was tried most."""
        return max(
            node.children,
            key=lambda each: (
                node.children[each].most,
                [each] == self._best[:1],
                node.children[each].visits,
            ),
            default=None,
        )
