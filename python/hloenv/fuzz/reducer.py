# SPDX-License-Identifier: Apache-2.0
"""Reduces a module, passes and decisions that break an invariant.

Delta debugging over text: each smaller case runs in a child process and is kept if it
breaks the same invariant. Decisions do not carry over to another module, so each
attempt searches decisions that break the invariant, starting with the known ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import errors
from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline
from ..process.forkserver import Job, Pool, note
from ..rewrite.alternatives import Alternatives
from ..rewrite.placement import at_place
from .cases import draw_decisions, is_unsafe
from .expected import Expected
from .invariants import StructureChecker, Vectors
from .reducer_edits import apply, edits
from .values import check_decisions, is_stateful

# Pipelines as JSON.
Passes = tuple[dict[str, Any], ...]

_INPUT_SEED = 0
_MAX_SINGLE = 24


@dataclass(frozen=True)
class Suspect:
    """A module, passes captured jointly, and decisions that break an invariant.

    Attributes:
        text: HLO text.
        passes: as JSON, see `Pipeline.to_json`.
        decisions: one for each alternative; empty if no decision is involved.
        invariant: the broken invariant: "invariant 3", or "crash: ..." with the child's
            last stage.
    """

    text: str
    passes: Passes
    decisions: tuple[int, ...]
    invariant: str


def find_breaking(suspect: Suspect) -> tuple[int, ...] | None:
    """Runs in a child: returns decisions that break the invariant, None if it holds.

    The decisions are empty if the violation does not depend on any.
    """
    note("load")
    try:
        module = HloModule.from_text(suspect.text)
        module.verify()
        pipelines = [
            at_place(Pipeline.from_json(each), module) for each in suspect.passes
        ]
    except errors.HloEnvError:
        return None
    drawn: list[Vectors] = [[]]

    def draw(alternatives: Alternatives, rng: random.Random) -> Vectors:
        drawn[0] = _candidates(alternatives, suspect.decisions, rng)
        return drawn[0]

    checker = StructureChecker(module, 0, draw=draw)
    report = checker.check(pipelines)
    found = [
        each for each in report.violations if each.startswith(suspect.invariant + ":")
    ]
    alternatives = checker.alternatives
    if found:
        return _named_in(found, drawn[0])
    if alternatives is None or not len(alternatives):
        return None
    if not suspect.invariant.startswith(
        ("invariant 4", "invariant 5", "crash: evaluate", "crash: ver")
    ):
        return None
    if is_stateful(module) or any(map(is_unsafe, pipelines)):
        return None
    try:
        expected = Expected(module, _INPUT_SEED)
    except errors.HloEnvError:
        return None
    vectors = [alternatives.decisions_for(each.name) for each in pipelines]
    vectors = [*drawn[0], *vectors]
    report = check_decisions(alternatives, module, pipelines, expected, vectors)
    found = [
        each for each in report.violations if each.startswith(suspect.invariant + ":")
    ]
    return _named_in(found, vectors) if found else None


def _candidates(
    alternatives: Alternatives, known: Sequence[int], rng: random.Random
) -> Vectors:
    """Yields decisions to evaluate, those with fewest acceptances first."""
    singles: Vectors = []
    for position, count in enumerate(alternatives.num_choices.tolist()):
        for choice in range(1, count):
            if len(singles) < _MAX_SINGLE:
                singles.append(alternatives.reject_all())
                singles[-1][position] = choice
    vectors = singles
    if len(known) == len(alternatives):
        array = np.array(known, np.int64)
        if (array < alternatives.num_choices).all():
            vectors = [*_halves(array), array, *singles]
    return [*vectors, *draw_decisions(alternatives, rng)]


def _halves(decisions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Vectors:
    """Returns the decisions with parts of their acceptances rejected."""
    accepted = np.flatnonzero(decisions)
    vectors: Vectors = []
    for parts in (2, 4, 8, len(accepted)):
        for part in np.array_split(accepted, min(parts, len(accepted)) or 1):
            for keep in (True, False):
                vector = decisions.copy()
                vector[np.setdiff1d(accepted, part) if keep else part] = 0
                if vector.any() and not any((vector == v).all() for v in vectors):
                    vectors.append(vector)
    return sorted(vectors[:64], key=np.count_nonzero)


def _named_in(violations: Sequence[str], vectors: Vectors) -> tuple[int, ...]:
    """Returns the vector with fewest acceptances that a violation names, or ()."""
    named = [
        tuple(vector.tolist())
        for vector in vectors
        if any(str(vector.tolist()) in each for each in violations)
    ]
    return min(named, key=np.count_nonzero, default=())


def reduce(
    pool: Pool,
    suspect: Suspect,
    *,
    seconds: float,
    timeout_s: float = 20.0,
    max_memory_bytes: int | None = None,
    function: str = f"{__name__}:find_breaking",
) -> tuple[Suspect, bool]:
    """Reduces a suspect while it breaks the same invariant.

    Args:
        pool: runs the attempts.
        suspect: the case to reduce.
        seconds: when to stop.
        timeout_s: of one attempt.
        max_memory_bytes: of one attempt.
        function: evaluates a suspect, see `find_breaking`.

    Returns:
        The smallest suspect found, and whether the given suspect reproduced the
        violation; if not, it is returned unchanged.
    """
    deadline = time.monotonic() + seconds

    def attempt(candidate: Suspect) -> Suspect | None:
        outcome = pool.run(Job(function, (candidate,), timeout_s, max_memory_bytes))
        if candidate.invariant.startswith("crash: "):
            crash = outcome.error and f"crash: {stage_of(outcome.note)}"
            return candidate if crash == candidate.invariant else None
        if outcome.error or outcome.values[0] is None:
            return None
        return replace(candidate, decisions=outcome.values[0])

    best = attempt(suspect)
    if best is None:
        return suspect, False
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for simpler in _simpler_passes(best.passes):
            if time.monotonic() > deadline:
                break
            if (found := attempt(replace(best, passes=simpler))) is not None:
                best, is_smaller = found, True
                break
        if is_smaller:
            continue
        for edit in edits(best.text):
            if time.monotonic() > deadline:
                break
            text = apply(best.text, edit)
            if text is not None and (found := attempt(replace(best, text=text))):
                best, is_smaller = found, True
    return best, True


def stage_of(text: str) -> str:
    """The first word of a note: "capture", "structure", "evaluate", ..."""
    return text.partition(" ")[0]


def _simpler_passes(passes: Passes) -> Iterator[Passes]:
    """Yields variants with fewer pipelines, then fewer steps and options."""
    pipelines = [Pipeline.from_json(each) for each in passes]
    if len(passes) > 1:
        for each in passes:
            yield (each,)
        for position in range(len(passes)):
            yield passes[:position] + passes[position + 1 :]
    for position, pipeline in enumerate(pipelines):
        for simpler in _simpler_pipelines(pipeline):
            as_json = simpler.to_json()
            yield (*passes[:position], as_json, *passes[position + 1 :])


def _simpler_pipelines(pipeline: Pipeline) -> Iterator[Pipeline]:
    steps = list(pipeline.passes)
    if len(steps) > 1:
        for position in range(len(steps)):
            rest = steps[:position] + steps[position + 1 :]
            yield Pipeline(pipeline.name, rest, fixed_point=pipeline.fixed_point)
    if pipeline.fixed_point:
        yield Pipeline(pipeline.name, steps)
    for position, step in enumerate(steps):
        if not isinstance(step, Pass):
            continue
        for key, _ in step.options:
            fewer = {k: v for k, v in step.options if k != key}
            changed = [*steps]
            changed[position] = Pass(step.name, **fewer)
            yield Pipeline(pipeline.name, changed, fixed_point=pipeline.fixed_point)
