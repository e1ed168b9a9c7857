# SPDX-License-Identifier: Apache-2.0
"""Baselines that substitute one place at a time: greedy, and TASO's backtracking."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..cost.base import Estimator, estimates_of
from ..errors import ArgumentError, ArgumentTypeError, HloEnvError
from ..hlo.module import HloModule
from .candidates import Candidate, Expander


@dataclass(frozen=True)
class Budget:
    """When a search ends.

    Attributes:
        steps: modules that are expanded.
        seconds: of wall-clock time.
    """

    steps: int = 100
    seconds: float = math.inf

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            ArgumentError: a limit that is not positive.
        """
        if self.steps < 1 or not self.seconds > 0:
            raise ArgumentError(
                f"a budget must be positive, got {self.steps} steps and "
                f"{self.seconds} seconds"
            )


@dataclass(frozen=True)
class Substituted:
    """What a search found.

    Attributes:
        module: the best module.
        cost: its estimate, in seconds; NaN where nothing was estimated.
        start_cost: that of the start.
        path: names of the substitutions that lead to it.
        num_steps: modules that were expanded.
        num_costs: modules that were estimated.
        num_failed: candidates that could not be made, estimated or expanded.
        seconds: of wall-clock time.
        is_complete: whether nothing was left to try, and every module was expanded.
    """

    module: HloModule
    cost: float
    start_cost: float
    path: tuple[str, ...]
    num_steps: int
    num_costs: int
    num_failed: int
    seconds: float
    is_complete: bool

    @property
    def speedup(self) -> float:
        """Estimated time of the start over that of the best module."""
        return self.start_cost / self.cost if self.cost else 1.0


class Costs:
    """Estimates of modules, each once.

    Attributes:
        num_costs: modules that were estimated.
        num_failed: estimates that failed; their cost is infinite.
    """

    def __init__(self, estimator: Estimator) -> None:
        """Takes any estimator of `hloenv.cost`."""
        self._estimator = estimator
        self._known: dict[str, float] = {}
        self.num_costs = 0
        self.num_failed = 0

    def of(self, modules: Sequence[tuple[str, HloModule]]) -> list[float]:
        """Seconds of each module, given with its fingerprint."""
        new = {
            fingerprint: module
            for fingerprint, module in modules
            if fingerprint not in self._known
        }
        if new:
            estimates = estimates_of(self._estimator, list(new.values()))
            for fingerprint, estimate in zip(new, estimates, strict=True):
                self._known[fingerprint] = (
                    estimate.seconds if estimate.is_ok else math.inf
                )
                self.num_failed += not estimate.is_ok
            self.num_costs += len(new)
        return [self._known[fingerprint] for fingerprint, _ in modules]


@dataclass
class _State:
    expander: Expander
    costs: Costs
    budget: Budget
    limit: int
    started: float
    num_steps: int = 0
    num_failed: int = 0
    has_failed: bool = False  # whether a module could not be expanded

    def is_over(self) -> bool:
        spent = time.perf_counter() - self.started
        return self.num_steps >= self.budget.steps or spent >= self.budget.seconds

    def expand(self, module: HloModule) -> list[tuple[float, Candidate]]:
        """Candidates with their costs; none where a pass fails on the module.

        Raises:
            PassError: a pass fails on the start.
        """
        self.num_steps += 1
        try:
            made = self.expander.expand(module, max_instructions=self.limit)
        except HloEnvError:
            if self.num_steps == 1:
                raise
            self.num_failed += 1
            self.has_failed = True
            return []
        self.num_failed += made.num_failed
        costs = self.costs.of([(c.fingerprint, c.module) for c in made.candidates])
        return list(zip(costs, made.candidates, strict=True))


def greedy(
    module: HloModule,
    estimator: Estimator,
    *,
    expander: Expander | None = None,
    budget: Budget | None = None,
) -> Substituted:
    """Takes the cheapest candidate until none is cheaper than the module.

    Args:
        module: the start.
        estimator: of the cost of a module.
        expander: of the substitutions.
        budget: when to end at the latest.

    Raises:
        ArgumentError: the start cannot be estimated, or is no module.
        PassError: a pass fails on the start.
    """

    def run(state: _State, best: _Best) -> bool:
        while not state.is_over():
            found = state.expand(best.module)
            found = [pair for pair in found if pair[0] < best.cost]
            if not found:
                return True
            cost, candidate = min(found, key=lambda pair: pair[0])
            best.take(cost, candidate, best.path)
        return False

    return _search(module, estimator, expander, budget, run)


def backtracking(
    module: HloModule,
    estimator: Estimator,
    *,
    alpha: float = 1.05,
    expander: Expander | None = None,
    budget: Budget | None = None,
) -> Substituted:
    """TASO's search: expands the cheapest module, also those that cost a little more.

    Args:
        module: the start.
        estimator: of the cost of a module.
        alpha: a candidate is kept if it costs less than `alpha` times the best module
            before it; 1 keeps only improvements.
        expander: of the substitutions.
        budget: when to end at the latest.

    Raises:
        ArgumentError: `alpha` is below 1, or the start cannot be estimated.
        PassError: a pass fails on the start.
    """
    if not alpha >= 1:
        raise ArgumentError(f"alpha must be >= 1, got {alpha}")

    def run(state: _State, best: _Best) -> bool:
        seen = {best.module.fingerprint()}
        count = 0  # equal costs: first come, first served
        queue: list[tuple[float, int, HloModule, tuple[str, ...]]] = []
        heapq.heappush(queue, (best.cost, count, best.module, ()))
        while queue:
            if state.is_over():
                return False
            _, _, top, path = heapq.heappop(queue)
            limit = alpha * best.cost  # of this module: a new best one is kept too
            for cost, candidate in state.expand(top):
                if candidate.fingerprint in seen:
                    continue
                seen.add(candidate.fingerprint)
                if cost < best.cost:
                    best.take(cost, candidate, path)
                if cost < limit:
                    count += 1
                    longer = (*path, candidate.name)
                    heapq.heappush(queue, (cost, count, candidate.module, longer))
        return True

    return _search(module, estimator, expander, budget, run)


@dataclass
class _Best:
    module: HloModule
    cost: float
    path: tuple[str, ...] = field(default=())

    def take(self, cost: float, candidate: Candidate, path: tuple[str, ...]) -> None:
        self.module, self.cost = candidate.module, cost
        self.path = (*path, candidate.name)


def _search(
    module: HloModule,
    estimator: Estimator,
    expander: Expander | None,
    budget: Budget | None,
    run: Callable[[_State, _Best], bool],
) -> Substituted:
    started = time.perf_counter()
    if not isinstance(module, HloModule):
        raise ArgumentTypeError(
            "a search starts from an HloModule, got "
            f"{type(module).__name__}; read one with hloenv.HloModule.from_file or "
            "from_text"
        )
    if not isinstance(expander, Expander | None):
        raise ArgumentTypeError(
            "expander must be a hloenv.substitution.Expander, as Expander(PASSES), got "
            f"{expander!r}"
        )
    expander = expander or Expander()
    costs = Costs(estimator)
    (start_cost,) = costs.of([(module.fingerprint(), module)])
    if not math.isfinite(start_cost):
        raise ArgumentError(
            f"the module {module.name!r} cannot be estimated, so that no candidate can "
            "be compared with it; use another estimator"
        )
    state = _State(expander, costs, budget or Budget(), expander.limit(module), started)
    best = _Best(module, start_cost)
    is_complete = run(state, best) and not state.has_failed
    return Substituted(
        best.module,
        best.cost,
        start_cost,
        best.path,
        state.num_steps,
        costs.num_costs,
        state.num_failed + costs.num_failed,
        time.perf_counter() - started,
        is_complete,
    )
