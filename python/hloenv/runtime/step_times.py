# SPDX-License-Identifier: Apache-2.0
"""Times of the parts of an executable."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class StepTimes(NamedTuple):
    """Times of the thunks of an executable.

    Attributes:
        names: of the instruction of each of S thunks.
        durations_ns: [repeats, S] float64, of each thunk alone, in nanoseconds.
        totals_ns: [repeats] float64, of a whole run as XLA runs it, in nanoseconds.
        runs: how often each ran in one run of the module; empty if each ran once.
    """

    names: list[str]
    durations_ns: np.ndarray[Any, np.dtype[np.float64]]
    totals_ns: np.ndarray[Any, np.dtype[np.float64]]
    runs: tuple[float, ...] = ()
