# SPDX-License-Identifier: Apache-2.0
"""Runs policies and searches on one module, in a child process of the runner."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from ..cost import Estimator, open_estimator
from ..errors import HloEnvError, MeasureTimeout
from ..hlo.module import HloModule
from ..hlo.pipeline import finish
from ..measurement.measurer import Measurer
from ..measurement.pool import Evaluator
from ..measurement.record import Measurement
from ..measurement.store import Store
from ..policies import get_policy
from ..process.cpu_affinity import CoreLease
from ..process.forkserver import note
from ..search.driver import Budget
from ..search.spaces import Decided, decide, decided_of_game
from .flags import use
from .joint import JointResult, pick_rule, search_variants
from .methods import Method, as_method
from .rows import Row
from .task import Task, noted

# Modules loaded into one process: bounds memory maps and the duration of a round.
_MAX_LOADED = 6


@dataclass
class _Played:
    row: Row
    decided: Decided | None = None


def play(task: Task) -> Iterator[Row]:
    """Every row of the module, in no particular order.

    Notes the running method, so that a crash of XLA is attributed to it.
    """
    use(task.flags)
    # The store of policies that estimate.
    os.environ["HLOENV_STORE"] = task.store
    lease = CoreLease(task.settings.threads)
    try:
        # XLA's passes depend on the number of available cores.
        os.sched_setaffinity(0, lease.cores)
        yield from _Table(task).rows()
    finally:
        lease.release()


class _Table:
    """The rows of one module."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._module = HloModule.from_text(task.text)
        note("XLA's default")
        default = finish(self._module)
        self._default_fingerprint = default.fingerprint()
        self._base = replace(task.row, **_costs(default, "baseline_"))
        self._store = Store(task.store)
        self._inputs = task.inputs()
        # By fingerprint.
        self._measurements: dict[str, Measurement] = {}

    def rows(self) -> Iterator[Row]:
        """Rows of the policies, decided and timed in batches, then of the searches."""
        methods = [(as_method(name), seed) for name, seed in self._task.methods]
        policies = [each for each in methods if not each[0].is_search]
        for start in range(0, len(policies), _MAX_LOADED):
            waiting: list[_Played] = []
            for method, seed in policies[start : start + _MAX_LOADED]:
                played = self._decide(method, seed)
                if played.decided is None:
                    yield played.row
                else:
                    waiting.append(played)
            yield from self._measured(waiting)
        for method, seed in methods:
            if method.is_search:
                yield self._search(method, seed)

    def _started(self, method: Method, seed: int) -> Row:
        note(noted(method.name, seed))
        return replace(
            self._base,
            method=method.name,
            seed=seed,
            definition=method.definition,
            measured_at=time.time(),
        )

    def _decide(self, method: Method, seed: int) -> _Played:
        row = self._started(method, seed)
        started = time.perf_counter()
        try:
            decided = self._decided(method, seed)
        except HloEnvError as error:
            return _Played(replace(row, error=f"{type(error).__name__}: {error}"))
        return _Played(self._decided_row(row, decided, started), decided)

    def _decided(self, method: Method, seed: int) -> Decided:
        if not method.picks_rule:
            policy = get_policy(method.algorithm, seed=seed)
            return decide(self._module, method.space, policy)
        with self._estimator() as estimator:
            return _decided_by(pick_rule(self._module, method.space, estimator))

    def _estimator(self) -> AbstractContextManager[Estimator]:
        settings = self._task.settings
        return open_estimator(
            self._task.estimator,
            threads=settings.threads,
            store=self._store,
            engine=settings.engine,
        )

    def _decided_row(self, row: Row, decided: Decided, started: float) -> Row:
        return replace(
            row,
            decide_s=time.perf_counter() - started,
            alternatives=decided.num_alternatives,
            accepted=decided.num_accepted,
            changes=dict(decided.changes or {}),
            same=decided.module.fingerprint() == self._default_fingerprint,
            **_costs(decided.module),
        )

    def _measured(self, played: Sequence[_Played]) -> Iterator[Row]:
        """Rows with their timings; equal modules are timed once."""
        modules: dict[str, HloModule] = {}
        for each in played:
            assert each.decided is not None
            fingerprint = each.decided.module.fingerprint()
            if not each.row.same and fingerprint not in self._measurements:
                modules.setdefault(fingerprint, self._to_measure(each.decided))
        note("\n".join(noted(each.row.method, each.row.seed) for each in played))
        settings = self._task.settings
        if settings.engine == "wheel":
            settings = replace(settings, finish="none")
        # Without a store: a row contains the time of its measurement.
        with Measurer(settings) as measurer:
            failures = self._measure(measurer, modules)
        for each in played:
            assert each.decided is not None
            if each.row.same:
                yield replace(each.row, speedup=1.0, low=1.0, high=1.0)
                continue
            fingerprint = each.decided.module.fingerprint()
            measurement = self._measurements.get(fingerprint)
            if measurement is None:
                yield replace(each.row, error=failures[fingerprint])
            else:
                yield timed_row(each.row, measurement)

    def _measure(
        self, measurer: Measurer, modules: Mapping[str, HloModule]
    ) -> dict[str, str]:
        """Times modules together, or alone where that fails: why, by fingerprint."""
        if not modules:
            return {}
        try:
            found = measurer.measure(
                list(modules.values()), baseline=self._module, inputs=self._inputs
            )
        except HloEnvError as error:
            if len(modules) == 1 or not isinstance(error, MeasureTimeout):
                return dict.fromkeys(modules, f"{type(error).__name__}: {error}")
            # One of them may take too long for all.
            alone = [self._measure(measurer, {k: m}) for k, m in modules.items()]
            return {key: why for each in alone for key, why in each.items()}
        self._measurements.update(zip(modules, found, strict=True))
        return {}

    def _to_measure(self, decided: Decided) -> HloModule:
        """The final module; for jaxlib, the one on which it runs its own passes."""
        is_wheel = self._task.settings.engine == "wheel"
        return decided.module if is_wheel else decided.applied

    def _search(self, method: Method, seed: int) -> Row:
        row, task = self._started(method, seed), self._task
        started = time.perf_counter()
        try:
            with (
                self._estimator() as estimator,
                Evaluator(task.settings, store=self._store, workers=1) as evaluator,
            ):
                result = search_variants(
                    self._module,
                    method.space,
                    method.search,
                    estimator=estimator,
                    evaluator=evaluator,
                    budget=Budget(task.estimates, task.measurements, task.search_s),
                    seed=seed,
                    inputs=self._inputs,
                )
                decided = _decided_by(result)
                row = replace(
                    self._decided_row(row, decided, started),
                    estimates=result.num_estimates,
                    measurements=result.num_measured,
                    baseline_ns=result.baseline_ns,
                    curve=_curve_points(result.curve),
                )
                if row.same or not result.is_faster:
                    return replace(row, same=True, speedup=1.0, low=1.0, high=1.0)
                # The measurements that selected it are biased.
                final = evaluator.confirm(
                    result.game.play(result.prefix),
                    baseline=self._module,
                    inputs=self._inputs,
                )
        except HloEnvError as error:
            return replace(row, error=f"{type(error).__name__}: {error}")
        return timed_row(row, final)


def _decided_by(result: JointResult) -> Decided:
    decided = decided_of_game(result.game, result.prefix)
    if result.variant:
        decided.changes = Counter(decided.changes) + Counter([result.variant])
    return decided


def timed_row(row: Row, measurement: Measurement) -> Row:
    """The row with the results of a measurement."""
    low, high = measurement.speedup_interval
    error, outputs = measurement.error, measurement.outputs
    return replace(
        row,
        speedup=measurement.speedup,
        low=low,
        high=high,
        baseline_ns=measurement.baseline_median_ns,
        median_ns=measurement.median_ns,
        compile_ns=measurement.compile_ns,
        worst_error=math.nan if outputs is None else outputs.excess,
        error="" if error is None else str(error),
    )


def _curve_points(curve: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """(estimates so far, speed-up over the first) at each rise of the best."""
    points: list[tuple[int, float]] = []
    for count, seconds in enumerate(curve, 1):
        if not math.isfinite(curve[0]):
            break
        speedup = curve[0] / seconds if seconds > 0 else 1.0
        if not points or speedup > points[-1][1]:
            points.append((count, speedup))
    return tuple(points)


def _costs(module: HloModule, prefix: str = "") -> dict[str, Any]:
    cost = module.cost()
    return {
        f"{prefix}instructions": module.instruction_count,
        f"{prefix}flops": cost.flops,
        f"{prefix}bytes": cost.bytes,
    }
