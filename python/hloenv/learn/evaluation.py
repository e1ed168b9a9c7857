# SPDX-License-Identifier: Apache-2.0
"""How good an agent is on modules that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from ..envs.base import CompilerEnv
from .agent import Agent, order_passes


@dataclass(frozen=True)
class Evaluation:
    """One episode of likeliest actions on each module.

    Attributes:
        benchmarks: URIs of the modules.
        before: of each, what the agent's reward decreases, at the start: by default the
            number of instructions.
        after: of the best module of the episode.
    """

    benchmarks: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def score(self) -> float:
        """Geometric mean of after over before.

        1 counts where nothing could be decreased, and a thousandth where all was.
        """
        ratios = zip(self.after, self.before, strict=True)
        return geometric_mean(
            max(after / before, 1e-3)
            if before > 0 and math.isfinite(before) and math.isfinite(after)
            else 1.0
            for after, before in ratios
        )


def evaluate(
    agent: Agent, benchmarks: Sequence[str], *, env: CompilerEnv
) -> Evaluation:
    """Plays one episode on each module.

    Args:
        agent: what plays.
        benchmarks: URIs of the modules.
        env: which is reset.
    """
    before, after = [], []
    for uri in benchmarks:
        found = order_passes(agent, uri, budget=None, max_episodes=1, env=env)
        before.append(env.reward_space.value(env, env.start))
        after.append(found.score)
    return Evaluation(tuple(benchmarks), tuple(before), tuple(after))
