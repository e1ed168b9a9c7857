# SPDX-License-Identifier: Apache-2.0
"""Measures many candidates on several workers, here or on other machines.

The executor is either threads of this process, each with a child process pinned to its
own core, or Ray (`ray.RayExecutor`). In both, stored results are not measured again,
the candidate of a lost worker is sent to another, and a result is stored before it is
reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from ..errors import ArgumentError
from ..hlo.module import HloModule, ModuleLike, as_module
from ..runtime.inputs import as_inputs
from .config import Keys, Settings
from .measurer import Inputs, Measurer
from .record import Measurement
from .store import RecordKey, Store

# Submitted candidates per worker: enough that no worker is idle, few enough that a
# generator of candidates is not read far ahead.
_WAITING = 2


@dataclass(frozen=True)
class Task:
    """One candidate, as it is sent to a worker.

    Attributes:
        candidate: what to measure.
        baseline: what to compare it with.
        inputs: of both; None for random ones.
        settings: of the measurement.
    """

    candidate: HloModule
    baseline: HloModule
    inputs: list[Any] | None
    settings: Settings


@dataclass(frozen=True)
class Result:
    """One candidate's measurement.

    Attributes:
        index: of the candidate, in the order in which they were given.
        measurement: its record, with the error if it failed.
        is_new: whether it was measured now, not found in the store or among the other
            candidates.
    """

    index: int
    measurement: Measurement
    is_new: bool


def measure_task(task: Task, measurer: Measurer) -> Measurement:
    """Measures one candidate.

    Raises:
        HloEnvError: the baseline itself cannot be compiled or run.
    """
    candidate, baseline = task.candidate, task.baseline
    (result,) = measurer.measure([candidate], baseline=baseline, inputs=task.inputs)
    return result


class LocalExecutor(Executor):
    """Threads, each with a long-lived child process that measures."""

    def __init__(self, workers: int):
        """Threads and processes start as tasks come."""
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="hloenv")
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._measurers: set[Measurer] = set()

    def submit(  # type: ignore[override]
        self, task: Task, /
    ) -> Future[Measurement]:
        """Measures a task's candidate as soon as a worker is free."""
        return self._threads.submit(self._run, task)

    def _run(self, task: Task) -> Measurement:
        measurer: Measurer | None = getattr(self._of_thread, "measurer", None)
        if measurer is None or measurer.settings.worker != task.settings.worker:
            self._drop(measurer)
            measurer = self._of_thread.measurer = Measurer(task.settings)
            with self._lock:
                self._measurers.add(measurer)
        measurer.settings = task.settings
        return measure_task(task, measurer)

    def _drop(self, measurer: Measurer | None) -> None:
        if measurer is not None:
            with self._lock:
                self._measurers.discard(measurer)
            measurer.close()

    def interrupt(self) -> None:
        """Ends the running measurements, whose results are not needed."""
        with self._lock:
            measurers = list(self._measurers)
        for measurer in measurers:
            measurer.interrupt()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends threads and processes."""
        if cancel_futures:
            self.interrupt()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            with self._lock:
                measurers, self._measurers = self._measurers, set()
            for measurer in measurers:
                measurer.close()


class Evaluator:
    """Measures candidates against a baseline, several at a time.

    Args:
        settings: of all measurements.
        store: cache of the measurements.
        workers: concurrent candidates; by default the available cores divided by
            `settings.threads`.
        executor: an object with `submit(task)`, such as `LocalExecutor` (the default)
            or `RayExecutor`. A given one is not shut down.
        again: measure again what the store holds.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        workers: int | None = None,
        executor: Any = None,
        again: bool = False,
    ):
        """Workers start with the first candidate.

        Raises:
            ArgumentError: fewer than one worker.
        """
        self.settings = settings or Settings()
        cores = len(os.sched_getaffinity(0)) // self.settings.threads
        self.workers = max(1, cores) if workers is None else workers
        if self.workers < 1:
            raise ArgumentError(f"workers must be an integer >= 1, got {workers}")
        self._store = store
        self._again = again
        self._owned = LocalExecutor(self.workers) if executor is None else None
        self._executor: Any = self._owned if executor is None else executor

    def evaluate(
        self,
        candidates: Iterable[HloModule],
        *,
        baseline: ModuleLike,
        inputs: Inputs | None = None,
        report: Callable[[Result], None] | None = None,
    ) -> list[Measurement]:
        """Measures all candidates.

        Args:
            candidates: any number; read as workers become free.
            baseline: the module that each is compared with.
            inputs: as in `measure`.
            report: called with each result when it is ready, in any order.

        Returns:
            One measurement for each candidate, in their order.

        Raises:
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        results: dict[int, Measurement] = {}
        for result in self.results(candidates, baseline=baseline, inputs=inputs):
            results[result.index] = result.measurement
            if report is not None:
                report(result)
        return [results[index] for index in sorted(results)]

    def results(
        self,
        candidates: Iterable[HloModule],
        *,
        baseline: ModuleLike,
        inputs: Inputs | None = None,
    ) -> Iterator[Result]:
        """As `evaluate`, but yields each result when it is ready, in any order.

        Leaving the iteration early, or Ctrl-C, ends the running measurements. Finished
        ones are in the store, so that the same call continues from there.
        """
        original = as_module(baseline)
        given = as_inputs(inputs, original)
        keys = Keys(original, given, self.settings)
        running: dict[Future[Measurement], RecordKey] = {}
        # The candidates of each running key; the first one started it.
        indices: dict[RecordKey, list[int]] = {}
        waiting = enumerate(candidates)
        # Not `concurrent.futures.wait`: Ctrl-C in it may keep the locks of futures, and
        # their threads then never end.
        finished: SimpleQueue[Future[Measurement]] = SimpleQueue()
        is_more = True
        try:
            while is_more or running:
                while is_more and len(running) < self.workers * _WAITING:
                    following = next(waiting, None)
                    if following is None:
                        is_more = False
                        break
                    index, candidate = following
                    key = keys.of(candidate)
                    if key in indices:
                        indices[key].append(index)
                        continue
                    stored = self._stored(key)
                    if stored is not None:
                        yield Result(index, stored, is_new=False)
                        continue
                    task = Task(candidate, original, given, self.settings)
                    future = self._executor.submit(task)
                    running[future] = key
                    indices[key] = [index]
                    future.add_done_callback(finished.put)
                if not running:
                    continue
                future = finished.get()
                key = running.pop(future)
                measurement = future.result()
                is_kept = measurement.is_lasting and measurement.is_here
                if self._store is not None and is_kept:
                    self._store.put(key, measurement.to_json())
                first, *others = indices.pop(key)
                yield Result(first, measurement, is_new=True)
                for index in others:
                    yield Result(index, measurement, is_new=False)
        finally:
            for future in running:
                future.cancel()
            if running and self._owned is not None:
                self._owned.interrupt()

    def confirm(
        self,
        candidate: HloModule,
        *,
        baseline: ModuleLike,
        inputs: Inputs | None = None,
    ) -> Measurement:
        """Measures a candidate again, without the store.

        For the best of many: the minimum of their timings is biased.

        Raises:
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        original = as_module(baseline)
        task = Task(
            candidate,
            original,
            as_inputs(inputs, original),
            replace(self.settings, seed=self.settings.seed + 1),
        )
        measurement: Measurement = self._executor.submit(task).result()
        return measurement

    def _stored(self, key: RecordKey) -> Measurement | None:
        if self._store is None or self._again:
            return None
        value = self._store.get(key)
        return None if value is None else Measurement.from_json(value)

    def close(self) -> None:
        """Ends the workers; any number of calls."""
        if self._owned is not None:
            self._owned.shutdown(cancel_futures=True)

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
