# SPDX-License-Identifier: Apache-2.0
"""Chooses one node for each class of an e-graph that is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..errors import ArgumentError
from .terms import Node

Method = Literal["ilp", "greedy"]


def check_method(method: object) -> None:
    """Rejects what is not a `Method`.

    Raises:
        ArgumentError: it is none.
    """
    if method not in (methods := get_args(Method)):
        raise ArgumentError(
            f"the method of extraction must be one of {', '.join(methods)}, got "
            f"{method!r}"
        )


@dataclass(frozen=True)
class Extraction:
    """The chosen nodes.

    Attributes:
        nodes: by class, of every class that is needed.
        cost: sum of the nodes' costs, each once, in seconds.
        method: which gave them; "greedy" where the integer program found nothing in
            time.
        is_optimal: whether the integer program has proved that nothing is cheaper.
    """

    nodes: Mapping[str, Node]
    cost: float
    method: Method
    is_optimal: bool


def extract(
    classes: Mapping[str, Sequence[Node]],
    costs: Mapping[Node, float],
    roots: Sequence[str],
    *,
    method: Method,
    seconds: float,
) -> Extraction:
    """The cheapest nodes, or what the greedy choice gives.

    Args:
        classes: the nodes of each class.
        costs: of each node by itself.
        roots: classes that are needed.
        method: "greedy" minimizes each class by the sum over its tree, which counts
            shared classes several times; "ilp" the sum over all nodes, each once, by an
            integer program without cycles.
        seconds: for the integer program.
    """
    chosen = _greedy(classes, costs)
    nodes = _needed(chosen, roots)
    first = Extraction(nodes, sum(costs[n] for n in nodes.values()), "greedy", False)
    if method == "greedy":
        return first
    return _ilp(classes, costs, roots, first, seconds)


def _greedy(
    classes: Mapping[str, Sequence[Node]], costs: Mapping[Node, float]
) -> dict[str, Node]:
    best = dict.fromkeys(classes, math.inf)
    chosen: dict[str, Node] = {}
    users: dict[str, set[str]] = {name: set() for name in classes}
    for name, nodes in classes.items():
        for node in nodes:
            for child in node.children:
                users[child].add(name)
    pending = dict.fromkeys(classes)
    while pending:
        name = next(iter(pending))
        del pending[name]
        for node in classes[name]:
            cost = costs[node] + sum(best[child] for child in node.children)
            # A node costs at least as much as its children: no choice closes a cycle.
            if cost < best[name] - 1e-15:
                best[name], chosen[name] = cost, node
                pending.update(dict.fromkeys(sorted(users[name])))
    return chosen


def _needed(chosen: Mapping[str, Node], roots: Sequence[str]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = chosen[name]
            stack += chosen[name].children
    return found


def _ilp(
    classes: Mapping[str, Sequence[Node]],
    costs: Mapping[Node, float],
    roots: Sequence[str],
    first: Extraction,
    seconds: float,
) -> Extraction:
    """A binary variable for each node, and a level for each class that orders them.

    A chosen node needs a chosen node of each child, at a lower level.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    below = _reachable(classes, roots)
    nodes = [(name, node) for name in below for node in classes[name]]
    nodes = [(name, node) for name, node in nodes if name not in node.children]
    level = {name: len(nodes) + i for i, name in enumerate(below)}
    of_class: dict[str, list[int]] = {name: [] for name in below}
    for i, (name, _) in enumerate(nodes):
        of_class[name].append(i)
    rows: list[tuple[dict[int, float], float]] = []  # sum >= bound
    height = float(len(below))
    for root in dict.fromkeys(roots):
        rows.append((dict.fromkeys(of_class[root], 1.0), 1.0))
    for i, (name, node) in enumerate(nodes):
        for child in dict.fromkeys(node.children):
            needs = dict.fromkeys(of_class[child], 1.0)
            needs[i] = needs.get(i, 0.0) - 1.0
            rows.append((needs, 0.0))
            # level(name) >= level(child) + 1 where the node is chosen
            rows.append(
                ({level[name]: 1.0, level[child]: -1.0, i: -height}, 1.0 - height)
            )
    size = len(nodes) + len(below)
    entries = [(r, c, v) for r, (row, _) in enumerate(rows) for c, v in row.items()]
    where = np.array([(r, c) for r, c, _ in entries], np.int64).T
    matrix = csr_array(
        (np.array([v for _, _, v in entries]), (where[0], where[1])),
        shape=(len(rows), size),
    )
    scale = max(max(costs.values(), default=1.0), 1e-12)
    objective = np.zeros(size)
    objective[: len(nodes)] = [costs[node] / scale for _, node in nodes]
    upper = np.ones(size)
    upper[len(nodes) :] = height
    integrality = np.zeros(size)
    integrality[: len(nodes)] = 1
    found = milp(
        objective,
        constraints=LinearConstraint(matrix, np.array([b for _, b in rows]), np.inf),
        bounds=Bounds(np.zeros(size), upper),
        integrality=integrality,
        options={"time_limit": seconds},
    )
    if found.x is None:
        return first
    taken: dict[str, Node] = {}
    for i, (name, node) in enumerate(nodes):
        if found.x[i] > 0.5 and (name not in taken or costs[node] < costs[taken[name]]):
            taken[name] = node
    chosen = _needed(taken, roots)
    cost = sum(costs[node] for node in chosen.values())
    if cost > first.cost * (1 + 1e-9):
        return first
    return Extraction(chosen, cost, "ilp", found.status == 0)


def _reachable(
    classes: Mapping[str, Sequence[Node]], roots: Sequence[str]
) -> list[str]:
    found: dict[str, None] = {}
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = None
            stack += [child for node in classes[name] for child in node.children]
    return list(found)
