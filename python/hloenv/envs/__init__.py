# SPDX-License-Identifier: Apache-2.0
"""Gymnasium environments over XLA.

import gymnasium, hloenv.envs
env = gymnasium.make("hloenv/PassOrder-v0", benchmark="hloenv://dataset/train/brax")
"""

from __future__ import annotations

from .._optional import needed_by

with needed_by("hloenv.envs", "gymnasium", "rl"):
    from gymnasium.envs.registration import register, registry

from ..dataset.benchmarks import Benchmark, find_benchmarks, list_benchmark_sets
from ..graph.hlo_graph import opcodes as observed_opcodes
from .base import CompilerEnv
from .episode import EpisodeOverError
from .pass_order import PassOrderEnv, target_independent_passes
from .rewards import get_reward, list_rewards, register_reward
from .rewrite import RewriteAllEnv, RewriteEnv
from .rewrite_observations import RewriteObservation
from .spaces import list_observations, register_observation
from .state import EpisodeState, ValidationResult, read_csv, write_csv
from .substitution import SubstitutionEnv
from .substitution_observations import CandidateGraphs, SubstitutionRows
from .vector import GraphVectorEnv
from .wrappers import (
    IterateBenchmarks,
    LogEpisodes,
    PotentialShaping,
    ValidateEpisodes,
    cost_potential,
)

__all__ = [
    "Benchmark",
    "CandidateGraphs",
    "CompilerEnv",
    "EpisodeOverError",
    "EpisodeState",
    "GraphVectorEnv",
    "IterateBenchmarks",
    "LogEpisodes",
    "PassOrderEnv",
    "PotentialShaping",
    "RewriteAllEnv",
    "RewriteEnv",
    "RewriteObservation",
    "SubstitutionEnv",
    "SubstitutionRows",
    "ValidateEpisodes",
    "ValidationResult",
    "cost_potential",
    "find_benchmarks",
    "get_reward",
    "list_benchmark_sets",
    "list_observations",
    "list_rewards",
    "observed_opcodes",
    "read_csv",
    "register_observation",
    "register_reward",
    "target_independent_passes",
    "write_csv",
]

for _name, _entry_point in (
    ("hloenv/PassOrder-v0", "hloenv.envs.pass_order:PassOrderEnv"),
    ("hloenv/Rewrite-v0", "hloenv.envs.rewrite:RewriteEnv"),
    ("hloenv/RewriteAll-v0", "hloenv.envs.rewrite:RewriteAllEnv"),
    ("hloenv/Substitution-v0", "hloenv.envs.substitution:SubstitutionEnv"),
):
    if _name not in registry:
        register(_name, entry_point=_entry_point)
