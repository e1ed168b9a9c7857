# SPDX-License-Identifier: Apache-2.0
"""Agents that learn on the environments of `hloenv.envs`.

Stable-Baselines3 and sb3-contrib have the algorithms; here are what they observe, their
training, their checkpoints, and the searches that they are compared with.

    from hloenv.learn import load_agent, order_passes
    found = order_passes(load_agent(), module, budget=450)

Graph networks decide on rewrites (`hloenv.policies.get_policy("gnn")`). `GnnModel`,
`GnnPolicy`, `GraphPPO`, `PPOConfig`, `RewriteNetwork`, `Scores`, `load_gnn` and
`train_rewrite` are here, too, and `SubstitutionAgent`, `load_substitution_agent` and
`train_substitution` for agents that substitute; they import PyTorch. Every name is
imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._registry import load_attribute

if TYPE_CHECKING:
    from .agent import Agent, CheckpointError, load_agent, order_passes
    from .algorithms import Algorithm, list_algorithms, register_algorithm
    from .baselines import (
        BestOrder,
        beam_search,
        fixed_order,
        greedy_search,
        random_search,
    )
    from .config import TrainConfig
    from .evaluation import Evaluation, evaluate
    from .rewrite_config import RewriteConfig
    from .substitution_config import SubstitutionConfig
    from .training import Progress, train

__all__ = [
    "Agent",
    "Algorithm",
    "BestOrder",
    "CheckpointError",
    "Evaluation",
    "Progress",
    "RewriteConfig",
    "SubstitutionConfig",
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

# Most of them import Gymnasium or PyTorch.
_LAZY = {
    "Agent": "agent",
    "Algorithm": "algorithms",
    "CheckpointError": "agent",
    "Evaluation": "evaluation",
    "BestOrder": "baselines",
    "Progress": "training",
    "RewriteConfig": "rewrite_config",
    "SubstitutionConfig": "substitution_config",
    "TrainConfig": "config",
    "beam_search": "baselines",
    "evaluate": "evaluation",
    "fixed_order": "baselines",
    "greedy_search": "baselines",
    "list_algorithms": "algorithms",
    "load_agent": "agent",
    "order_passes": "agent",
    "random_search": "baselines",
    "register_algorithm": "algorithms",
    "train": "training",
    "GnnModel": "gnn",
    "GnnPolicy": "gnn",
    "GraphPPO": "graph_ppo",
    "PPOConfig": "graph_ppo",
    "RewriteNetwork": "networks",
    "Scores": "scores",
    "SubstitutionAgent": "substitution_agent",
    "load_gnn": "gnn",
    "load_substitution_agent": "substitution_agent",
    "train_rewrite": "rewrite_training",
    "train_substitution": "substitution_training",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return load_attribute(f"hloenv.learn.{_LAZY[name]}:{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
