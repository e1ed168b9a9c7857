# SPDX-License-Identifier: Apache-2.0
"""The record of one module timed against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..errors import StoreError
from ..process.child import make_error
from ..runtime.compare import OutputComparison
from .statistics import speedup_interval, speedup_of


@dataclass(frozen=True)
class MeasureFailure:
    """Why a module has no timing.

    Attributes:
        kind: class of `hloenv.errors`: "CompileError", "MeasureTimeout", ...
        message: what happened and what to do.
    """

    kind: str
    message: str


@dataclass(frozen=True)
class Measurement:
    """One module timed against a baseline in one process.

    A module that fails, takes too long, or computes something else has an `error`
    instead of a speed-up.

    Attributes:
        fingerprint: of the module that was given.
        baseline: fingerprint of the module that it was compared with.
        finish: what ran before XLA's backend.
        seed: of the order of the runs, and of the inputs unless they were given.
        inputs: "random", or what was given instead.
        durations_ns: one run of the module in each round, in order, in nanoseconds.
        baseline_ns: one run of the baseline in each round, in nanoseconds.
        copies: how many of the rounds each copy of the code took; see `intervals`.
        stopped: why there are no more rounds: "rounds", "precise", "slower", "time".
        compile_ns: how long XLA's backend took.
        baseline_compile_ns: the same for the baseline.
        outputs: how the outputs compare with the baseline's on the same inputs, on
            those inputs where they compare worst.
        threads: cores that the runs were pinned to.
        machine: where this was, as `Machine.to_json` says it.
        error: None when everything went well and the outputs are equal.
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
    error: MeasureFailure | None = None

    @property
    def is_ok(self) -> bool:
        """Whether there is a speed-up to speak of."""
        return self.error is None

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
        """Returns itself, or raises its error by its class."""
        if self.error is not None:
            raise make_error(self.error.kind, self.error.message)
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Reads what `to_json` wrote.

        Raises:
            StoreError: this is no measurement.
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
            raise StoreError(f"this is not a measurement: {error}") from None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.error.kind}: {self.error.message}"
        low, high = self.speedup_interval
        ours_us, theirs_us = self.median_ns / 1e3, self.baseline_median_ns / 1e3
        return (
            f"{ours_us:.1f} us against {theirs_us:.1f} us: {self.speedup:.3f}x "
            f"({low:.3f} to {high:.3f})"
        )


def _median(values: Sequence[int]) -> float:
    return float(np.median(values)) if values else float("nan")
