# SPDX-License-Identifier: Apache-2.0
"""A module as XLA compiles it, without some of its rewrites."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..cost.base import decided_module
from ..cost.kernel_cache import KernelCache
from ..errors import HloEnvError
from ..graph.hlo_graph import HloGraph, opcodes
from ..hlo.decided import with_decisions
from ..hlo.module import HloModule
from ..hlo.passes import list_passes
from ..measurement.record import Measurement
from ..rewrite.env import HloEnv
from .accepted import AcceptedRewrite
from .rows import RewriteRow


def reject(
    module: HloModule, rewrites: Sequence[AcceptedRewrite | RewriteRow]
) -> HloModule:
    """The module with these rewrites rejected: XLA's pipeline does not make them.

    Args:
        module: at the start of XLA's pipeline.
        rewrites: of that module; each is rejected wherever XLA would make it.
    """
    entries = module._decided
    for each in rewrites:
        entries = with_decisions(entries, (each.pass_name,), each.entries)
    return HloModule._wrap(module._core, position=module.position, decided=entries)


def reject_one(module: HloModule, rewrite: AcceptedRewrite) -> HloModule | None:
    """The module with a rewrite rejected at one of its places.

    Returns:
        None if the pass cannot be decided outside XLA's own pipeline, or makes the
        rewrite less than twice in its first run that does.

    Raises:
        HloEnvError: a pass fails.
    """
    if rewrite.pass_name not in list_passes():
        return None
    env = HloEnv(module)
    env.run_until(rewrite.path, occurrence=rewrite.path_occurrence)
    alternatives = env.get_alternatives(rewrite.pass_name)
    decisions = alternatives.decisions_for(rewrite.pass_name)
    rejection = alternatives.leave_to_xla()
    places = []
    for index in (decisions > 0).nonzero()[0].tolist():
        rejection[index] = 0
        if rewrite.entries & set(alternatives._capture.rejected(rejection)):
            places.append(index)
        rejection[index] = -1
    if len(places) < 2:
        return None
    decisions[places[0]] = 0
    return env.apply_alternatives(decisions)


class EstimateError(HloEnvError, RuntimeError):
    """A module has no estimate that can be compared."""


class Ablation:
    """Estimated times of one module with and without rewrites.

    Attributes:
        reference_s: as XLA compiles it, in seconds.
    """

    def __init__(self, module: HloModule, cache: KernelCache) -> None:
        """Estimates the module.

        Args:
            module: at the start of XLA's pipeline.
            cache: of kernel times.

        Raises:
            HloEnvError: the module cannot be compiled or estimated.
        """
        self._cache = cache
        decided = decided_module(module, threads=cache.threads)
        self._reference = decided.fingerprint()
        self._num_unknown_loops = _num_unknown_loops(decided)
        estimate = cache.estimate(decided)
        if not estimate.is_ok:
            raise HloEnvError(f"the program has no estimate: {estimate.error}")
        self.reference_s = estimate.seconds

    def estimate(self, without: HloModule) -> tuple[float, bool]:
        """Estimated seconds of a module, and whether its kernels are the reference's.

        Raises:
            HloEnvError: it cannot be estimated, or not be compared, because XLA no
                longer knows how often a loop runs.
        """
        decided = decided_module(without, threads=self._cache.threads)
        if decided.fingerprint() == self._reference:
            return self.reference_s, True
        if _num_unknown_loops(decided) > self._num_unknown_loops:
            raise EstimateError("without it, XLA does not know how often a loop runs")
        estimate = self._cache.estimate(decided)
        if not estimate.is_ok:
            raise HloEnvError(estimate.error)
        return estimate.seconds, False


def _num_unknown_loops(module: HloModule) -> int:
    """The loops of which XLA does not know the number of iterations."""
    if "while" not in module.opcode_counts():
        return 0
    graph = HloGraph.from_module(module)
    is_loop = graph.opcode == opcodes().index("while")
    return int(np.count_nonzero(is_loop & (graph.trip_count < 0)))


def worth_of(result: Measurement) -> tuple[float, float, float]:
    """Measured worth and its 95 % interval, of a module without rewrites.

    Raises:
        HloEnvError: the measurement failed.
    """
    result.check()
    low, high = result.speedup_interval
    return 1 / result.speedup, 1 / high, 1 / low if low > 0 else math.inf
