# SPDX-License-Identifier: Apache-2.0
"""Estimators: predict the run time of a module without running it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import PositionError
from ..hlo.module import HloModule
from ..hlo.pipeline import run_until
from ..process.cpu_affinity import as_if_on

# From this pass on, XLA only inserts copies.
LAST_DECISION = "copy-insertion"


@dataclass(frozen=True)
class Estimate:
    """Estimated run time of a module.

    Attributes:
        seconds: of one run; NaN with an error.
        num_kernels: different kernels in the module.
        num_timed: those of them that were timed for this estimate.
        error: why there is no estimate, "" if there is one.
    """

    seconds: float
    num_kernels: int = 0
    num_timed: int = 0
    error: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether `seconds` is a number."""
        return not math.isnan(self.seconds)


class Estimator(Protocol):
    """A cost model: `Roofline`, `KernelCache`, or a learned one."""

    def estimate_many(self, modules: Sequence[HloModule]) -> list[Estimate]:
        """One estimate for each module; a failure is the error of its estimate."""
        ...


def decided_module(module: HloModule, *, threads: int = 1) -> HloModule:
    """`module` after all passes of XLA that determine its kernels.

    Args:
        module: at any position in XLA's pipeline.
        threads: cores that it will run on.

    Raises:
        CompileError: a pass fails on the module.
    """
    try:
        with as_if_on(threads):
            return run_until(module, LAST_DECISION)
    except PositionError:
        if module.position is None:
            raise
        return module  # past it already
