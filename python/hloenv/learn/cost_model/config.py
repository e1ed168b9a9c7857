# SPDX-License-Identifier: Apache-2.0
"""How a cost model is trained, and on which data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError
from ..config_file import FileConfig

_POSITIVE = (
    *("variants", "max_modules", "max_validation", "threads", "steps", "members"),
    *("width", "rounds", "modules_per_step", "kernels_per_step"),
    *("evaluate_every",),
)
MEASURED = ("store", "all", "none")
# What determines the data of a module.
_DATA = ("variants", "data_seed", "threads", "measured")


@dataclass(frozen=True)
class CostModelConfig(FileConfig):
    """One training run of a cost model; by default, as of the one in the package.

    Attributes:
        train: URI of the modules whose variants are learned.
        validation: URI of those that choose the best checkpoint; of other repositories.
        max_modules: drawn from `train`, in turn from its repositories.
        max_validation: drawn from `validation`.
        variants: that are made of each module, XLA's default included.
        data_seed: of the drawn modules and variants.
        threads: cores that the kernels are timed on.
        measured: which variants also have a measured time: those in the "store",
            "all", which measures, or "none".
        steps: of training.
        seed: of the networks, and of the order of the modules.
        members: networks of the ensemble.
        width: of the hidden layers.
        rounds: of message passing.
        has_attention: whether the variants of a module that are estimated together
            attend to each other; each estimate then depends on the others.
        dropout: share of the hidden values that a step leaves out.
        modules_per_step: whose variants are ranked in one step.
        kernels_per_step: drawn from more modules in one step, for the regression.
        learning_rate: at its largest.
        ranking_weight: of the pairwise ranking loss; that of the regression of log
            times is 1.
        evaluate_every: steps from one evaluation, and checkpoint, to the next.
    """

    train: str = "hloenv://dataset/train?min_instructions=10&max_instructions=500"
    validation: str = (
        "hloenv://dataset/validation?min_instructions=10&max_instructions=500"
    )
    max_modules: int = 400
    max_validation: int = 60
    variants: int = 16
    data_seed: int = 0
    threads: int = 1
    measured: str = "store"
    steps: int = 3000
    seed: int = 0
    members: int = 3
    width: int = 48
    rounds: int = 3
    has_attention: bool = False
    dropout: float = 0.1
    modules_per_step: int = 4
    kernels_per_step: int = 192
    learning_rate: float = 2e-3
    ranking_weight: float = 1.0
    evaluate_every: int = 250

    def __post_init__(self) -> None:
        """Checks the ranges."""
        self.check_least(1, *_POSITIVE)
        self.check_least(0, "seed", "data_seed", "ranking_weight")
        if not 0 <= self.dropout < 1:
            raise ArgumentError(
                f"dropout must be at least 0 and below 1, got {self.dropout}"
            )
        if self.width % 4:
            raise ArgumentError(f"width must be a multiple of 4, got {self.width}")
        if not 0 < self.learning_rate < 1:
            raise ArgumentError(
                f"learning_rate must be between 0 and 1, got {self.learning_rate}"
            )
        if self.measured not in MEASURED:
            raise ArgumentError(
                f"measured must be one of {', '.join(MEASURED)}, got {self.measured!r}"
            )

    @property
    def data(self) -> dict[str, Any]:
        """What determines the data of a module, JSON-able."""
        return {name: getattr(self, name) for name in _DATA}
