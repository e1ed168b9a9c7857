# SPDX-License-Identifier: Apache-2.0
"""Searches for faster decisions: many estimates, few measurements.

A search estimates hundreds of candidates (`KernelCache`). The best ones are compiled
and timed, several at a time. The fastest is timed again, since the minimum of many
timings is biased.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._typing import Int64Array
from ..cost.base import Estimate, estimate_of
from ..errors import ArgumentError, ArgumentTypeError, HloEnvError
from ..hlo.module import HloModule
from ..measurement.measurer import Inputs
from ..measurement.pool import Evaluator, Result
from ..measurement.record import Measurement
from ..rewrite.game import Game, Prefix
from . import Search, get_search

if TYPE_CHECKING:
    from ..cost.base import Estimator
    from ..rewrite.alternatives import Alternatives

DEFAULT_SEARCH = "hill-climb"
# Share of the time limit; the rest is for measurements.
_SHARE_FOR_ESTIMATES = 0.6


@dataclass(frozen=True)
class Budget:
    """Limits of a search; the first one reached ends it.

    Attributes:
        estimates: number of estimated candidates, including those before a resume.
        measurements: number of these that are compiled and timed.
        seconds: of wall-clock time, for estimates and measurements together; at the
            end, a running estimate is finished and a running measurement cancelled.
    """

    estimates: int = 200
    measurements: int = 20
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            ArgumentError: `estimates` < 1, or a negative number.
        """
        has_time = self.seconds is None or self.seconds > 0
        if self.estimates < 1 or self.measurements < 0 or not has_time:
            raise ArgumentError(
                f"the budget has {self.estimates} estimates, {self.measurements} "
                f"measurements and {self.seconds} seconds; it needs estimates >= 1, "
                "measurements >= 0, and seconds > 0 or None"
            )


@dataclass(frozen=True)
class Candidate:
    """One complete prefix with its estimate.

    Attributes:
        prefix: the decisions at each decision point, one [A] vector each.
        estimate_s: estimated run time, in seconds.
        fingerprint: of the module that the decisions make.
    """

    prefix: Prefix
    estimate_s: float
    fingerprint: str

    @property
    def decisions(self) -> Int64Array:
        """[A] the decisions at the last decision point."""
        return self.prefix[-1]

    @property
    def accepted(self) -> int:
        """Number of accepted rewrites, at all decision points."""
        return sum(int((each > 0).sum()) for each in self.prefix)


@dataclass
class SearchResult:
    """Result of a search.

    Attributes:
        default_s: estimate of XLA's own decisions; NaN if there is none.
        evaluated: candidates with distinct modules and an estimate, in order.
        num_estimates: number of proposals of the search, all of which are estimated.
        measured: measured candidates with their measurements, best estimate first.
        best: the fastest of these; None if it is not faster than the baseline in both
            of its measurements.
        confirmed: second measurement of the fastest; None if none is faster.
        estimate_curve: after each estimate, the seconds since the start and the least
            estimate so far; 0 seconds for estimates before a resume.
        measurement_curve: after each measurement, the seconds since the start and the
            largest speed-up so far.
    """

    default_s: float = float("nan")
    evaluated: list[Candidate] = field(default_factory=list)
    num_estimates: int = 0
    measured: list[tuple[Candidate, Measurement]] = field(default_factory=list)
    best: Candidate | None = None
    confirmed: Measurement | None = None
    estimate_curve: list[tuple[float, float]] = field(default_factory=list)
    measurement_curve: list[tuple[float, float]] = field(default_factory=list)

    @property
    def curve(self) -> list[float]:
        """The minimum estimate after each estimate, in seconds."""
        return [seconds for _, seconds in self.estimate_curve]

    def to_json(self) -> dict[str, Any]:
        """Decisions, estimates and speed-ups; no modules and no durations."""
        return {
            "default_s": self.default_s,
            "curve": self.curve,
            "evaluated": len(self.evaluated),
            "measured": [
                {
                    "decisions": _plain(candidate.prefix),
                    "fingerprint": measurement.fingerprint,
                    "estimate_s": candidate.estimate_s,
                    "speedup": measurement.speedup,
                    "speedup_interval": list(measurement.speedup_interval),
                    "error": None
                    if measurement.error is None
                    else str(measurement.error),
                }
                for candidate, measurement in self.measured
            ],
            "best": None if self.best is None else _plain(self.best.prefix),
            "speedup": None if self.confirmed is None else self.confirmed.speedup,
            "speedup_interval": None
            if self.confirmed is None
            else list(self.confirmed.speedup_interval),
        }


def run_search(
    search: Search,
    estimator: Estimator,
    evaluator: Evaluator | None = None,
    *,
    baseline: HloModule | None = None,
    budget: Budget | None = None,
    inputs: Inputs | None = None,
    on_estimate: Callable[[Prefix, Estimate], None] | None = None,
    on_measurement: Callable[[Result], None] | None = None,
) -> SearchResult:
    """Estimates the proposals of a search, and measures the best ones.

    A search with a history (`load_state_dict`) continues from there. If estimator and
    evaluator have a store, nothing is timed twice.

    Args:
        search: makes the proposals; its history is extended.
        estimator: estimates run times.
        evaluator: compiles and times; None to measure nothing.
        baseline: the module to compare with; by default the game's module, compiled by
            XLA's default.
        budget: limits of the search.
        inputs: of the measurements; by default random ones.
        on_estimate: called with each candidate and its estimate, after `Search.tell`;
            may save the state of the search.
        on_measurement: called with each result when it is ready.

    Raises:
        ArgumentError: the game has no alternatives.
        HloEnvError: the baseline cannot be compiled or run.
    """
    return _Run(search, budget or Budget(), inputs).run(
        estimator, evaluator, baseline, on_estimate, on_measurement
    )


def search(
    alternatives: Alternatives,
    *,
    baseline: HloModule,
    estimator: Estimator,
    evaluator: Evaluator,
    name: str = DEFAULT_SEARCH,
    estimates: int = 200,
    measurements: int = 20,
    seed: int = 0,
    on_estimate: Callable[[Prefix, Estimate], None] | None = None,
    on_measurement: Callable[[Result], None] | None = None,
) -> SearchResult:
    """Searches for decisions on `alternatives` that run faster than the baseline.

    `run_search` on a game with one decision point.

    Args:
        alternatives: what to decide.
        baseline: the module to compare with; from its position on, XLA's default
            compiles it.
        estimator: estimates run times.
        evaluator: compiles and times.
        name: of the search, as in `get_search`.
        estimates: number of estimated candidates.
        measurements: number of these that are compiled and timed, best estimate first.
        seed: of the search.
        on_estimate: called with each candidate and its estimate.
        on_measurement: called with each result when it is ready.

    Raises:
        ArgumentError: there are no alternatives, or fewer than one estimate.
    """
    return run_search(
        get_search(name, Game.of(alternatives), seed=seed),
        estimator,
        evaluator,
        baseline=baseline,
        budget=Budget(estimates, measurements),
        on_estimate=on_estimate,
        on_measurement=on_measurement,
    )


def confirm_best(
    module_of: Callable[[int], HloModule],
    measurements: Sequence[Measurement],
    evaluator: Evaluator,
    baseline: HloModule,
    inputs: Inputs | None = None,
) -> tuple[int | None, Measurement | None]:
    """Measures the fastest module again: the minimum of many timings is biased.

    Args:
        module_of: the module of a measurement, by index.
        measurements: of all modules.
        evaluator: makes the second measurement.
        baseline: of the measurements.
        inputs: of the measurements.

    Returns:
        Index of the fastest, None if it is not faster in both measurements; and its
        second measurement, None if no module was faster in the first.
    """
    right = [i for i, each in enumerate(measurements) if each.is_ok]
    best = max(right, key=lambda i: measurements[i].speedup, default=None)
    if best is None or measurements[best].speedup <= 1:
        return None, None
    again = evaluator.confirm(module_of(best), baseline=baseline, inputs=inputs)
    return (best if again.is_ok and again.speedup > 1 else None), again


class _Run:
    """One call of `run_search`."""

    def __init__(self, search: Search, budget: Budget, inputs: Inputs | None) -> None:
        self._search = search
        self._inputs = inputs
        self._game = search.game
        self._budget = budget
        self._found = SearchResult()
        self._started = time.perf_counter()
        # By fingerprint: prefixes with equal modules are estimated once.
        self._estimates: dict[str, Estimate] = {}

    def run(
        self,
        estimator: Estimator,
        evaluator: Evaluator | None,
        baseline: HloModule | None,
        on_estimate: Callable[[Prefix, Estimate], None] | None,
        on_measurement: Callable[[Result], None] | None,
    ) -> SearchResult:
        found, search = self._found, self._search
        default = self._game.complete()
        if not any(len(each) for each in default):
            raise ArgumentError(
                f"there are 0 alternatives at the {len(default)} decision points of "
                "the game; add passes or decision points"
            )
        found.estimate_curve = [(0.0, seconds) for seconds in search.curve]
        share = 1.0 if evaluator is None else _SHARE_FOR_ESTIMATES
        while len(search.history) < self._budget.estimates and self._has_time(share):
            prefix = search.ask()
            if prefix is None:
                break
            estimate = self._estimate(prefix, estimator)
            search.tell(prefix, estimate.seconds)
            best_s = float("inf") if search.best is None else search.best[1]
            found.estimate_curve.append((self._elapsed(), best_s))
            if on_estimate is not None:
                on_estimate(prefix, estimate)
        found.num_estimates = len(search.history)
        if search.history:
            found.default_s = search.history[0][1]
        found.evaluated = list(self._distinct_candidates())
        if evaluator is not None:
            self._measure(evaluator, baseline or self._game.module, on_measurement)
        return found

    def _estimate(self, prefix: Prefix, estimator: Estimator) -> Estimate:
        try:
            fingerprint = self._game.fingerprint(prefix)
            if fingerprint not in self._estimates:
                module = self._game.play(prefix)
                self._estimates[fingerprint] = estimate_of(estimator, module)
        except ArgumentTypeError:  # of the estimator itself
            raise
        except HloEnvError as error:
            return Estimate(float("nan"), error=str(error))
        return self._estimates[fingerprint]

    def _distinct_candidates(self) -> Iterator[Candidate]:
        """The history as candidates, without failures and duplicate modules."""
        seen = set()
        for prefix, seconds in self._search.history:
            if seconds == float("inf"):
                continue
            fingerprint = self._game.fingerprint(prefix)
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield Candidate(prefix, seconds, fingerprint)

    def _measure(
        self,
        evaluator: Evaluator,
        baseline: HloModule,
        report: Callable[[Result], None] | None,
    ) -> None:
        found = self._found
        chosen = sorted(found.evaluated, key=lambda each: each.estimate_s)
        chosen = chosen[: self._budget.measurements]
        results: dict[int, Measurement] = {}
        fastest = 0.0
        modules = (self._game.play(each.prefix) for each in chosen)
        if not (chosen and self._has_time()):
            return
        for result in evaluator.results(
            modules, baseline=baseline, inputs=self._inputs
        ):
            results[result.index] = result.measurement
            if result.measurement.is_ok:
                fastest = max(fastest, result.measurement.speedup)
            found.measurement_curve.append((self._elapsed(), fastest))
            if report is not None:
                report(result)
            if not self._has_time():
                break
        found.measured = [(chosen[index], results[index]) for index in sorted(results)]
        best, found.confirmed = confirm_best(
            lambda index: self._game.play(found.measured[index][0].prefix),
            [measurement for _, measurement in found.measured],
            evaluator,
            baseline,
            self._inputs,
        )
        if best is not None:
            found.best = found.measured[best][0]

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def _has_time(self, share: float = 1.0) -> bool:
        limit_s = self._budget.seconds
        return limit_s is None or self._elapsed() < share * limit_s


def _plain(prefix: Prefix) -> list[list[int]]:
    return [each.tolist() for each in prefix]
