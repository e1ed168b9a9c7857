# SPDX-License-Identifier: Apache-2.0
"""The task of a child process of the runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cost.registry import DEFAULT_ESTIMATOR
from ..hlo.module import HloModule
from ..measurement.config import Settings
from ..runtime.random_inputs import random_inputs
from .rows import Row

if TYPE_CHECKING:
    from ..dataset.reader import Record


@dataclass(frozen=True)
class Task:
    """One module and the methods to run on it.

    Attributes:
        text: HLO text.
        row: the fields that all rows of the module share.
        methods: names of methods, with their seeds.
        settings: of the measurements.
        estimates: maximum for a search.
        measurements: maximum for a search.
        search_s: time limit of a search for proposals and estimates, in seconds.
        store: path of the store of this version's measurements.
        flags: XLA flags of every compile.
        estimator: name of the cost model of searches and of "best-rule".
        record: dataset record that specifies the inputs, if any.
    """

    text: str
    row: Row
    methods: tuple[tuple[str, int], ...]
    settings: Settings
    estimates: int
    measurements: int
    search_s: float | None
    store: str
    flags: str
    estimator: str = DEFAULT_ESTIMATOR
    record: Record | None = None

    def inputs(self) -> list[Any] | None:
        """The inputs of all measurements; None for random inputs."""
        if self.record is None:
            return None
        return self.record.inputs(seed=self.settings.seed)


def draw_inputs(module: HloModule, record: Record | None, seed: int) -> list[Any]:
    """The inputs that the record specifies; random inputs without a record."""
    if record is None:
        return random_inputs(module, seed=seed)
    return record.inputs(seed=seed)


def noted(name: str, seed: int) -> str:
    """The note that identifies the running method."""
    return f"{name} with seed {seed}"
