# SPDX-License-Identifier: Apache-2.0
"""Runs and checks one episode in a child process.

Each step is yielded before it runs, and each check is noted, so that the parent can
report the cause of a crash.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import errors
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline
from ..process.forkserver import note
from ..rewrite.alternatives import Alternatives
from ..rewrite.env import HloEnv, replay
from ..rewrite.placement import at_place
from ..rewrite.trace import Step
from .cases import MAX_STEPS, Case, draw_decisions, is_unsafe, random_step
from .expected import Expected
from .invariants import StructureChecker
from .matrix import load
from .values import check_decisions, is_stateful

# Instructions of a module that XLA's evaluator checks; larger ones take too long.
_MAX_EVALUATED = 600
_INPUT_SEED = 0

Vectors = list[npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Start:
    """The initial module of the episode."""

    opcodes: tuple[str, ...]


@dataclass(frozen=True)
class StepStarted:
    """A step before its checks; `Decided` follows with its decisions."""

    step: Step


@dataclass(frozen=True)
class Decided:
    """The decisions of the step, and the sizes of its capture."""

    decisions: tuple[int, ...]
    num_alternatives: int
    num_choices: int


@dataclass(frozen=True)
class Broken:
    """An invariant does not hold at the current step."""

    violation: str


@dataclass(frozen=True)
class Skipped:
    """A check that could not be made, and why."""

    reason: str


@dataclass(frozen=True)
class Checked:
    """Invariants that were checked at the current step."""

    invariants: tuple[str, ...]


Event = Start | StepStarted | Decided | Broken | Skipped | Checked


# Of reading the text of `f32[<=8] constant`, which folding dynamic sizes gives.
_NO_ELEMENTS = "elements in the []th element, but sees 0"


def run_case(case: Case) -> Iterator[Event]:
    """Draws or replays an episode and yields its events."""
    note("load")
    try:
        module = load(case.source, case.variant)
    except errors.HloEnvError as error:
        yield Skipped(f"load: {error}")
        return
    yield Start(tuple(module.opcode_counts()))
    rng = random.Random(f"hloenv episode {case.seed}")
    env = HloEnv(module)
    steps = _drawn(case, rng) if case.steps is None else iter(case.steps)
    for step in steps:
        yield StepStarted(step)
        pipelines = [Pipeline.from_json(each) for each in step.passes]
        given = None if case.steps is None else step.decisions
        try:
            if step.kind == "run":
                note(f"native {pipelines[0].name}")
                env.run(*pipelines)
                continue
            pipelines = [at_place(each, env.module) for each in pipelines]
        except (errors.PassError, errors.PositionError) as error:
            yield Skipped(_first_line(error))
            continue
        try:
            goes_on = yield from _check_step(env, pipelines, given, rng)
        except errors.ParseError as error:
            if _NO_ELEMENTS not in str(error):
                raise
            yield Skipped("XLA prints constants of dynamic size without elements")
            return
        if not goes_on:
            return
    note("replay")
    if env.module is not module:
        yield _check_replay(env, module)


def _check_replay(env: HloEnv, module: HloModule) -> Event:
    trace = env.trace
    if "rng-expander" in trace.to_json():
        return Skipped("replay: rng-expander draws other seeds each time")
    try:
        replay(trace, module)
        return Checked(("replay",))
    except errors.HloEnvError as error:
        again = HloEnv(module)
        for step in trace.steps:
            _follow(again, step)
        if again.fingerprint() == env.fingerprint():
            return Skipped("replay: XLA chose other names")
        return Broken(f"replay: {error}")


def _follow(env: HloEnv, step: Step) -> None:
    """Takes one step; a failing step changes nothing."""
    pipelines = [Pipeline.from_json(each) for each in step.passes]
    with contextlib.suppress(errors.PositionError):
        if step.kind == "run":
            with contextlib.suppress(errors.PassError):
                env.run(*pipelines)
        else:
            env.get_alternatives(*pipelines)
            env.apply_alternatives(step.decisions)


def _drawn(case: Case, rng: random.Random) -> Iterator[Step]:
    for _ in range(rng.randint(1, MAX_STEPS)):
        pipelines = random_step(rng, case.names)
        kind = "run" if rng.random() < 0.2 else "decide"
        yield Step(kind, tuple(each.to_json() for each in pipelines))


def _check_step(
    env: HloEnv,
    pipelines: Sequence[Pipeline],
    given: Sequence[int] | None,
    rng: random.Random,
) -> Generator[Event, None, bool]:
    """Checks a capture and takes its decisions; returns whether to continue."""
    drawn: list[Vectors] = []

    def draw(alternatives: Alternatives, rng: random.Random) -> Vectors:
        vectors = draw_decisions(alternatives, rng)
        if given is not None and len(given) == len(alternatives):
            vectors.insert(0, np.array(given, np.int64))
        drawn[:] = [vectors]
        return vectors

    checker = StructureChecker(env.module, rng.randrange(2**30), draw=draw)
    report = checker.check(pipelines)
    alternatives = checker.alternatives
    if alternatives is not None:
        # The first drawn vector is the episode's; the checks have their own seed.
        decisions = drawn[0][0] if drawn else alternatives.reject_all()
        yield Decided(
            tuple(decisions.tolist()),
            len(alternatives),
            int(alternatives.num_choices.sum()),
        )
    for violation in report.violations:
        yield Broken(violation)
    for reason in report.skipped:
        yield Skipped(_first_line(reason))
    if alternatives is None:
        return not report.violations
    yield Checked(("1", "2", "3", "6", "7"))
    yield from _check_values(env.module, alternatives, pipelines, drawn)
    note("advance")
    env.get_alternatives(*pipelines)
    try:
        env.apply_alternatives(decisions)
    except errors.HloEnvError as error:
        yield Broken(
            f"invariant 4: the environment rejects {decisions.tolist()}: {error}"
        )
        return False
    return True


def _check_values(
    module: HloModule,
    alternatives: Alternatives,
    pipelines: Sequence[Pipeline],
    drawn: list[Vectors],
) -> Iterator[Event]:
    if not len(alternatives):
        return
    reason = ""
    if module.instruction_count > _MAX_EVALUATED:
        reason = "values: too large for the evaluator"
    elif is_stateful(module):
        reason = "values: stateful"
    elif any(map(is_unsafe, pipelines)):
        reason = "values: an option allows other values"
    if reason:
        yield Skipped(reason)
        return
    note("expected")
    try:
        expected = Expected(module, _INPUT_SEED)
    except errors.ExecuteError as error:
        yield Skipped(f"values: {_first_line(error)}")
        return
    vectors = [alternatives.decisions_for(name) for name in alternatives.pass_names]
    vectors += drawn[0] if drawn else []
    report = check_decisions(alternatives, module, pipelines, expected, vectors)
    for violation in report.violations:
        yield Broken(violation)
    for reason in report.skipped:
        yield Skipped(f"values: {_first_line(reason)}")
    if report.num_checks:
        yield Checked(("4", "5"))


def text_before(case: Case, number: int) -> str:
    """Returns the text of the module before step `number` of a case."""
    env = HloEnv(load(case.source, case.variant))
    assert case.steps is not None
    for step in case.steps[:number]:
        _follow(env, step)
    return env.module.to_text()


def invariant_of(violation: str) -> str:
    """Returns the invariant named in a violation: "invariant 3", "honesty", ..."""
    return violation.partition(":")[0]


def _first_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
