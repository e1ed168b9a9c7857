# SPDX-License-Identifier: Apache-2.0
"""The worth of each rewrite that XLA makes on one module."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..cost.kernel_cache import KernelCache
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..measurement.config import Settings
from ..measurement.measurer import Measurer
from ..measurement.store import Store
from ..process.forkserver import starts
from .ablation import Ablation, reject, reject_one, worth_of
from .accepted import AcceptedRewrite, find_rewrites
from .rows import RewriteRow

# Part of the time limit that estimates may take if something is to be measured.
_ESTIMATES = 0.6


@dataclass(frozen=True)
class MapSettings:
    """How a program is mapped.

    Attributes:
        seconds: time limit of one program.
        threshold: share of the time, from which a rewrite is measured, and from which
            one that costs is rejected with the others.
        measure: whether anything is measured; otherwise there are only estimates.
        measure_s: time of the runs of one measurement.
        timeout_s: time limit of one estimate or measurement.
        threads: cores that the program runs on.
        store: path of the file of kernel times and measurements; None for none.
    """

    seconds: float = 120.0
    threshold: float = 0.03
    measure: bool = True
    measure_s: float = 1.0
    timeout_s: float = 300.0
    threads: int = 1
    store: str | None = None


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
    """The program without all rewrites that cost.

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
        with KernelCache(threads=settings.threads, store=store) as cache:
            ablation = Ablation(module, cache)
            yield Reference(ablation.reference_s, len(rewrites))
            rows = _Rows(module, settings.threshold, ablation, known)
            share = _ESTIMATES if settings.measure else 1.0
            yield from rows.estimate(rewrites, begin + share * limit_s)
            yield from rows.estimate_together()
        if settings.measure:
            measurer = stack.enter_context(Measurer(_of_runs(settings), store=store))
            yield from rows.measure(measurer, inputs, begin + limit_s)


def _of_runs(settings: MapSettings) -> Settings:
    return Settings(
        threads=settings.threads,
        seconds=settings.measure_s,
        timeout_s=settings.timeout_s,
        give_up_below=0.0,
    )


class _Rows:
    """The rows of one program, as they are filled in."""

    def __init__(
        self,
        module: HloModule,
        threshold: float,
        ablation: Ablation,
        known: Sequence[RewriteRow],
    ) -> None:
        self._known = {row.identity: row for row in known}
        self._module = module
        self._threshold = threshold
        self._ablation = ablation
        self._found: list[tuple[AcceptedRewrite, RewriteRow]] = []
        self._together: Together | None = None

    def estimate(
        self, rewrites: list[AcceptedRewrite], deadline: float
    ) -> Iterator[RewriteRow]:
        """A row for each rewrite, as far as the time allows."""
        for rewrite in rewrites:
            if rewrite.identity in self._known:
                self._found.append((rewrite, self._known[rewrite.identity]))
                continue
            if time.monotonic() > deadline:
                continue
            starts(rewrite.identity)
            row = RewriteRow.of(rewrite)
            yield replace(row)
            try:
                self._estimate(rewrite, row)
            except HloEnvError as error:
                row.error = f"{type(error).__name__}: {error}"
            self._found.append((rewrite, row))
            yield row

    def _estimate(self, rewrite: AcceptedRewrite, row: RewriteRow) -> None:
        without = reject(self._module, [rewrite])
        row.without_s, row.is_noop = self._ablation.estimate(without)
        row.worth = row.without_s / self._ablation.reference_s
        if rewrite.count > 1 and self._effect(row) >= self._threshold:
            single = reject_one(self._module, rewrite)
            if single is not None:
                row.without_one_s, _ = self._ablation.estimate(single)

    def _effect(self, row: RewriteRow) -> float:
        """The factor by which the rewrite changes the time, minus 1."""
        if not row.worth > 0:
            return 0.0
        return math.expm1(abs(math.log(row.worth)))

    def _costly(self) -> list[AcceptedRewrite]:
        return [
            rewrite
            for rewrite, row in self._found
            if row.worth < 1 and self._effect(row) >= self._threshold
        ]

    def estimate_together(self) -> Iterator[Together]:
        """The program without all rewrites that cost, by their estimates."""
        costly = self._costly()
        if not costly:
            return
        starts("together")
        try:
            seconds, _ = self._ablation.estimate(reject(self._module, costly))
            self._together = Together(seconds)
        except HloEnvError as error:
            self._together = Together(error=f"{type(error).__name__}: {error}")
        yield self._together

    def measure(
        self, measurer: Measurer, inputs: Sequence[Any] | None, deadline: float
    ) -> Iterator[RewriteRow | Together]:
        """Measures what costs together, then single rewrites that matter."""
        costly = self._costly()
        if costly and self._together is not None:
            starts("together")
            seconds = self._together.seconds
            worth, error = self._measured(measurer, inputs, costly)
            yield Together(seconds, worth, error)
        important = [
            (rewrite, row)
            for rewrite, row in self._found
            if self._effect(row) >= self._threshold
        ]
        for rewrite, row in sorted(important, key=lambda each: -self._effect(each[1])):
            if time.monotonic() > deadline:
                return
            starts(rewrite.identity)
            worth, row.error = self._measured(measurer, inputs, [rewrite])
            row.measured, row.low, row.high = worth
            yield row

    def _measured(
        self,
        measurer: Measurer,
        inputs: Sequence[Any] | None,
        rewrites: list[AcceptedRewrite],
    ) -> tuple[tuple[float, float, float], str]:
        """Worth with its interval, and why there is none."""
        without = reject(self._module, rewrites)
        try:
            (result,) = measurer.measure(
                [without], baseline=self._module, inputs=inputs
            )
            return worth_of(result), ""
        except HloEnvError as error:
            return (math.nan,) * 3, f"{type(error).__name__}: {error}"
