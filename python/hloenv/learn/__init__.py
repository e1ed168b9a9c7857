# SPDX-License-Identifier: Apache-2.0
"""Agents that learn on the environments of `hloenv.envs`.

Stable-Baselines3 and sb3-contrib have the algorithms; here are what they observe, their
training, their checkpoints, and the searches that they are compared with.

    from hloenv.learn import load_agent, order_passes
    found = order_passes(load_agent(), module, budget=450)
"""

from __future__ import annotations

from .agent import Agent, CheckpointError, load_agent, order_passes
from .algorithms import Algorithm, list_algorithms, register_algorithm
from .baselines import (
    Found,
    beam_search,
    fixed_order,
    greedy_search,
    random_search,
)
from .config import TrainConfig
from .evaluation import Evaluation, evaluate
from .training import Progress, train

__all__ = [
    "Agent",
    "Algorithm",
    "CheckpointError",
    "Evaluation",
    "Found",
    "Progress",
    "TrainConfig",
    "beam_search",
    "evaluate",
    "fixed_order",
    "greedy_search",
    "list_algorithms",
    "load_agent",
    "order_passes",
    "random_search",
    "register_algorithm",
    "train",
]
