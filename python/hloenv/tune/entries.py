# SPDX-License-Identifier: Apache-2.0
"""What a tuning leaves behind: the entry of its artefact, the stages of its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..jax.artefact import Tuned, finite
from ..jax.recipe import Recipe
from ..jax.verdicts import today
from ..measurement.record import Measurement
from ..rewrite.trace import ModuleId
from .build import Candidate
from .measuring import Control
from .program import Check, Program
from .space import Space


def entry_of(
    program: Program,
    space: Space,
    candidate: Candidate,
    check: Check,
    interval: tuple[float, float],
    measurement: Measurement,
    control: Control,
    stages: Sequence[dict[str, Any]],
) -> Tuned:
    """The entry of what was found.

    Args:
        program: what was tuned.
        space: of its decisions.
        candidate: the best.
        check: its last comparison.
        interval: of the speed-up in that, widened by the control.
        measurement: the last one, for the outputs.
        control: the baseline against itself.
        stages: what was decided at each stage.
    """
    outputs = measurement.outputs
    return Tuned(
        program.name,
        ModuleId.of(program.module),
        candidate.recipe,
        candidate.configuration.text,
        "",
        program.baseline,
        finite(check.speedup or 1.0),
        (finite(interval[0]), finite(interval[1])),
        space.numerics_of(candidate.configuration),
        0.0 if outputs is None else finite(outputs.error),
        0.0 if outputs is None else finite(outputs.excess),
        bool(check.is_bitwise),
        measurement.compile_ns * 1e-9,
        control.median_ns * 1e-9,
        tuple(stages),
        date=today(),
    )


def identity_of(
    program: Program,
    reason: str,
    control: Control,
    stages: Sequence[dict[str, Any]] = (),
) -> Tuned:
    """The entry where nothing better was found.

    Args:
        program: what was tuned.
        reason: why nothing is decided.
        control: the baseline against itself.
        stages: what was decided at each stage, where each was tuned alone.
    """
    return Tuned(
        program.name,
        ModuleId.of(program.module),
        Recipe(),
        reason=reason,
        baseline=program.baseline,
        is_bitwise=True,
        baseline_s=control.median_ns * 1e-9,
        stages=tuple(stages),
        date=today(),
    )
