# SPDX-License-Identifier: Apache-2.0
"""How good agents and searches are on modules that they have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from ..envs.base import CompilerEnv
from .agent import Agent


@dataclass(frozen=True)
class Evaluation:
    """One episode of likeliest actions on each module.

    Attributes:
        benchmarks: URIs of the modules.
        before: instructions of each at the start.
        after: instructions of the best module of the episode.
    """

    benchmarks: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def score(self) -> float:
        """Geometric mean of instructions after over instructions before."""
        ratios = zip(self.after, self.before, strict=True)
        return geometric_mean(after / before for after, before in ratios)


def evaluate(
    agent: Agent, benchmarks: Sequence[str], *, env: CompilerEnv
) -> Evaluation:
    """Plays one episode on each module.

    Args:
        agent: what plays.
        benchmarks: URIs of the modules.
        env: which is reset.
    """
    from .agent import order_passes

    before, after = [], []
    for uri in benchmarks:
        found = order_passes(agent, uri, max_episodes=1, env=env)
        before.append(max(env.start.op_count, 1))
        after.append(max(found.node.op_count, 1))
    return Evaluation(tuple(benchmarks), tuple(before), tuple(after))
