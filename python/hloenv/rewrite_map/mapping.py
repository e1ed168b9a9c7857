# SPDX-License-Identifier: Apache-2.0
"""The worth of each rewrite that XLA makes on one module, in this process."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..cost.kernel_cache import KernelCache
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..measurement.config import Settings
from ..measurement.measurer import Measurer
from ..measurement.store import Store
from ..process.forkserver import starts
from .ablation import Ablation, worth_of
from .accepted import AcceptedRewrite, find_rewrites
from .rounds import Rounds
from .rows import RewriteRow
from .settings import MapSettings

# Part of the time limit that estimates may take if something is to be measured.
_ESTIMATES = 0.6


@dataclass(frozen=True)
class Reference:
    """The program as XLA compiles it.

    Attributes:
        seconds: estimated.
        num_rewrites: distinct rewrites that can be rejected.
    """

    seconds: float
    num_rewrites: int


@dataclass(frozen=True)
class Together:
    """The program without all rewrites that cost by their estimates.

    Attributes:
        seconds: estimated.
        worth: measured, with its 95 % interval; NaN if it was not measured.
        error: why it has no time; "" if it has.
    """

    seconds: float = math.nan
    worth: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    error: str = ""


Found = Reference | RewriteRow | Together


def map_here(
    module: HloModule,
    settings: MapSettings,
    *,
    inputs: Sequence[Any] | None = None,
    known: Sequence[RewriteRow] = (),
    seconds: float | None = None,
) -> Iterator[Found]:
    """Maps a module in this process, which XLA may crash.

    Args:
        module: at the start of XLA's pipeline.
        settings: limits.
        inputs: of the module; random ones by default.
        known: rows of an earlier process; their rewrites are not estimated again.
        seconds: time limit instead of that of the settings.

    Yields:
        The reference; a row for each rewrite before it is tried, again with its
        estimate, and again with its measurement; all rewrites that cost, together, if
        there are any.

    Raises:
        HloEnvError: the module itself cannot be compiled or estimated.
    """
    begin = time.monotonic()
    limit_s = settings.seconds if seconds is None else seconds
    with contextlib.ExitStack() as stack:
        store = None
        if settings.store is not None:
            store = stack.enter_context(Store(settings.store))
        rewrites = find_rewrites(module, threads=settings.threads)
        rounds = Rounds(module, rewrites, settings.threshold, known)
        together = None
        with KernelCache(threads=settings.threads, store=store) as cache:
            yield Reference(Ablation(module, cache).reference_s, len(rewrites))
            share = 1.0 if settings.measure == "none" else _ESTIMATES
            yield from rounds.estimate(cache, begin + share * limit_s)
            if rounds.costly():
                together = _estimate_together(rounds, cache)
                yield together
        if settings.measure != "none":
            measurer = stack.enter_context(Measurer(_of_runs(settings), store=store))
            measured = _Measured(module, rounds, measurer, inputs)
            if together is not None:
                yield measured.together(together.seconds)
            rows = rounds.important(only_costly=settings.measure == "costly")
            yield from measured.rows(rows, begin + limit_s)


def _of_runs(settings: MapSettings) -> Settings:
    return Settings(
        threads=settings.threads,
        seconds=settings.measure_s,
        timeout_s=settings.timeout_s,
        give_up_below=0.0,
    )


def _estimate_together(rounds: Rounds, cache: KernelCache) -> Together:
    starts("together")
    try:
        return Together(Ablation(rounds.without(rounds.costly()), cache).reference_s)
    except HloEnvError as error:
        return Together(error=f"{type(error).__name__}: {error}")


class _Measured:
    """Measures what matters by the estimates."""

    def __init__(
        self,
        module: HloModule,
        rounds: Rounds,
        measurer: Measurer,
        inputs: Sequence[Any] | None,
    ) -> None:
        self._module = module
        self._rounds = rounds
        self._measurer = measurer
        self._inputs = inputs

    def together(self, seconds: float) -> Together:
        """The program without all that costs."""
        starts("together")
        return Together(seconds, *self._worth([], self._rounds.costly()))

    def rows(
        self, rewrites: Sequence[AcceptedRewrite], deadline: float
    ) -> Iterator[RewriteRow]:
        """Single rewrites, against the program of their round."""
        for rewrite in rewrites:
            row = self._rounds.rows[rewrite.identity]
            if not math.isnan(row.measured):
                continue  # by an earlier process
            if time.monotonic() > deadline:
                return
            starts(rewrite.identity)
            base = self._rounds.costly(before=row.round)
            worth, row.error = self._worth(base, [rewrite])
            row.measured, row.low, row.high = worth
            yield row

    def _worth(
        self, base: list[AcceptedRewrite], rewrites: list[AcceptedRewrite]
    ) -> tuple[tuple[float, float, float], str]:
        """Worth of rewrites with its interval, and why there is none."""
        try:
            (result,) = self._measurer.measure(
                [self._rounds.without([*base, *rewrites])],
                baseline=self._rounds.without(base),
                inputs=self._inputs,
            )
            return worth_of(result), ""
        except HloEnvError as error:
            return (math.nan,) * 3, f"{type(error).__name__}: {error}"
