# SPDX-License-Identifier: Apache-2.0
"""Invariants 4 and 5: decided modules compute the same values as the original.

Modules run in XLA's evaluator, without further passes. The rounding tolerance is
measured by running the original with every rounding perturbed by one ulp. Larger
differences must vanish when the decided module itself is upcast to float64.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from .. import errors
from .._typing import Int64Array
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline, is_candidate, run_passes
from ..process.forkserver import note
from ..rewrite.alternatives import Alternatives, capture
from ..rewrite.verify import ChoiceError, measure_rounding, verify_alternatives
from ..runtime.interpreter import evaluate
from .comparison import MARGIN, Verdict, num_partly_nan
from .expected import FLOAT64_TOLERANCE, MANY_RUNS, Expected
from .invariants import Report, random_decisions

Decisions = Int64Array

# Opcodes whose results may differ between runs.
_STATEFUL = ("rng", "infeed", "outfeed", "send", "recv")

# A choice that exceeds both is checked again.
_MAX_RELATIVE, _MAX_ABSOLUTE = 1e-2, 1e-4


def is_stateful(module: HloModule) -> bool:
    """Whether outputs depend on state other than the inputs."""
    return any(opcode in module.opcode_counts() for opcode in _STATEFUL)


class ValueChecker:
    """Checks decisions and choices of one capture.

    Attributes:
        violations: messages of the broken invariants.
        skipped: number of skipped comparisons by reason.
        num_checks: number of comparisons.
    """

    def __init__(self, alternatives: Alternatives, expected: Expected) -> None:
        """Does not check anything.

        Args:
            alternatives: alternatives of the module of `expected`.
            expected: outputs of that module.
        """
        self.alternatives = alternatives
        self.expected = expected
        self.violations: list[str] = []
        self.skipped: Counter[str] = Counter()
        self.num_checks = 0

    def check_decisions(self, decisions: Decisions) -> None:
        """Checks invariant 4: the decided module gives the outputs of the original."""
        note(f"evaluate {','.join(self.alternatives.pass_names)} {decisions.tolist()}")
        decided = self.alternatives.apply(decisions)
        try:
            outputs = evaluate(decided, *self.expected.inputs)
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
        """Returns the verdict after a second comparison in float64."""
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
        """Checks invariant 5: each choice has the value of its original."""
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
        num_empty = sum(not record.num_compared for record in records) - num_unreached
        self._count("not compared: an original has no numbers", num_empty)
        self.num_checks += len(records) - num_unreached - num_empty
        if self.violations:
            self._add_lost_nans(records)
        # Cancellation in intermediate values may lose more digits than in outputs.
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
        """Adds records that may explain other violations.

        XLA simplifies 0 * x to 0 even for infinite x, so alone they are not violations.
        """
        self.violations += [
            f"invariant 5: {self._describe(record)} has numbers for "
            f"{record.num_nans_lost} NaNs"
            for record in records
            if record.num_nans_lost
        ]

    def _apart_in_float64(self, far: list[ChoiceError]) -> list[ChoiceError]:
        """Returns records that differ in float64 too, or overflow only there."""
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
        """Returns records that differ more than perturbed roundings explain."""
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
    """Whether XLA's own pass gives wrong values by ignoring layouts.

    A pass that XLA runs only before layout assignment removes layout copies, including
    those that bitcasts need; so does algsimp after reshape-decomposer in one pipeline.
    The capture is still correct: it agrees with the native run.
    """
    for each in pipelines:
        if is_candidate(each):
            continue
        try:
            native = run_passes(module, each).module
            if "bitcast" not in native.opcode_counts():
                continue
            outputs = evaluate(native, *expected.inputs)
        except errors.HloEnvError:
            continue
        if expected.compare(outputs).lines:
            return True
    return False


def draw_vectors(
    alternatives: Alternatives, rng: random.Random, num_random: int
) -> list[Decisions]:
    """Draws random decisions, and adds each pass's own."""
    vectors = [alternatives.decisions_for(name) for name in alternatives.pass_names]
    vectors += [random_decisions(alternatives, rng) for _ in range(num_random)]
    unique = {vector.tobytes(): vector for vector in vectors if vector.any()}
    return list(unique.values())


def check_capture(
    module: HloModule,
    pipelines: Sequence[Pipeline],
    check: Callable[[Alternatives], Report],
) -> Report:
    """Captures and checks the alternatives.

    Args:
        module: the module to capture.
        pipelines: captured jointly.
        check: checks a capture that has alternatives.
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
    """Checks invariant 4 for the given decisions and invariant 5 for every choice."""
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
        checker.skipped["XLA's own pass removes layout copies that bitcasts need"] += 1
    return Report(
        ",".join(each.name for each in pipelines),
        len(alternatives),
        tuple(violations),
        tuple(checker.skipped.elements()),
        checker.num_checks,
    )
