# SPDX-License-Identifier: Apache-2.0
"""How much faster one program is than another, and how sure that is.

Where its code lies in memory alone makes a program some percent faster or slower, for
as long as the process lives, so the runs of one compiled program are no independent
sample. Timings therefore come in groups, one for each copy of the code at another
address, and the interval is drawn from the copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
_SAMPLES = 2000
# With fewer copies there is nothing to draw from, and rounds are drawn instead.
_FEWEST_COPIES = 4

Durations = Sequence[int] | npt.NDArray[np.int64]


def speedup_of(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int] = ()
) -> float:
    """Median over the copies of the ratio of their median durations.

    Args:
        baseline_ns: [N] durations of the baseline.
        durations_ns: [N] durations of the module in the same rounds.
        copies: how many of the rounds each copy took, in order; their sum is N. By
            default one copy took them all.
    """
    return float(np.exp(np.median(_log_ratios(baseline_ns, durations_ns, copies))))


def speedup_interval(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int] = ()
) -> tuple[float, float]:
    """95 % bootstrap interval of `speedup_of`; the same for the same durations.

    Args:
        baseline_ns: as in `speedup_of`.
        durations_ns: as in `speedup_of`.
        copies: as in `speedup_of`.
    """
    if len(copies) < _FEWEST_COPIES:
        return bootstrap_ratio(baseline_ns, durations_ns)
    ratios = _log_ratios(baseline_ns, durations_ns, copies)
    count = len(ratios)
    rng = np.random.default_rng(0)
    drawn = np.median(ratios[rng.integers(0, count, (_SAMPLES, count))], axis=1)
    center = float(np.median(ratios))
    low, high = np.percentile(drawn, _TAILS)
    # Few copies show less than the whole spread between copies.
    wider = _student(count - 1) / _NORMAL * math.sqrt(count / (count - 1))
    return (
        math.exp(center + wider * (low - center)),
        math.exp(center + wider * (high - center)),
    )


def bootstrap_ratio(
    numerator_ns: Durations, denominator_ns: Durations
) -> tuple[float, float]:
    """95 % interval of the ratio of two medians, from resampled rounds.

    The two were timed in turns, so a round is drawn with both of its durations.

    Args:
        numerator_ns: [N] durations.
        denominator_ns: [N] durations of the same rounds.
    """
    above, below = np.asarray(numerator_ns), np.asarray(denominator_ns)
    rng = np.random.default_rng(0)
    rounds = rng.integers(0, len(above), (_SAMPLES, len(above)))
    ratios = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    low, high = np.percentile(ratios, _TAILS)
    return float(low), float(high)


def _log_ratios(
    baseline_ns: Durations, durations_ns: Durations, copies: Sequence[int]
) -> npt.NDArray[np.float64]:
    """[C] log of baseline's over the module's median, for each copy."""
    ends = np.cumsum(copies if copies else [len(durations_ns)])
    # What the clock cannot tell from nothing took one tick.
    above = np.split(np.maximum(baseline_ns, 1), ends[:-1])
    below = np.split(np.maximum(durations_ns, 1), ends[:-1])
    return np.array(
        [
            math.log(np.median(a) / np.median(b))
            for a, b in zip(above, below, strict=True)
        ]
    )


_TAILS = (50 * (1 - CONFIDENCE), 100 - 50 * (1 - CONFIDENCE))
_NORMAL = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


def _student(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t, by its expansion around the normal's.

    Within 1 % from 3 degrees of freedom on. Source: Abramowitz and Stegun, 26.7.5.
    """
    x, n = _NORMAL, freedom
    return (
        x
        + (x**3 + x) / (4 * n)
        + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * n**2)
        + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * n**3)
    )
