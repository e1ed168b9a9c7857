# SPDX-License-Identifier: Apache-2.0
"""How programs are mapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MapSettings:
    """How a program is mapped.

    Attributes:
        seconds: time limit of one program.
        threshold: share of the time, from which a rewrite is measured, and from which
            one that costs is rejected with the others.
        measure: "all" that changes the estimate by the threshold, only what is
            "costly" by it, or "none".
        measure_s: time of the runs of one measurement.
        timeout_s: time limit of one estimate or measurement.
        threads: cores that the program runs on.
        store: path of the file of kernel times and measurements; None for none.
    """

    seconds: float = 120.0
    threshold: float = 0.03
    measure: Literal["all", "costly", "none"] = "all"
    measure_s: float = 1.0
    timeout_s: float = 300.0
    threads: int = 1
    store: str | None = None
