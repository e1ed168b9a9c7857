# SPDX-License-Identifier: Apache-2.0
"""Estimate of a module as it is: the sum of its operators, as in TASO."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import HloEnvError
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from .base import Estimate
from .roofline import Rates, estimate_seconds


class OperatorSum:
    """Adds up the roofline times of the instructions, without XLA's passes.

    Cheap, and blind to fusion: every instruction moves its operands and its result, but
    slices, reshapes and broadcasts, which are free, as in TASO; so is what depends on
    constants alone, such as weights that are joined or scaled.
    """

    def __init__(
        self, rates: Rates | None = None, *, threads: int = 1, store: object = None
    ) -> None:
        """Without `rates`, only the order of the estimates is meaningful."""
        del threads, store  # the same for all
        self.rates = rates or Rates()

    def estimate_many(self, modules: Sequence[HloModule]) -> list[Estimate]:
        """One estimate for each module; a failure is the error of its estimate."""
        return [self._estimate(module) for module in modules]

    def _estimate(self, module: HloModule) -> Estimate:
        try:
            graph = HloGraph.from_module(module)
        except HloEnvError as error:
            return Estimate(math.nan, error=str(error))
        seconds = estimate_seconds(graph, self.rates, is_before_passes=True)
        return Estimate(seconds, graph.num_nodes)
