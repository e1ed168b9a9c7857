# SPDX-License-Identifier: Apache-2.0
"""Monte Carlo tree search over the snapshots of a game."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .._typing import Int64Array
from ..errors import HloEnvError
from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import other_choices
from .scores import GainScore


@dataclass
class _Node:
    """A start, decisions so far, and what comes next.

    `before` is decided for good, `now` as far as its blocks were; `order` holds the
    blocks of the stop that are left, the next one last.
    """

    start: Prefix
    before: Prefix
    now: Int64Array
    order: list[Int64Array]
    children: list[_Node] = field(default_factory=list)
    is_leaf: bool = False
    visits: int = 0
    total: float = 0.0
    highest: float = -math.inf

    def value(self) -> float:
        """Mean of the average and the best result, as the search looks for the best."""
        return (self.total / self.visits + self.highest) / 2


class TreeSearch(Search):
    """UCT with progressive widening; decisions below a node are its starting point's.

    The first level of the tree chooses a starting point. Each further level decides one
    block of a stop's alternatives, those that lie together in the module, the blocks
    where most is at stake first, several rounds of them, then the next stop's: leave it
    as it is, take another starting point's decisions, or change some. Nodes hold the
    decisions that lead to them, and the game their snapshots.

    Args:
        game: what is decided.
        seed: of the changes.
        blocks: of the alternatives of a stop.
        rounds: through the blocks of a stop.
        exploration: weight of what was seldom visited.
    """

    def __init__(
        self,
        game: Game,
        *,
        seed: int = 0,
        blocks: int = 8,
        rounds: int = 2,
        exploration: float = 0.3,
    ) -> None:
        self._blocks = blocks
        self._rounds = rounds
        self._exploration = exploration
        super().__init__(game, seed=seed)

    def _proposals(self) -> Proposals:
        self._promise = GainScore(self.game)
        self._starts = starting_points(self.game)
        root = _Node(self._starts[0], (), np.zeros(0, np.int64), [])
        first_s = math.inf
        for start in self._starts:
            seconds = yield start
            if math.isinf(first_s):
                first_s = seconds
            child = _Node(start, (), start[0].copy(), self._order(()))
            root.children.append(child)
            _visit([root, child], _reward(first_s, seconds))
        lowest, highest = math.inf, -math.inf
        while True:
            path = self._select(root, lowest, highest)
            node = path[-1]
            try:
                decided = self.game.carry(node.start, (*node.before, node.now))
            except HloEnvError:
                node.is_leaf = True
                _visit(path, 0.0)
                continue
            seconds = yield decided
            if math.isinf(first_s):
                first_s = seconds
            reward = _reward(first_s, seconds)
            if reward > 0:
                lowest, highest = min(lowest, reward), max(highest, reward)
            _visit(path, reward)

    def _select(self, root: _Node, lowest: float, highest: float) -> list[_Node]:
        """Down to a node that is new, or has nothing below it."""
        path = [root]
        while not path[-1].is_leaf:
            node = path[-1]
            may_widen = node is not root and len(node.children) <= math.sqrt(
                max(0, node.visits - 1)
            )
            if may_widen:
                child = self._expand(node)
                if child is None:
                    node.is_leaf = True
                    break
                node.children.append(child)
                return [*path, child]
            scale = max(highest - lowest, 1e-9)
            parent_visits = math.log(node.visits)

            def bound(
                child: _Node, scale: float = scale, visits: float = parent_visits
            ) -> float:
                chance = self._exploration * math.sqrt(visits / child.visits)
                return (child.value() - lowest) / scale + chance

            path.append(max(node.children, key=bound))
        return path

    def _expand(self, node: _Node) -> _Node | None:
        """Another way to decide the next block; None when all is decided."""
        before, now, order = node.before, node.now, node.order
        while not order:
            before = (*before, now)
            if len(before) == len(self.game.stops):
                return None
            try:
                now = self.game.follow(node.start, before)
                order = self._order(before)
            except HloEnvError:
                return None
        block, rest = order[-1], order[:-1]
        if node.children:
            now = self._change(node.start, before, now, block)
        return _Node(node.start, before, now, rest)

    def _change(
        self, start: Prefix, before: Prefix, now: Int64Array, block: Int64Array
    ) -> Int64Array:
        alternatives = self.game.alternatives(before)
        changed = now.copy()
        others = [each for each in self._starts if each is not start]
        if others and self._rng.random() < 0.5:
            other = others[int(self._rng.integers(len(others)))]
            changed[block] = self.game.follow(other, before)[block]
            changed = self.game.admissible(before, changed)
            if not np.array_equal(changed, now):
                return changed
        matter = block[alternatives.relevant(now)[block]]
        if matter.size == 0:
            matter = block
        count = min(int(self._rng.geometric(0.4)), matter.size)
        where = self._rng.choice(matter, count, replace=False)
        counts = alternatives.num_choices[where]
        changed[where] = other_choices(now[where], counts, self._rng)
        return self.game.admissible(before, changed)

    def _order(self, before: Prefix) -> list[Int64Array]:
        """All rounds of the blocks of a stop, the next one last."""
        weights = self._promise.weights(self.game.alternatives(before))
        if weights.size == 0:
            return []
        blocks = np.array_split(
            np.arange(weights.size), min(self._blocks, weights.size)
        )
        blocks.sort(key=lambda block: float(weights[block].sum()))
        return blocks * self._rounds


def _reward(first_s: float, seconds: float) -> float:
    """How many times as fast as the first; 0 for what failed."""
    if not math.isfinite(seconds):
        return 0.0
    return first_s / seconds if seconds > 0 else 1.0


def _visit(path: list[_Node], reward: float) -> None:
    for node in path:
        node.visits += 1
        node.total += reward
        node.highest = max(node.highest, reward)


register_search(
    "mcts",
    "UCT over blocks of decisions by gain score, from each starting point",
    TreeSearch,
)
