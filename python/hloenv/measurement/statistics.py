# SPDX-License-Identifier: Apache-2.0
"""Estimates of speed-ups, with confidence intervals.

The addresses of its code and arrays alone make a program some percent faster or slower,
so the runs of one compiled program are not independent samples. Timings therefore come
in groups, one for each copy of the code at another address. A group gives one ratio,
the median over its rounds: the two programs of a round run consecutively, so that
slowdowns of the machine that last longer than a round cancel. The speed-up is the
pseudo-median of these ratios (the median of the means of all pairs, Hodges and Lehmann
1963), which is as robust to outliers as a median and needs a third fewer copies; its
interval is a bootstrap over the copies.

Copies do not cover one source of variance: two compiles of a module may give different
programs, since XLA orders some buffers by hashes of addresses. Two such programs of a
loop differed by 0.4 % (standard deviation), most others by no measurable amount; every
interval includes this variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
_SAMPLES = 1000
# Between two compiles of one module: standard deviation of the log of their ratio.
_COMPILES = 0.003
# Above this there are too many pairs, and a median is as good.
_MAX_PAIRED = 32

Durations = Sequence[int] | npt.NDArray[np.int64]


def speedup_of(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int] = ()
) -> float:
    """Pseudo-median of the speed-up over the copies.

    Args:
        baseline_ns: [N] durations of the baseline.
        durations_ns: [N] durations of the module in the same rounds.
        copies: number of rounds of each copy, in order; their sum is N. By default all
            rounds are of one copy, and each counts as a copy.
    """
    ratios = _log_ratios(baseline_ns, durations_ns, copies)
    return math.exp(_centers(ratios[np.newaxis])[0])


def speedup_interval(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int] = ()
) -> tuple[float, float]:
    """95 % bootstrap interval of `speedup_of`; the same for the same durations.

    A single ratio has no error estimate: its interval is 0 to infinity.

    Args:
        baseline_ns: as in `speedup_of`.
        durations_ns: as in `speedup_of`.
        copies: as in `speedup_of`.
    """
    ratios = _log_ratios(baseline_ns, durations_ns, copies)
    count = len(ratios)
    if count == 1:
        return 0.0, math.inf
    rng = np.random.default_rng(0)
    center = _centers(ratios[np.newaxis])[0]
    # Single precision is far finer than the clock, and takes half of the time.
    draws = rng.integers(0, count, (_SAMPLES, count))
    drawn = _centers(ratios.astype(np.float32)[draws])
    low, high = np.percentile(drawn, _TAILS)
    # Few copies underestimate the spread between copies.
    wider = (
        student_quantile(count - 1) / NORMAL_QUANTILE * math.sqrt(count / (count - 1))
    )
    below = math.hypot(wider * max(center - low, 0.0), NORMAL_QUANTILE * _COMPILES)
    above = math.hypot(wider * max(high - center, 0.0), NORMAL_QUANTILE * _COMPILES)
    return math.exp(center - below), math.exp(center + above)


def noise_of_rounds(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int]
) -> float:
    """Share of the variance between copies that is noise of their rounds.

    Args:
        baseline_ns: as in `speedup_of`.
        durations_ns: as in `speedup_of`.
        copies: as in `speedup_of`; at least 2.

    Returns:
        0 to 1: 1 if more rounds would narrow the interval, 0 if only more copies would.
    """
    rounds = _round_ratios(baseline_ns, durations_ns, copies)
    spread = np.var([np.median(each) for each in rounds], ddof=1)
    # Variance of a median, from the spread of the rounds around it.
    noise = np.mean(
        [
            math.pi
            / 2
            * (1.4826 * np.median(np.abs(each - np.median(each)))) ** 2
            / len(each)
            for each in rounds
        ]
    )
    return float(noise / max(noise, spread, 1e-12))


def _log_ratios(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int]
) -> npt.NDArray[np.float64]:
    """[C] log of the baseline's duration over the module's, for each copy."""
    if len(copies) < 2:
        return _round_ratios(baseline_ns, durations_ns, ())[0]
    rounds = _round_ratios(baseline_ns, durations_ns, copies)
    return np.array([np.median(each) for each in rounds])


def _round_ratios(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int]
) -> list[npt.NDArray[np.float64]]:
    """For each copy, log of the baseline's duration over the module's, by round."""
    # Durations below the resolution of the clock count as one tick.
    above = np.log(np.maximum(baseline_ns, 1))
    below = np.log(np.maximum(durations_ns, 1))
    return np.split(above - below, [*np.cumsum(copies)][:-1])


def _centers(samples: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """[S] pseudo-median of each row of [S, C]; the median where C is large."""
    count = samples.shape[1]
    if count > _MAX_PAIRED:
        return np.asarray(np.median(samples, axis=1))
    first, second = _pairs(count)
    ordered = np.sort(samples, axis=1)  # partitions in half of the time
    sums = ordered[:, first] + ordered[:, second]
    middle = ((sums.shape[1] - 1) // 2, sums.shape[1] // 2)
    sums.partition(middle, axis=1)
    return np.asarray(sums[:, middle].mean(axis=1, dtype=np.float64) / 2)


@cache
def _pairs(count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    first, second = np.triu_indices(count)
    return first, second


_TAILS = (50 * (1 - CONFIDENCE), 100 - 50 * (1 - CONFIDENCE))
NORMAL_QUANTILE = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
# Of 1 and 2 degrees of freedom, for which the expansion is of no use.
_STUDENT = {1: 12.706, 2: 4.303}


def student_quantile(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t, by its expansion around the normal's.

    Within 1 % from 3 degrees of freedom on. Source: Abramowitz and Stegun, 26.7.5.
    """
    if freedom in _STUDENT:
        return _STUDENT[freedom]
    x, n = NORMAL_QUANTILE, freedom
    return (
        x
        + (x**3 + x) / (4 * n)
        + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * n**2)
        + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * n**3)
    )
