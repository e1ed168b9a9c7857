# SPDX-License-Identifier: Apache-2.0
"""The record of one module timed against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from .._registry import load_attribute
from ..errors import StoreError
from ..process.child import make_error
from ..runtime.compare import OutputComparison
from ..runtime.machine import this_machine
from .statistics import speedup_interval, speedup_of


@dataclass(frozen=True)
class MeasureFailure:
    """Why a module has no timing.

    Attributes:
        kind: class of `hloenv.errors`: "CompileError", "MeasureTimeout", ...
        message: of the error.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class Measurement:
    """One module timed against a baseline in one process.

    A module that fails, times out, or has other outputs has an `error` instead of a
    speed-up; so has another module than the baseline if all outputs are NaN.

    Attributes:
        fingerprint: of the module.
        baseline: fingerprint of the baseline.
        finish: the passes that ran before XLA's backend, as in `compile`.
        seed: of the order of the runs, and of the inputs unless they were given.
        inputs: "random", or a hash of the given ones.
        durations_ns: one run of the module in each round, in order, in nanoseconds.
        baseline_ns: one run of the baseline in each round, in nanoseconds.
        copies: number of rounds of each copy of the code; see `statistics`.
        stopped: the stopping rule that applied: "rounds", "precise", "slower", "time".
        compile_ns: time of XLA's backend.
        baseline_compile_ns: the same for the baseline.
        outputs: comparison of the outputs with the baseline's, on the inputs with the
            largest excess.
        threads: cores that the runs were pinned to.
        machine: the machine, from `Machine.to_json`.
        engine: the XLA that compiled and ran both, as in `compile`.
        error: None if the module ran and its outputs are equal, and not all NaN.
        time: time of the measurement, in seconds since 1970; 0 if unknown.
    """

    fingerprint: str
    baseline: str
    finish: str
    seed: int
    inputs: str = "random"
    durations_ns: tuple[int, ...] = ()
    baseline_ns: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    stopped: str = ""
    compile_ns: int = 0
    baseline_compile_ns: int = 0
    outputs: OutputComparison | None = None
    threads: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "wheel"
    error: MeasureFailure | None = None
    time: float = field(default=0.0, compare=False)

    @property
    def is_ok(self) -> bool:
        """Whether there is no error."""
        return self.error is None

    @property
    def is_lasting(self) -> bool:
        """Whether it would be the same again: not a timeout, which limits decide."""
        return self.error is None or self.error.kind != "MeasureTimeout"

    @property
    def is_here(self) -> bool:
        """Whether a machine of this kind has measured it, or it does not say."""
        here = this_machine().id
        return bool(self.machine.get("id", here) == here)

    @property
    def median_ns(self) -> float:
        """Median duration; NaN without timings."""
        return _median(self.durations_ns)

    @property
    def baseline_median_ns(self) -> float:
        """Median duration of the baseline; NaN without timings."""
        return _median(self.baseline_ns)

    @property
    def speedup(self) -> float:
        """Baseline's median over the module's, the median over all copies.

        Above 1 is faster; NaN on error.
        """
        if not self.is_ok:
            return float("nan")
        return speedup_of(self.baseline_ns, self.durations_ns, self.copies)

    @property
    def speedup_interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of `speedup`; the same for the same durations."""
        if not self.is_ok:
            return (float("nan"), float("nan"))
        return speedup_interval(self.baseline_ns, self.durations_ns, self.copies)

    def check(self) -> Measurement:
        """Returns itself, or raises its error with the error's class."""
        if self.error is not None:
            raise make_error(self.error.kind, self.error.message)
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Reads the result of `to_json`.

        Raises:
            StoreError: the data is not a measurement.
        """
        try:
            fields = dict(data)
            for name in ("durations_ns", "baseline_ns", "copies"):
                fields[name] = tuple(fields[name])
            if fields["outputs"] is not None:
                index = tuple(fields["outputs"]["index"])
                fields["outputs"] = OutputComparison(
                    **{**fields["outputs"], "index": index}
                )
            if fields["error"] is not None:
                fields["error"] = MeasureFailure(**fields["error"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise StoreError(f"the record is not a measurement: {error}") from None

    def _repr_html_(self) -> str:
        html: str = load_attribute("hloenv.explorer.notebook:measurement_html")(self)
        return html

    def __str__(self) -> str:
        if self.error is not None:
            return str(self.error)
        low, high = self.speedup_interval
        ours_us, theirs_us = self.median_ns / 1e3, self.baseline_median_ns / 1e3
        return (
            f"{ours_us:.1f} us, baseline {theirs_us:.1f} us: {self.speedup:.3f}x "
            f"({low:.3f} to {high:.3f})"
        )


def _median(values: Sequence[int]) -> float:
    return float(np.median(values)) if values else float("nan")
