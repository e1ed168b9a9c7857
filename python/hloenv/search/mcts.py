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
    """An initial point, the decisions so far, and the remaining blocks.

    `before` is complete; `now` holds the decisions at the current decision point, and
    `order` its remaining blocks, the next one last.
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
        """Mean of the average and the best reward."""
        return (self.total / self.visits + self.highest) / 2


class TreeSearch(Search):
    """UCT with progressive widening.

    The first level of the tree selects an initial point, which determines the decisions
    below the tree. Each further level decides one block of adjacent alternatives of a
    decision point, by gain score and in several rounds, then those of the next point:
    keep the block, take the decisions of another initial point, or change some. Nodes
    hold their decisions; the game holds their snapshots.

    Args:
        game: the game to decide.
        seed: of the random changes.
        blocks: number of blocks of a decision point.
        rounds: number of rounds through these blocks.
        exploration: weight of the exploration term.
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
        self._gain_score = GainScore(self.game)
        self._starts = starting_points(self.game)
        root = _Node(self._starts[0], (), np.zeros(0, np.int64), [])
        first_s = math.inf
        rewards = []
        for start in self._starts:
            seconds = yield start
            if math.isinf(first_s):
                first_s = seconds
            child = _Node(start, (), start[0].copy(), self._order(()))
            root.children.append(child)
            rewards.append(_reward(first_s, seconds))
            _visit([root, child], rewards[-1])
        known = [each for each in rewards if each > 0]
        lowest, highest = min(known, default=1.0), max(known, default=1.0)
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
        """The path to a new node or a leaf."""
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
            scale = highest - lowest or 1.0
            parent_visits = math.log(node.visits)

            def bound(
                child: _Node, scale: float = scale, visits: float = parent_visits
            ) -> float:
                bonus = self._exploration * math.sqrt(visits / child.visits)
                return (child.value() - lowest) / scale + bonus

            path.append(max(node.children, key=bound))
        return path

    def _expand(self, node: _Node) -> _Node | None:
        """A new child for the next block; None if all blocks are decided."""
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
        candidates = block[alternatives.relevant(now)[block]]
        if candidates.size == 0:
            candidates = block
        count = min(int(self._rng.geometric(0.4)), candidates.size)
        where = self._rng.choice(candidates, count, replace=False)
        counts = alternatives.num_choices[where]
        changed[where] = other_choices(now[where], counts, self._rng)
        return self.game.admissible(before, changed)

    def _order(self, before: Prefix) -> list[Int64Array]:
        """All rounds of the blocks of a decision point, the next one last."""
        weights = self._gain_score.weights(self.game.alternatives(before))
        if weights.size == 0:
            return []
        blocks = np.array_split(
            np.arange(weights.size), min(self._blocks, weights.size)
        )
        blocks.sort(key=lambda block: float(weights[block].sum()))
        return blocks * self._rounds


def _reward(first_s: float, seconds: float) -> float:
    """Speed-up over the first candidate; 0 for a failure."""
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
