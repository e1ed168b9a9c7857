# SPDX-License-Identifier: Apache-2.0
"""One module through an intercepted pipeline in several ways; runs in a child."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hloenv.errors import CompileError, HloEnvError
from hloenv.hlo.module import HloModule
from hloenv.hlo.pipeline import is_needed
from hloenv.rewrite.interception import LiveStage, intercept


@dataclass(frozen=True)
class Report:
    """What came out.

    Attributes:
        stages: passes that the compiler ran.
        alternatives: found at all of them.
        whole: passes that could only be taken as a whole, with the reason.
        plain_s, run_s, accept_s: seconds of an uninterrupted compile's passes, of
            answering run() at every stage, of accepting everything.
        violations: what should have been equal and was not; crashes too.
        refused: why XLA cannot compile the module for the target at all, or "".
        decided: alternatives that were decided at random.
    """

    stages: int = 0
    alternatives: int = 0
    whole: tuple[tuple[str, str], ...] = ()
    plain_s: float = 0.0
    run_s: float = 0.0
    accept_s: float = 0.0
    violations: tuple[str, ...] = ()
    refused: str = ""
    decided: int = 0


def check(source: str, target: str) -> Iterator[Report]:
    """Runs, accepts everything, and decides at random; yields one report."""
    module = HloModule.from_file(source)
    stages = alternatives = 0
    whole: dict[str, str] = {}
    decidable: list[int] = []  # indices of stages

    def timed(answer: Callable[[LiveStage], object]) -> tuple[float, HloModule]:
        nonlocal stages
        started = time.perf_counter()
        with intercept(module, target=target) as pipeline:
            stages = sum(answer(stage) is None or True for stage in pipeline)
        return time.perf_counter() - started, pipeline.module

    def accept(stage: LiveStage) -> None:
        nonlocal alternatives
        found = stage.get_alternatives()
        alternatives += len(found)
        whole.update(found.indivisible)
        if not is_needed(stage.name) and any(each.kind != "pass" for each in found):
            decidable.append(stage.index)
        stage.apply_alternatives(found.decisions_for(stage.name))

    def plain() -> float:
        started = time.perf_counter()
        with intercept(module, target=target) as pipeline:
            pipeline.finish()
        return time.perf_counter() - started

    try:
        with intercept(module, target=target) as pipeline:
            wanted = pipeline.finish().fingerprint()
    except CompileError as error:
        yield Report(refused=str(error))
        return
    # In turns, so that what else the machine does meets both.
    pairs = [(plain(), timed(LiveStage.run)) for _ in range(5)]
    plain_s = min(each for each, _ in pairs)
    run_s, ran = min((each for _, each in pairs), key=lambda pair: pair[0])
    accept_s, accepted = timed(accept)
    violations = []
    if ran.fingerprint() != wanted:
        violations.append("run() at every stage gives another module")
    if accepted.fingerprint() != wanted:
        violations.append("accepting everything gives another module")
    num_decided, broken = _decide_at_random(module, target, decidable)
    violations += broken
    if decidable and not num_decided:
        violations.append("random decisions: nothing was decided")
    yield Report(
        stages,
        alternatives,
        tuple(sorted(whole.items())),
        plain_s,
        run_s,
        accept_s,
        tuple(violations),
        decided=num_decided,
    )


def _decide_at_random(
    module: HloModule, target: str, decidable: Sequence[int]
) -> tuple[int, list[str]]:
    """Mixed decisions at three stages: each module that follows is valid.

    Returns:
        The number of decided alternatives, and the violations.
    """
    rng = random.Random(module.fingerprint())
    at = set(rng.sample(decidable, min(3, len(decidable))))
    num_decided = 0
    violations = []
    try:
        with intercept(module, target=target) as pipeline:
            for stage in pipeline:
                # Earlier decisions can shift the later stages.
                if stage.index not in at or is_needed(stage.name):
                    continue
                found = stage.get_alternatives()
                decisions = found.reject_all()
                for index, alternative in enumerate(found):
                    if alternative.kind != "pass":
                        decisions[index] = rng.randrange(found.num_choices[index])
                        num_decided += 1
                wanted = found.apply(decisions).fingerprint()
                stage.apply_alternatives(decisions)
                if pipeline.stage is None:
                    break
                now = pipeline.stage.module
                now.verify()
                if now.fingerprint() != wanted:
                    violations.append(
                        f"decisions in place at {stage.path} give another module"
                    )
    except HloEnvError as error:
        violations.append(f"random decisions: {type(error).__name__}: {error}")
    return num_decided, violations
