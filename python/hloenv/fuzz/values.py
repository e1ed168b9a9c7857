# SPDX-License-Identifier: Apache-2.0
"""Invariants 4 and 5: decided modules compute what the original computes.

Everything runs in XLA's evaluator, which repeats and undoes nothing. How much rounding
explains is measured: the original runs again with every rounding off by one unit in the
last place. A difference beyond that is looked at again in float64, where it has to
vanish: the decided module itself, upcast, so that the rewrites are the same ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from .. import errors
from .._typing import Int64Array
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline, run_passes
from ..process.forkserver import note
from ..rewrite.alternatives import Alternatives, capture
from ..rewrite.verify import ChoiceError, measure_rounding, verify_alternatives
from ..runtime.interpreter import interpret
from .comparison import MARGIN, Verdict, num_partly_nan
from .expected import FLOAT64_TOLERANCE, MANY_RUNS, Expected
from .invariants import Report, is_candidate, random_decisions

Decisions = Int64Array

# Modules whose outputs may differ from run to run.
_STATEFUL = ("rng", "infeed", "outfeed", "send", "recv")

# Beyond both a choice is looked at again.
_MAX_RELATIVE, _MAX_ABSOLUTE = 1e-2, 1e-4


def is_stateful(module: HloModule) -> bool:
    """Whether outputs depend on more than the inputs."""
    return any(opcode in module.opcode_counts() for opcode in _STATEFUL)


class ValueChecker:
    """Checks decisions and choices of one capture.

    Attributes:
        violations: what was found.
        skipped: reasons for which something was not compared, and how often.
        num_checks: comparisons that were made.
    """

    def __init__(self, alternatives: Alternatives, expected: Expected) -> None:
        """Checks nothing yet.

        Args:
            alternatives: of the module of `expected`.
            expected: what that module computes.
        """
        self.alternatives = alternatives
        self.expected = expected
        self.violations: list[str] = []
        self.skipped: Counter[str] = Counter()
        self.num_checks = 0

    def check_decisions(self, decisions: Decisions) -> None:
        """Invariant 4: the decided module gives the outputs of the original."""
        note(f"evaluate {','.join(self.alternatives.pass_names)} {decisions.tolist()}")
        decided = self.alternatives.apply(decisions)
        try:
            outputs = interpret(decided, *self.expected.inputs)
        except errors.ExecuteError as error:
            self.skipped[f"decided module: {error}"] += 1
            return
        verdict = self.expected.compare(outputs)
        if not verdict.is_clear:
            verdict = self._look_again(verdict, decided)
        self.violations += [
            f"invariant 4: {decisions.tolist()}: {line}" for line in verdict.lines
        ]
        self.num_checks += verdict.num_compared
        self._count("not compared: an output is NaN everywhere", verdict.num_nan)
        self._count(
            "not compared: an output is sensitive to 1 ulp", verdict.num_sensitive
        )

    def _look_again(self, verdict: Verdict, decided: HloModule) -> Verdict:
        """The verdict after a second look in float64, where there is no overflow."""
        wide = self.expected.in_float64
        if wide is None:
            return verdict
        note("evaluate in float64")
        try:
            second = wide.compare(decided)
        except errors.HloEnvError:
            return verdict
        if second.lines:
            lines = verdict.lines or tuple(f"in float64: {x}" for x in second.lines)
            return Verdict(lines, verdict.overflows, verdict.num_compared)
        return Verdict(
            verdict.overflows,
            verdict.overflows,
            second.num_compared,
            second.num_sensitive,
            second.num_nan,
        )

    def check_choices(self) -> None:
        """Invariant 5: every choice is what its original is."""
        note(f"verify {','.join(self.alternatives.pass_names)}")
        try:
            records = verify_alternatives(self.alternatives, self.expected.inputs)
        except errors.ExecuteError as error:
            self.skipped[f"alternative graph: {error}"] += 1
            return
        wanted = [
            (alternative, choice)
            for alternative, count in enumerate(self.alternatives.num_choices)
            for choice in range(1, count)
        ]
        if [(r.alternative, r.choice) for r in records] != wanted:
            self.violations.append(
                "invariant 5: there is not one record for each choice"
            )
        num_unreached = sum(not record.num_evaluations for record in records)
        self._count("not compared: nothing reaches a choice", num_unreached)
        self.num_checks += len(records) - num_unreached
        if self.violations:
            self._add_lost_nans(records)
        # A cancellation inside may lose more digits than the outputs do.
        far = [
            record
            for record in records
            if record.relative > _MAX_RELATIVE and record.absolute > _MAX_ABSOLUTE
        ]
        for record in self._beyond_rounding(self._apart_in_float64(far)):
            self.violations.append(
                f"invariant 5: {self._describe(record)} is off by "
                f"{record.absolute:.3g} (relative {record.relative:.3g})"
            )

    def _add_lost_nans(self, records: Sequence[ChoiceError]) -> None:
        """Adds what may explain other violations.

        XLA takes 0 * x for 0, also where x is infinite; no more than that may be
        behind it where no output shows it.
        """
        self.violations += [
            f"invariant 5: {self._describe(record)} has numbers for "
            f"{record.num_nans_lost} NaNs"
            for record in records
            if record.num_nans_lost
        ]

    def _apart_in_float64(self, far: list[ChoiceError]) -> list[ChoiceError]:
        """Those that differ in float64 too, or overflow where the original does not."""
        if not far:
            return []
        note("verify in float64")
        try:
            records = verify_alternatives(
                self.alternatives, self.expected.inputs, float64=True
            )
        except errors.HloEnvError:
            return far
        equal = {
            (record.alternative, record.choice)
            for record in records
            if record.relative < FLOAT64_TOLERANCE and record.num_evaluations
        }
        return [
            record
            for record in far
            if (record.alternative, record.choice) not in equal
            or not np.isfinite(record.absolute)
        ]

    def _beyond_rounding(self, far: list[ChoiceError]) -> list[ChoiceError]:
        """Those that differ more than their originals move with roundings."""
        if not far:
            return []
        note("verify with perturbed roundings")
        indices = sorted({record.alternative for record in far})
        try:
            moved = measure_rounding(
                self.alternatives, indices, self.expected.inputs, num_runs=MANY_RUNS
            )
        except errors.ExecuteError:
            return far
        allowed = {
            index: MARGIN * relative
            for index, (_, relative) in zip(indices, moved, strict=True)
        }
        beyond = [r for r in far if allowed[r.alternative] < min(1, r.relative)]
        num_sensitive = sum(allowed[record.alternative] >= 1 for record in far)
        self._count("not compared: a choice is sensitive to 1 ulp", num_sensitive)
        self.num_checks -= num_sensitive
        return beyond

    def _describe(self, record: ChoiceError) -> str:
        alternative = self.alternatives[record.alternative]
        return f"choice {record.choice} of {alternative!r}"

    def _count(self, reason: str, number: int) -> None:
        if number:
            self.skipped[reason] += number


def _moves_layouts(
    module: HloModule, pipelines: Sequence[Pipeline], expected: Expected
) -> bool:
    """Whether XLA itself gets values wrong by not looking at layouts.

    A pass that XLA runs before layout assignment only takes copies to other layouts
    away, also those that bitcasts need. So does algsimp after reshape-decomposer, which
    made the bitcasts, in one pipeline. The invariants hold all the same: what the pass
    gives natively is what its decisions give.
    """
    for each in pipelines:
        if is_candidate(each):
            continue
        try:
            native = run_passes(module, each).module
            if "bitcast" not in native.opcode_counts():
                continue
            outputs = interpret(native, *expected.inputs)
        except errors.HloEnvError:
            continue
        if expected.compare(outputs).lines:
            return True
    return False


def draw_vectors(
    alternatives: Alternatives, rng: random.Random, num_random: int
) -> list[Decisions]:
    """Each pass's own decisions, and random ones."""
    vectors = [alternatives.decisions_for(name) for name in alternatives.pass_names]
    vectors += [random_decisions(alternatives, rng) for _ in range(num_random)]
    unique = {vector.tobytes(): vector for vector in vectors if vector.any()}
    return list(unique.values())


def check_capture(
    module: HloModule,
    pipelines: Sequence[Pipeline],
    check: Callable[[Alternatives], Report],
) -> Report:
    """Captures, and checks what was found.

    Args:
        module: what is captured.
        pipelines: by what, jointly.
        check: of a capture that has alternatives.
    """
    passes = ",".join(each.name for each in pipelines)
    note(f"capture {passes}")
    try:
        alternatives = capture(module, pipelines)
    except errors.PassError as error:
        return Report(passes, 0, skipped=(str(error),))
    if not len(alternatives):
        return Report(passes, 0, num_checks=1)
    return check(alternatives)


def check_decisions(
    alternatives: Alternatives,
    module: HloModule,
    pipelines: Sequence[Pipeline],
    expected: Expected,
    vectors: Sequence[Decisions],
) -> Report:
    """Invariant 4 for the given decisions, invariant 5 for every choice."""
    checker = ValueChecker(alternatives, expected)
    for decisions in vectors:
        checker.check_decisions(decisions)
    checker.check_choices()
    num_nan = num_partly_nan(expected.outputs)
    if num_nan:
        checker.skipped[
            "not compared: elements of an output are NaN in the original"
        ] += num_nan
    violations = checker.violations
    if violations and _moves_layouts(module, pipelines, expected):
        violations = []
        checker.skipped["XLA's own pass takes layouts from under bitcasts"] += 1
    return Report(
        ",".join(each.name for each in pipelines),
        len(alternatives),
        tuple(violations),
        tuple(checker.skipped.elements()),
        checker.num_checks,
    )
