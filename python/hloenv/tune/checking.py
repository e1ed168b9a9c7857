# SPDX-License-Identifier: Apache-2.0
"""The last check of a tuning: the best are compared afresh with what the user has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ..errors import HloEnvError
from ..jax.artefact import Tuned
from ..measurement.record import Measurement
from .build import Candidate
from .decisions import Class
from .entries import entry_of, identity_of
from .journal import Result
from .measuring import Control, Measuring
from .options import TuneOptions
from .program import Check, Program
from .space import Configuration, Space
from .state import State

NOT_BITWISE = "its outputs are not bitwise equal"
# Seconds of the last comparison.
_CHECK_SECONDS = 1.0
# Candidates that may take it, and those that it may find not to be faster. Others fail,
# or have other outputs: the search compares these within wider tolerances.
_MAX_CHECKED, _MAX_SLOWER = 8, 3
# Of the seed of the second comparison; the first ones have their own.
_SECOND_ROUND = 2 * _MAX_CHECKED


@dataclass(frozen=True)
class Context:
    """What a check needs of the tuning.

    Attributes:
        program: what was tuned.
        space: of its decisions.
        measuring: builds and runs.
        control: the baseline against itself.
        build: makes the candidate of a configuration.
        running: notes that a configuration runs in this process.
    """

    program: Program
    space: Space
    measuring: Measuring
    control: Control
    build: Callable[[Configuration], Candidate]
    running: Callable[[Configuration], AbstractContextManager[None]]


def check_best(
    ranked: Sequence[Result],
    context: Context,
    *,
    numerics: Class,
    stages: Sequence[dict[str, Any]],
    described: Result | None,
    reason: str,
) -> tuple[Tuned, Result | None]:
    """The first that is faster in two fresh comparisons, or the identity.

    Where many are not, the best whose outputs are bitwise equal is tried all the same.

    Args:
        ranked: results, the best first.
        context: of the tuning.
        numerics: the class that outputs must be of.
        stages: what was decided at each stage.
        described: the result that `stages` belong to; None if to all.
        reason: why it is the identity, where there are no results.

    Returns:
        The entry, and the result that it is of.
    """
    program, control = context.program, context.control
    seen: set[str] = set()
    num_slower = 0
    bitwise = next((each for each in ranked if each.is_bitwise), None)
    for result in ranked:
        is_over = len(seen) >= _MAX_CHECKED or num_slower == _MAX_SLOWER
        if result.key in seen or (is_over and result is not bitwise):
            continue
        seen.add(result.key)
        try:
            candidate = context.build(result.configuration)
            measurement = context.measuring.again(candidate, round_=len(seen))
            with context.running(result.configuration):
                check = _check(context, candidate, measurement, numerics)
        except HloEnvError as error:
            reason = f"{result.configuration.text}: {error}"
            continue
        num_slower += check.speedup is not None
        interval = control.widened(check.interval or (0.0, 0.0))
        if check.reason:
            reason = f"{result.configuration.text}: {check.reason}"
        elif interval[0] <= 1:
            reason = (
                f"{result.configuration.text}: not clearly faster in the last check "
                f"({interval[0]:.3f} to {interval[1]:.3f})"
            )
        else:
            is_described = described is None or result is described
            entry = entry_of(
                *(program, context.space, candidate, check, interval),
                *(measurement, control, stages if is_described else ()),
            )
            return entry, result
    stages = stages if described is None else ()
    return identity_of(program, reason, control, stages), None


def _check(
    context: Context, candidate: Candidate, measurement: Measurement, numerics: Class
) -> Check:
    """The second of two fresh comparisons, whose figures are reported.

    The first has chosen among the best, so that its own figures are too good.
    """
    program, control = context.program, context.control
    check = check_of(measurement)
    if check.reason:
        return check
    if program.check is None:
        again = context.measuring.again(candidate, round_=_SECOND_ROUND)
        check = check_of(again)
    else:
        check = program.check(candidate.recipe, _seconds(control))
    if numerics == "exact" and check.is_bitwise is False:
        return Check(reason=NOT_BITWISE)
    return check


def differs(program: Program, kept: Tuned, control: Control) -> bool:
    """Whether the outputs of a kept entry differ in the comparison of a last check.

    Those of a module were compared when it was measured.
    """
    if program.check is None or kept.recipe is None:
        return False
    try:
        return bool(program.check(kept.recipe, _seconds(control)).reason)
    except HloEnvError:
        return True


def _seconds(control: Control) -> float:
    """That a comparison may take: it compares no function that takes longer."""
    return max(_CHECK_SECONDS, 1.5e-9 * control.median_ns)


def check_of(measurement: Measurement) -> Check:
    """A measurement as a comparison with what the user has."""
    if not measurement.is_ok:
        return Check(reason=str(measurement.error))
    low, high = measurement.speedup_interval
    reason = ""
    if low <= 1:
        reason = f"not clearly faster when measured again ({low:.3f} to {high:.3f})"
    outputs = measurement.outputs
    is_bitwise = outputs is not None and outputs.is_bitwise
    return Check(measurement.speedup, (low, high), reason, is_bitwise=is_bitwise)


def reason_of_none(state: State, options: TuneOptions) -> str:
    """Why there is no result to check."""
    if state.results:
        return "nothing was measured to be faster"
    if state.is_interrupted:
        return "it was interrupted before the first measurement"
    if options.measurements == 0:
        return "no measurement was allowed: give more than measurements=0"
    return (
        f"the budget of {options.seconds:g} s ended before the first measurement: give "
        "more"
    )
