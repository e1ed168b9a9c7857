# SPDX-License-Identifier: Apache-2.0
"""What a child process of the runner is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..hlo.module import HloModule
from ..measurement.config import Settings
from ..runtime.random_inputs import random_inputs
from .rows import Row

if TYPE_CHECKING:
    from ..dataset.reader import Record


@dataclass(frozen=True)
class Task:
    """One module and the methods that play it.

    Attributes:
        text: of the module.
        row: what every row of it says.
        players: methods by name, with their seeds.
        settings: how to measure.
        estimates: that a search may make.
        measurements: that a search may make.
        search_s: seconds that a search may take to propose and estimate.
        store: path of the store of this version's measurements.
        flags: of XLA, for every compile.
        record: of the dataset, where it says what inputs make sense.
    """

    text: str
    row: Row
    players: tuple[tuple[str, int], ...]
    settings: Settings
    estimates: int
    measurements: int
    search_s: float | None
    store: str
    flags: str
    record: Record | None = None

    def inputs(self) -> list[Any] | None:
        """The inputs of all measurements; None for random ones."""
        if self.record is None:
            return None
        return self.record.inputs(seed=self.settings.seed)


def draw_inputs(module: HloModule, record: Record | None, seed: int) -> list[Any]:
    """Inputs that make sense, where the dataset knows some; otherwise random ones."""
    if record is None:
        return random_inputs(module, seed=seed)
    return record.inputs(seed=seed)


def noted(name: str, seed: int) -> str:
    """What is noted while a method is at work."""
    return f"{name} with seed {seed}"
