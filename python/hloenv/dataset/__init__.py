# SPDX-License-Identifier: Apache-2.0
"""The dataset: HLO modules of public JAX projects.

    for record in hloenv.dataset.load("train"):
        env = hloenv.HloEnv(record.module)

`hloenv.dataset.pyg` provides it as PyTorch Geometric graphs.
"""

from __future__ import annotations

from .reader import (
    EXTENTS,
    SPLITS,
    UNSEEN,
    Dataset,
    InputDistribution,
    InputRange,
    Record,
    check,
    folder,
    load,
)

__all__ = [
    "EXTENTS",
    "SPLITS",
    "UNSEEN",
    "Dataset",
    "InputDistribution",
    "InputRange",
    "Record",
    "check",
    "folder",
    "load",
]
