# SPDX-License-Identifier: Apache-2.0
"""Runs many random episodes in child processes and collects the violations."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..hlo.passes import Pipeline, pass_names
from ..process.forkserver import TIMEOUT, Job, Outcome, Pool
from ..rewrite.trace import Step
from .cases import REAL_SHARE, Case, random_case
from .episode import Broken, Checked, Decided, Skipped, Start, StepStarted, invariant_of
from .reducer import Suspect, reduce, stage_of
from .reproducers import Failure, save

# Stages that run hloenv's code; all other stages run XLA alone.
_OURS = ("capture", "structure", "failing", "evaluate", "verify", "advance", "replay")
# Stages in which a timeout is not a violation.
_SLOW = ("evaluate", "verify", "expected", "native", "load")
# A case that timed out is repeated with this many times its limit.
_TIMEOUT_FACTOR = 4
# Failures reduced and saved per kind; further ones are only counted.
_MAX_OF_A_KIND = 2
# Likewise per invariant, over all passes.
_MAX_OF_AN_INVARIANT = 12


@dataclass(frozen=True)
class Limits:
    """Limits of one case.

    Attributes:
        timeout_s: seconds; a case that timed out is repeated once with four times as
            many.
        max_memory_bytes: None for no limit.
        reduce_s: seconds for reducing one failure.
    """

    timeout_s: float = 30.0
    max_memory_bytes: int | None = 8 << 30
    reduce_s: float = 40.0


@dataclass
class Summary:
    """Statistics and failures of a campaign.

    Attributes:
        cases: episodes that ended, crashes included.
        seconds: wall-clock time.
        steps: number of checked captures.
        alternatives: number of alternatives in them.
        choices: number of choices in them, the originals included.
        checked: number of checks of each invariant.
        broken: number of violations of each invariant.
        skipped: number of checks that could not be made, by reason.
        died: number of crashes by XLA's last log line, and of timeouts.
        opcodes: opcode counts of the initial modules.
        passes: number of times each pass was drawn.
        failures: the saved failures.
    """

    cases: int = 0
    seconds: float = 0.0
    steps: int = 0
    alternatives: int = 0
    choices: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    died: Counter[str] = field(default_factory=Counter)
    opcodes: set[str] = field(default_factory=set)
    passes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "cases": self.cases,
            "seconds": self.seconds,
            "captures": self.steps,
            "alternatives": self.alternatives,
            "choices": self.choices,
            "checked": dict(sorted(self.checked.items())),
            "broken": dict(sorted(self.broken.items())),
            "skipped": dict(self.skipped.most_common()),
            "died": dict(self.died.most_common()),
            "opcodes": sorted(self.opcodes),
            "passes": dict(sorted(self.passes.items())),
            "failures": [each.to_json() for each in self.failures],
        }


# Called in a child process for each case.
_RUN_CASE = "hloenv.fuzz.episode:run_case"


class Campaign:
    """Runs cases until a budget is spent.

    Args:
        seed: determines the cases.
        sources: real modules for a share of the cases, see `matrix.load`.
        read: converts an element of `sources` to a source; the identity by default.
        real_share: share of the cases that use a real module.
        names: passes to draw from; empty for all.
        output: a folder for failing cases; None saves nothing.
        limits: of a case.
        jobs: cases at the same time.

    Attributes:
        summary: of the cases that were checked so far.
        next: the number of the first case that was not.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        sources: Sequence[str] = (),
        read: Callable[[str], str] = str,
        real_share: float = REAL_SHARE,
        names: Sequence[str] = (),
        output: Path | None = None,
        limits: Limits | None = None,
        jobs: int = 1,
    ) -> None:
        self.seed = seed
        self.sources = tuple(sources)
        self.read = read
        self.real_share = real_share
        self.names = tuple(names)
        self.output = output
        self.limits = limits or Limits()
        self.jobs = jobs
        self.summary = Summary()
        self.next = 0
        self._function = _RUN_CASE
        self._kinds: Counter[str] = Counter()

    def run(
        self,
        *,
        cases: int | None = None,
        seconds: float | None = None,
        first: int = 0,
        progress: Callable[[Summary], None] = lambda _: None,
    ) -> Summary:
        """Runs cases `first`, `first` + 1, ...

        Args:
            cases: number of cases; None for no limit.
            seconds: time after which no case is started.
            first: number of the first case.
            progress: called after each case.
        """
        start = time.monotonic()
        waiting: dict[int, tuple[int, Case]] = {}
        number = self.next = first
        with Pool(workers=self.jobs) as pool:
            while True:
                self.summary.seconds = time.monotonic() - start
                is_over = seconds is not None and self.summary.seconds > seconds
                is_last = cases is not None and number >= first + cases
                while not (is_over or is_last) and len(waiting) < 2 * self.jobs:
                    case = self._draw(number)
                    waiting[self._submit(pool, case)] = number, case
                    number += 1
                    is_last = cases is not None and number >= first + cases
                if not waiting or is_over:
                    return self.summary
                outcome = pool.next()
                self._take(pool, waiting[outcome.index][1], outcome)
                del waiting[outcome.index]
                self.next = min((each for each, _ in waiting.values()), default=number)
                progress(self.summary)

    def check(self, case: Case) -> Summary:
        """Checks one case with its steps, without reduction."""
        start = time.monotonic()
        with Pool(workers=1) as pool:
            self._submit(pool, case)
            self._count(outcome := pool.next())
            for each in violations_of(outcome):
                self.summary.broken[each.invariant] += 1
                self.summary.failures.append(
                    Failure(each.invariant, each.text, case.seed, False)
                )
        self.summary.seconds = time.monotonic() - start
        return self.summary

    def _draw(self, number: int) -> Case:
        case = random_case(
            self.seed, number, self.sources, self.names, real_share=self.real_share
        )
        if case.source in self.sources:
            return replace(case, source=self.read(case.source))
        return case

    def _submit(self, pool: Pool, case: Case) -> int:
        return pool.submit(self._job(case, self.limits.timeout_s))

    def _job(self, case: Case, timeout_s: float) -> Job:
        return Job(self._function, (case,), timeout_s, self.limits.max_memory_bytes)

    def _count(self, outcome: Outcome) -> None:
        summary = self.summary
        summary.cases += 1
        for event in outcome.values:
            match event:
                case Start(opcodes):
                    summary.opcodes.update(opcodes)
                case StepStarted(step):
                    pipelines = [Pipeline.from_json(each) for each in step.passes]
                    summary.passes.update(pass_names(pipelines))
                case Decided(_, num_alternatives, num_choices):
                    summary.steps += 1
                    summary.alternatives += num_alternatives
                    summary.choices += num_choices
                case Checked(invariants):
                    summary.checked.update(invariants)
                case Skipped(reason):
                    summary.skipped[_general(reason)] += 1
        if outcome.error and not _is_ours(outcome):
            what = f"{stage_of(outcome.note)}: {outcome.last_line}"
            summary.died[what[:160]] += 1

    def _take(self, pool: Pool, case: Case, outcome: Outcome) -> None:
        if outcome.error == TIMEOUT and _is_ours(outcome):
            # On a busy machine any case may time out once.
            outcome = pool.run(self._job(case, _TIMEOUT_FACTOR * self.limits.timeout_s))
        self._count(outcome)
        for each in violations_of(outcome):
            self.summary.broken[each.invariant] += 1
            kind = f"{each.invariant} {_blamed(each)}"
            self._kinds[kind] += 1
            num_kept = sum(
                kept.invariant == each.invariant for kept in self.summary.failures
            )
            if self._kinds[kind] <= _MAX_OF_A_KIND and num_kept < _MAX_OF_AN_INVARIANT:
                self._keep(
                    pool, replace(case, steps=each.steps), each.invariant, each.text
                )

    def _keep(self, pool: Pool, case: Case, invariant: str, violation: str) -> None:
        """Reduces and saves a failure."""
        limits = self.limits
        failure = Failure(invariant, violation[:2000], case.seed, False)
        assert case.steps is not None
        outcome = pool.run(
            Job(
                "hloenv.fuzz.episode:text_before",
                (case, max(0, len(case.steps) - 1)),
                limits.timeout_s,
                limits.max_memory_bytes,
            )
        )
        if not outcome.error and case.steps and invariant != "replay":
            last = case.steps[-1]
            suspect = Suspect(outcome.value, last.passes, last.decisions, invariant)
            smaller, is_reduced = reduce(
                pool,
                suspect,
                seconds=limits.reduce_s,
                timeout_s=limits.timeout_s,
                max_memory_bytes=limits.max_memory_bytes,
            )
            if is_reduced:
                step = Step("decide", smaller.passes, smaller.decisions)
                case = replace(case, source=smaller.text, variant="raw", steps=(step,))
                failure = replace(failure, is_reduced=True)
        if self.output is not None:
            failure = save(pool, self.output, case, failure)
        self.summary.failures.append(failure)


@dataclass(frozen=True)
class Violation:
    """A broken invariant of a case.

    Attributes:
        invariant: see `Failure`.
        text: message of the check.
        steps: steps of the episode up to the failing one.
    """

    invariant: str
    text: str
    steps: tuple[Step, ...]


def violations_of(outcome: Outcome) -> list[Violation]:
    """Violations of a case; a crash is one if hloenv's code was running."""
    found: list[Violation] = []
    steps: list[Step] = []
    for event in outcome.values:
        if isinstance(event, StepStarted):
            steps.append(event.step)
        elif isinstance(event, Decided):
            steps[-1] = replace(steps[-1], decisions=event.decisions)
        elif isinstance(event, Broken):
            invariant = invariant_of(event.violation)
            found.append(Violation(invariant, event.violation, tuple(steps)))
    if outcome.error and _is_ours(outcome):
        invariant = f"crash: {stage_of(outcome.note)}"
        text = f"crash: {outcome.note}: {outcome.last_line}"
        found.append(Violation(invariant, text, tuple(steps)))
    return found


def _is_ours(outcome: Outcome) -> bool:
    stage = stage_of(outcome.note)
    if outcome.error == TIMEOUT:
        return stage not in _SLOW
    return stage in _OURS or outcome.error.startswith("Traceback")


def _blamed(violation: Violation) -> str:
    """Returns the passes named in a violation, else those of the last step."""
    if violation.invariant in ("invariant 1", "invariant 2"):
        return ""  # whatever was captured
    quoted = violation.text.split("'")[1:2]
    if quoted and "#" in quoted[0]:
        return quoted[0].partition("#")[0]
    if not violation.steps:
        return ""
    pipelines = [Pipeline.from_json(each) for each in violation.steps[-1].passes]
    return ",".join(sorted(pass_names(pipelines)))


def _general(reason: str) -> str:
    """Removes the names of one module from a reason."""
    return re.sub(r"(?<!\w)'[^']*'", "'…'", reason)[:120]
