# SPDX-License-Identifier: Apache-2.0
"""How programs are mapped."""

from __future__ import annotations

from dataclasses import dataclass


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
