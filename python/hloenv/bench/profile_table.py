# SPDX-License-Identifier: Apache-2.0
"""Table of profiles: share of each kind of kernel, and rates relative to the peak."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..cost.roofline import Rates
from .profile import KINDS, Profile
from .tables import Table


def profile_table(
    profiles: Sequence[Profile], times_ns: dict[str, float], rates: Rates
) -> Table:
    """Time of each module by kind of kernel, and its rates relative to the peak.

    Args:
        profiles: of the modules.
        times_ns: run time of each with XLA's default.
        rates: measured on this machine with the same number of threads.
    """
    columns = (
        *("module", "XLA's default", *KINDS, "GFLOP/s", "of peak"),
        *("GB/s", "of memory bandwidth", "over lower bound"),
    )
    cells: list[tuple[str, ...]] = []
    timed = [each for each in profiles if not each.error and each.module in times_ns]
    for each in sorted(timed, key=lambda each: -times_ns[each.module]):
        seconds = times_ns[each.module] * 1e-9
        shares = tuple(f"{each.shares.get(kind, 0.0):.0%}" for kind in KINDS)
        cells.append(
            (
                *(each.module, f"{seconds * 1e3:.3g} ms", *shares),
                *_rates(each.flops, seconds, rates.dot_flops_per_s),
                *_rates(each.moved_bytes, seconds, rates.memory_bytes_per_s),
                f"{seconds / floor:.1f}" if (floor := each.floor_s(rates)) else "-",
            )
        )
    if timed:
        cells.insert(0, _all(timed, times_ns, rates))
    return columns, cells


def _all(
    profiles: Sequence[Profile], times_ns: dict[str, float], rates: Rates
) -> tuple[str, ...]:
    """The row for all modules run in sequence."""
    seconds = {each.module: times_ns[each.module] * 1e-9 for each in profiles}
    total = math.fsum(seconds.values())

    def share(kind: str) -> float:
        return math.fsum(
            each.shares.get(kind, 0.0) * seconds[each.module] for each in profiles
        )

    flops = math.fsum(each.flops for each in profiles)
    moved = math.fsum(each.moved_bytes for each in profiles)
    floor = math.fsum(each.floor_s(rates) for each in profiles)
    return (
        *("all, in sequence", f"{total * 1e3:.3g} ms"),
        *(f"{share(kind) / total:.0%}" for kind in KINDS),
        *_rates(flops, total, rates.dot_flops_per_s),
        *_rates(moved, total, rates.memory_bytes_per_s),
        f"{total / floor:.1f}" if floor else "-",
    )


def _rates(work: float, seconds: float, peak: float) -> tuple[str, str]:
    return f"{work / seconds * 1e-9:.3g}", f"{work / seconds / peak:.0%}"
