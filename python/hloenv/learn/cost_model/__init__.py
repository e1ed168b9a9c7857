# SPDX-License-Identifier: Apache-2.0
"""Training of the learned cost model: data, steps, evaluation.

    from hloenv.learn.cost_model import CostModelConfig, make_data, train
    config = CostModelConfig(max_modules=100)
    make_data(config, "runs/data")
    train(config, "runs/data", "runs/cost")

The model itself is `hloenv.cost.learned`.
"""

from __future__ import annotations

from .config import CostModelConfig
from .data import Made, make_data
from .shards import Shard, read_data, read_shard
from .training import Progress, evaluate, samples_of, train
from .variants import Variant, make_variants

__all__ = [
    "CostModelConfig",
    "Made",
    "Progress",
    "Shard",
    "Variant",
    "evaluate",
    "make_data",
    "make_variants",
    "read_data",
    "read_shard",
    "samples_of",
    "train",
]
