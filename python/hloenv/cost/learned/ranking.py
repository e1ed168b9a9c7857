# SPDX-License-Identifier: Apache-2.0
"""How well estimates rank the variants of one module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TOP = (1, 5)


@dataclass(frozen=True)
class Ranking:
    """Agreement of estimates with true times of the variants of one module.

    Attributes:
        kendall: tau-b, from -1 to 1; 0 for constant estimates.
        spearman: rank correlation, from -1 to 1; 0 for constant estimates.
        slowdown: for each k in `TOP`, the true time of the best of the k variants with
            the least estimates, over that of the best of all; minus 1.
    """

    kendall: float
    spearman: float
    slowdown: tuple[float, ...]


def rank(estimates: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> Ranking:
    """Compares [V] estimates with [V] true times, all finite and positive."""
    order = np.argsort(estimates, kind="stable")
    best = times.min()
    return Ranking(
        _correlation(_signs(estimates).ravel(), _signs(times).ravel()),
        _correlation(_ranks(estimates), _ranks(times)),
        tuple(float(times[order[:k]].min() / best - 1) for k in TOP),
    )


def mean_ranking(rankings: Sequence[Ranking]) -> Ranking:
    """The means over several modules; NaN for none."""
    if not rankings:
        return Ranking(math.nan, math.nan, (math.nan,) * len(TOP))
    return Ranking(
        float(np.mean([each.kendall for each in rankings])),
        float(np.mean([each.spearman for each in rankings])),
        tuple(np.mean([each.slowdown for each in rankings], axis=0).tolist()),
    )


def _signs(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[V, V] signs of all differences; their correlation is Kendall's tau-b."""
    return np.sign(values[:, None] - values[None])


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[V] ranks from 0 with mean ranks for ties, minus their mean."""
    ranks: npt.NDArray[np.float64] = _signs(values).sum(axis=1) / 2
    return ranks


def _correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Of vectors with mean 0; 0 where one of them is constant."""
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else 0.0
