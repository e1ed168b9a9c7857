# SPDX-License-Identifier: Apache-2.0
"""Times the variants of `hloenv optimize` against XLA's default."""

from __future__ import annotations

import numpy as np

from ..measurement.config import Settings
from ..measurement.measurer import Inputs, Measurer
from ..measurement.store import Store
from .variants import XLA_DEFAULT, Variant


def measure_variants(
    variants: list[Variant],
    *,
    settings: Settings,
    store: Store | None,
    again: bool,
    inputs: Inputs | None = None,
) -> None:
    """Fills in times, speed-ups and output errors.

    All variants run interleaved in one child process, on the same inputs. A variant
    that fails gets its error; the others get their times.

    Raises:
        HloEnvError: XLA's default itself cannot be compiled or run.
    """
    by_default = next(each for each in variants if each.name == XLA_DEFAULT)
    others = [each for each in variants if each is not by_default]
    with Measurer(settings, store=store, again=again) as measurer:
        results = measurer.measure(
            [each.module for each in others],
            baseline=by_default.module,
            inputs=inputs,
        )
    for variant, result in zip(others, results, strict=True):
        variant.measurement = result
        if result.error is not None:
            variant.error = str(result.error)
        if result.durations_ns:
            variant.measured_s = result.median_ns * 1e-9
        if result.outputs is not None:
            variant.output_error = result.outputs.error
            variant.output_excess = result.outputs.excess
        variant.speedup = result.speedup
        variant.speedup_interval = result.speedup_interval
    times = [time for each in results for time in each.baseline_ns]
    if times:
        by_default.measured_s = float(np.median(times)) * 1e-9
        by_default.speedup, by_default.speedup_interval = 1.0, (1.0, 1.0)
        by_default.output_error = by_default.output_excess = 0.0
