# SPDX-License-Identifier: Apache-2.0
"""Estimates of a program without each of XLA's rewrites, in rounds.

A rewrite that costs most of the time hides all others, whose shares of the time are
then small. After such a round, the rewrites that cost stay rejected, and the others are
estimated again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..cost.kernel_cache import KernelCache
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..process.forkserver import starts
from .ablation import Ablation, reject, reject_one
from .accepted import AcceptedRewrite
from .rows import RewriteRow

_MAX_ROUNDS = 3
# Another round follows if the program is faster than this share without what costs.
_NEXT_ROUND = 0.8


class Rounds:
    """The rows of one program, as they are filled in.

    Attributes:
        rows: by identity.
    """

    def __init__(
        self,
        module: HloModule,
        rewrites: Sequence[AcceptedRewrite],
        threshold: float,
        known: Sequence[RewriteRow] = (),
    ) -> None:
        """Without estimates.

        Args:
            module: at the start of XLA's pipeline.
            rewrites: that XLA makes on it, in the order in which they are tried.
            threshold: share of the time, from which a rewrite matters.
            known: rows of an earlier process.
        """
        self._module = module
        self._rewrites = {each.identity: each for each in rewrites}
        self._threshold = threshold
        self.rows = {row.identity: row for row in known}

    def estimate(self, cache: KernelCache, deadline: float) -> Iterator[RewriteRow]:
        """A row for each rewrite before it is tried, and again with its estimate.

        Args:
            cache: of kernel times.
            deadline: when to stop, in the time of `time.monotonic`.

        Raises:
            HloEnvError: the module cannot be estimated.
        """
        for number in range(1, _MAX_ROUNDS + 1):
            base = self.costly(before=number)
            if number > 1 and not base:
                return
            ablation = Ablation(self.without(base), cache)
            if number > 1 and not self._is_hidden(ablation.reference_s, number):
                return
            rejected = {each.identity for each in base}
            for identity, rewrite in self._rewrites.items():
                row = self.rows.get(identity)
                is_tried = row is not None and row.round >= number
                if identity in rejected or is_tried or time.monotonic() > deadline:
                    continue
                yield from self._try(rewrite, base, ablation, number)

    def _is_hidden(self, seconds: float, number: int) -> bool:
        """Whether the program is much faster than in the round before."""
        before = {row.base_s for row in self.rows.values() if row.round == number - 1}
        return seconds < _NEXT_ROUND * max(before, default=0.0)

    def _try(
        self,
        rewrite: AcceptedRewrite,
        base: list[AcceptedRewrite],
        ablation: Ablation,
        number: int,
    ) -> Iterator[RewriteRow]:
        row = RewriteRow.of(rewrite)
        row.round, row.base_s = number, ablation.reference_s
        starts(rewrite.identity)
        yield replace(row)
        try:
            self._fill_in(row, rewrite, base, ablation)
        except HloEnvError as error:
            row.error = f"{type(error).__name__}: {error}"
        self.rows[row.identity] = row
        yield row

    def _fill_in(
        self,
        row: RewriteRow,
        rewrite: AcceptedRewrite,
        base: list[AcceptedRewrite],
        ablation: Ablation,
    ) -> None:
        row.without_s, row.is_noop = ablation.estimate(self.without([*base, rewrite]))
        row.worth = row.without_s / ablation.reference_s
        if rewrite.count > 1 and not base and self._matters(row):
            single = reject_one(self._module, rewrite)
            if single is not None:
                row.without_one_s, _ = ablation.estimate(single)

    def without(self, rewrites: Sequence[AcceptedRewrite]) -> HloModule:
        """The module with these rewrites rejected."""
        return reject(self._module, rewrites) if rewrites else self._module

    def _matters(self, row: RewriteRow) -> bool:
        return row.worth > 0 and effect(row.worth) >= self._threshold

    def costly(self, *, before: int = _MAX_ROUNDS + 1) -> list[AcceptedRewrite]:
        """The rewrites that cost by their estimates, of the rounds before one."""
        return [
            self._rewrites[row.identity]
            for row in self.rows.values()
            if row.round < before
            and row.worth < 1
            and self._matters(row)
            # An earlier process may have had others.
            and row.identity in self._rewrites
        ]

    def important(self, *, only_costly: bool = False) -> list[AcceptedRewrite]:
        """The rewrites that matter, by round, then those with the largest effect."""
        rows = [
            row
            for row in self.rows.values()
            if self._matters(row)
            and row.identity in self._rewrites
            and (row.worth < 1 or not only_costly)
        ]
        rows.sort(key=lambda row: (row.round, -effect(row.worth)))
        return [self._rewrites[row.identity] for row in rows]


def effect(worth: float) -> float:
    """The factor by which a rewrite changes the time, minus 1."""
    return math.expm1(abs(math.log(worth)))
