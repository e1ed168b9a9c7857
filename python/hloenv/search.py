# SPDX-License-Identifier: Apache-2.0
"""Searches for decisions that run faster: many estimates, few measurements.

The estimates are cheap enough for hundreds of tries (`KernelCache`); the best of them
are compiled and timed for real, several at a time; and the winner is timed once more,
since the best of many timings is the luckiest too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import ArgumentError
from .evaluator import Evaluator, Result
from .measurement import Measurement
from .policies.climb import change_some, starting_points

if TYPE_CHECKING:
    from .estimates import Estimate, Estimator
    from .module import HloModule
    from .rewrite import Alternatives

Decided = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """One way to decide.

    Attributes:
        decisions: [A] the choice taken at each alternative.
        module: what they make.
        estimate: how long it runs.
    """

    decisions: Decided
    module: HloModule
    estimate: Estimate


@dataclass
class Found:
    """What a search found.

    Attributes:
        tried: candidates whose estimates differ from all others', in order.
        measured: those that were measured, with their measurements.
        best: the fastest of them, None when nothing is faster than the baseline.
        confirmed: `best` measured afresh; None without one.
    """

    tried: list[Candidate] = field(default_factory=list)
    measured: list[tuple[Candidate, Measurement]] = field(default_factory=list)
    best: Candidate | None = None
    confirmed: Measurement | None = None

    def to_json(self) -> dict[str, Any]:
        """Decisions, estimates and speed-ups; no modules and no durations."""
        return {
            "tried": len(self.tried),
            "measured": [
                {
                    "decisions": candidate.decisions.tolist(),
                    "fingerprint": measurement.fingerprint,
                    "estimate_s": candidate.estimate.seconds,
                    "speedup": measurement.speedup,
                    "speedup_interval": list(measurement.speedup_interval),
                    "error": None
                    if measurement.error is None
                    else f"{measurement.error.kind}: {measurement.error.message}",
                }
                for candidate, measurement in self.measured
            ],
            "best": None if self.best is None else self.best.decisions.tolist(),
            "speedup": None if self.confirmed is None else self.confirmed.speedup,
            "speedup_interval": None
            if self.confirmed is None
            else list(self.confirmed.speedup_interval),
        }


def propose(
    alternatives: Alternatives, estimator: Estimator, *, estimates: int, seed: int = 0
) -> Iterator[Candidate]:
    """Hill climbing by estimates: every candidate that was tried, in order.

    Starts from keeping every original, taking every rewrite, and the heuristics; then
    changes some decisions of the best so far at a time.

    Args:
        alternatives: what to decide.
        estimator: says how long a module runs.
        estimates: how many candidates.
        seed: of the changes.
    """
    rng = np.random.default_rng(seed)
    best: Candidate | None = None
    waiting = starting_points(alternatives)
    for _ in range(estimates):
        if waiting:
            decisions = waiting.pop(0)
        elif best is None:
            return  # nothing that could be estimated
        else:
            decisions = change_some(alternatives, best.decisions, rng)
        module = alternatives.apply(decisions)
        (estimate,) = estimator.estimate_many([module])
        candidate = Candidate(decisions, module, estimate)
        is_better = best is None or estimate.seconds < best.estimate.seconds
        if estimate.is_ok and is_better:
            best = candidate
        yield candidate


def search(
    alternatives: Alternatives,
    *,
    baseline: HloModule,
    estimator: Estimator,
    evaluator: Evaluator,
    estimates: int = 200,
    measurements: int = 20,
    seed: int = 0,
    on_estimate: Callable[[Candidate], None] | None = None,
    on_measurement: Callable[[Result], None] | None = None,
) -> Found:
    """Looks for decisions that run faster than the baseline.

    With a store behind estimator and evaluator, a search that was interrupted and is
    started again finds there what it did before, and goes on.

    Args:
        alternatives: what to decide.
        baseline: what to beat, such as the module before any pass, which XLA then
            compiles as it likes.
        estimator: says how long a module runs.
        evaluator: compiles and times.
        estimates: candidates that are estimated.
        measurements: of them that are compiled and timed: the best by estimate.
        seed: of the candidates.
        on_estimate: called with each candidate.
        on_measurement: called with each result as it comes.

    Raises:
        ArgumentError: there is nothing to decide, or fewer than one estimate.
        HloEnvError: the baseline itself cannot be compiled or run.
    """
    if len(alternatives) == 0 or estimates < 1 or measurements < 1:
        raise ArgumentError(
            f"a search of {estimates} estimates and {measurements} measurements over "
            f"{len(alternatives)} alternatives finds nothing; each has to be at least 1"
        )
    found = Found()
    seen = set()
    for candidate in propose(alternatives, estimator, estimates=estimates, seed=seed):
        if on_estimate is not None:
            on_estimate(candidate)
        # What differs in decisions that do not matter is one candidate.
        fingerprint = candidate.module.fingerprint()
        if fingerprint not in seen:
            seen.add(fingerprint)
            found.tried.append(candidate)
    chosen = [each for each in found.tried if each.estimate.is_ok]
    chosen.sort(key=lambda each: each.estimate.seconds)
    chosen = chosen[:measurements]
    results = evaluator.evaluate(
        [each.module for each in chosen], baseline=baseline, report=on_measurement
    )
    found.measured = list(zip(chosen, results, strict=True))
    right = [pair for pair in found.measured if pair[1].is_ok]
    if not right:
        return found
    best, measurement = max(right, key=lambda pair: pair[1].speedup)
    if measurement.speedup <= 1:
        return found
    found.best = best
    found.confirmed = evaluator.confirm(best.module, baseline=baseline)
    return found
