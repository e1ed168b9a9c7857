# SPDX-License-Identifier: Apache-2.0
"""Searches for pass orders without learning, each with a budget of pass runs.

A pass that a search runs on a module counts as one step, also if the memo has its
result, so that a search's steps do not depend on what ran before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..envs.base import CompilerEnv
from ..envs.pass_memo import Node
from ..errors import ArgumentError

# What is to be small; the number of instructions by default.
Score = Callable[[Node], float]


@dataclass
class BestOrder:
    """The best module of a search so far.

    Attributes:
        node: this module.
        passes: numbers of the passes that make it, without those that change nothing.
        score: what was minimized.
        num_steps: passes that were run for it.
    """

    node: Node
    passes: tuple[int, ...]
    score: float
    num_steps: int = 0

    def offer(self, node: Node, passes: Sequence[int], score: float) -> None:
        """Keeps a module if it is better."""
        if score < self.score:
            self.node, self.passes, self.score = node, tuple(passes), score


def op_count(node: Node) -> float:
    """The number of instructions."""
    return float(node.op_count)


def random_search(
    env: CompilerEnv, budget: int, *, seed: int = 0, score: Score = op_count
) -> BestOrder:
    """Random episodes; a pass is not drawn again where it has changed nothing."""
    rng = np.random.default_rng(seed)
    found = _start(env, budget, score)
    unchanged: dict[str, set[int]] = {}
    while found.num_steps < budget:
        node, passes = env.start, list[int]()
        for _ in range(env.max_steps):
            known = unchanged.setdefault(node.fingerprint, set())
            possible = [i for i in range(len(env.passes)) if i not in known]
            if not possible or found.num_steps >= budget:
                break
            number = int(rng.choice(possible))
            following = env.following(number, node)
            found.num_steps += 1
            if following is node:
                known.add(number)
                continue
            node = following
            passes.append(number)
            found.offer(node, passes, score(node))
        if len(unchanged[env.start.fingerprint]) == len(env.passes):
            break
    return found


def greedy_search(
    env: CompilerEnv, budget: int | None = None, *, score: Score = op_count
) -> BestOrder:
    """The best next pass, until none improves the module."""
    found = _start(env, budget, score)
    while True:
        before = found.score
        passes = found.passes
        for number, following in _tried(env, found.node, found, budget):
            found.offer(following, (*passes, number), score(following))
        if found.score >= before:
            return found


def beam_search(
    env: CompilerEnv, budget: int, *, width: int = 8, score: Score = op_count
) -> BestOrder:
    """The `width` best modules of each length; also those that are no improvement.

    Raises:
        ArgumentError: the width is not positive.
    """
    if width < 1:
        raise ArgumentError(f"width must be an integer >= 1, got {width}")
    found = _start(env, budget, score)
    beam: list[tuple[Node, tuple[int, ...]]] = [(env.start, ())]
    seen = {env.start.fingerprint}
    for _ in range(env.max_steps):
        reached = []
        for node, passes in beam:
            for number, following in _tried(env, node, found, budget):
                if following.fingerprint in seen:
                    continue
                seen.add(following.fingerprint)
                reached.append((following, (*passes, number)))
                found.offer(following, (*passes, number), score(following))
        beam = sorted(reached, key=lambda each: score(each[0]))[:width]
        if not beam or found.num_steps >= budget:
            break
    return found


def fixed_order(
    env: CompilerEnv,
    order: Sequence[int],
    *,
    max_rounds: int = 25,
    score: Score = op_count,
) -> BestOrder:
    """The same passes in the same order, until a round changes nothing.

    Not all of it need be an improvement: the module is the last, not the best.
    """
    found = _start(env, None, score)
    node, passes = env.start, list[int]()
    for _ in range(max_rounds):
        before = node
        for number in order:
            following = env.following(number, node)
            found.num_steps += 1
            if following is not node:
                passes.append(number)
            node = following
        if node.fingerprint == before.fingerprint:
            break
    found.node, found.passes, found.score = node, tuple(passes), score(node)
    return found


def _start(env: CompilerEnv, budget: int | None, score: Score) -> BestOrder:
    env.check_begun()
    if budget is not None and budget < 1:
        raise ArgumentError(f"budget must be an integer >= 1, got {budget}")
    return BestOrder(env.start, (), score(env.start))


def _tried(
    env: CompilerEnv, node: Node, found: BestOrder, budget: int | None
) -> Iterator[tuple[int, Node]]:
    """What the passes make of a module, within the budget."""
    for number in range(len(env.passes)):
        if budget is not None and found.num_steps >= budget:
            return
        following = env.following(number, node)
        found.num_steps += 1
        if following is not node:
            yield number, following
