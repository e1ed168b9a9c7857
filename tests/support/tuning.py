# SPDX-License-Identifier: Apache-2.0
"""Simulated measurements for the driver of the tuner."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

import hloenv
from hloenv.measurement.record import MeasureFailure, Measurement
from hloenv.runtime.compare import OutputComparison
from hloenv.tune import Configuration, TuneOptions, Tuner
from hloenv.tune.build import Candidate
from hloenv.tune.measuring import Control

MODULE = """HloModule m
ENTRY e { p = f32[64,64] parameter(0)
  d = f32[64,64] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,64] tanh(d) }
"""
STAGES = ("engine", "forms", "fusion", "codegen")
STEADY = Control((0.99, 1.01), 50_000.0)
_RUNS = 50


def interacting(configuration):
    """Speed-up: the wheel is slower alone, and fastest with one fusion and forms."""
    chosen = dict(configuration.choices)
    speedup = 1.0
    if chosen.get("forms") == "known":
        speedup *= 1.2
    if chosen.get("calls") == "onednn":
        speedup *= 0.99
    if chosen.get("vectors") == "512":
        speedup *= 1.1
    if chosen.get("engine") == "wheel":
        speedup *= 0.9
        if chosen.get("fusion") == "by-bytes":
            speedup *= 2.0
    return speedup


@dataclasses.dataclass
class Simulated:
    """Takes the place of `Measuring`, of `build_candidate` and of the clock."""

    speedup_of: object = interacting
    control_of: Control = STEADY
    measured: list[Configuration] = dataclasses.field(default_factory=list)
    interrupt_at: int = 10**9
    error: float = 0.0
    later_control: Control = STEADY
    controls: int = 0
    # Of measurements afresh; None for the same.
    again_of: object = None
    failure: str = "CompileError"
    # Of all recipes; a file may have these.
    options: dict[str, object] | None = None
    # Seconds of the next measurement.
    seconds_of: Callable[[], float] = lambda: 0.001
    now: float = 0.0

    def monotonic(self):
        self.now += 1e-6
        return self.now

    def __call__(self, *_, **__):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def build(self, space, configuration, module):
        assert configuration == space.canonical(configuration)
        options = self.options or {"xla_x": configuration.text}
        recipe = hloenv.jax.Recipe(options=options)
        return Candidate(configuration, recipe, None, configuration.text)

    def control(self, *, again=0):
        self.controls += 1
        return self.later_control if again else self.control_of

    def record(self, configuration, speedup_of=None):
        speedup = (speedup_of or self.speedup_of)(configuration)
        error = None
        if math.isnan(speedup):
            error = MeasureFailure(self.failure, "no")
            speedup = 1.0
        ours = 10_000 + np.arange(_RUNS) % 7
        return Measurement(
            fingerprint="f",
            baseline="b",
            finish="legalize",
            seed=0,
            durations_ns=tuple(ours.tolist()),
            baseline_ns=tuple((ours * speedup).astype(int).tolist()),
            copies=(10,) * 5,
            error=error,
            outputs=OutputComparison(
                *(True, 1, 0, (0,), "1", "1", self.error, self.error),
                is_bitwise=not self.error,
            ),
        )

    def measure(self, candidates, *, until=math.inf):
        # Not in order: results are told in the order of the proposals all the same.
        for number in reversed(candidates):
            configuration = candidates[number].configuration
            self.measured.append(configuration)
            self.now += self.seconds_of()
            if len(self.measured) >= self.interrupt_at:
                self.interrupt_at = 10**9
                raise KeyboardInterrupt
            yield number, self.record(configuration)

    def again(self, candidate, *, round_):
        return self.record(candidate.configuration, self.again_of)


def tune(program, **options):
    given = {"measurements": 60, "stages": STAGES, "search": "", "is_warm": False}
    tuner = Tuner(program, TuneOptions(**{**given, **options}))
    return tuner.run(), tuner
