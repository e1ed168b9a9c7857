# SPDX-License-Identifier: Apache-2.0
"""Measures candidates against what the user has, on local workers or a Ray cluster."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any

from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..measurement.config import Keys, Settings
from ..measurement.pool import LocalExecutor, Task
from ..measurement.record import MeasureFailure, Measurement
from ..measurement.store import RecordKey, Store
from ..runtime.executable import Engine
from .build import Candidate
from .options import DEFAULT_TIMEOUT_S

# Seconds of runs of one candidate, and the half-width of its interval that is enough.
_SECONDS, _PRECISION = 0.4, 0.02
_GIVE_UP_BELOW = 0.95
# Runs shorter than this cannot be distinguished from the call itself.
MIN_RUN_NS = 1000.0


@dataclass(frozen=True)
class Control:
    """The baseline measured against itself: what the machine does to an interval.

    Attributes:
        interval: 95 % interval of the speed-up, whose true value is 1.
        median_ns: of one run.
        has_changed: whether an earlier control was not steady.
    """

    interval: tuple[float, float]
    median_ns: float
    has_changed: bool = False

    @property
    def is_steady(self) -> bool:
        """Whether each interval contains 1 and is as narrow as was asked for."""
        low, high = self.interval
        return not self.has_changed and low <= 1 <= high and high - low < 4 * _PRECISION

    @property
    def is_above_clock(self) -> bool:
        """Whether a run is long enough to be timed."""
        return self.median_ns >= MIN_RUN_NS

    @property
    def is_conclusive(self) -> bool:
        """Whether a search that finds nothing faster says that nothing is."""
        return self.is_above_clock and self.is_steady

    def wider(self, other: Control) -> Control:
        """The ends of both intervals that are farther from 1; steady if both are."""
        low = min(self.interval[0], other.interval[0])
        high = max(self.interval[1], other.interval[1])
        is_steady = self.is_steady and other.is_steady
        return Control((low, high), self.median_ns, has_changed=not is_steady)

    def widened(self, interval: tuple[float, float]) -> tuple[float, float]:
        """An interval, wider by how far this one is from 1 on a machine that changes.

        Args:
            interval: of a speed-up.
        """
        if self.is_steady:
            return interval
        low, high = (max(each, 1e-6) for each in self.interval)
        factor = math.exp(max(abs(math.log(low)), abs(math.log(high))))
        return interval[0] / factor, interval[1] * factor


class Measuring:
    """Measures the candidates of one module, several at a time.

    Args:
        module: the baseline, as the user has it.
        inputs: of the runs; None for random ones.
        engine: of the baseline.
        threads: cores of each measurement.
        workers: concurrent measurements here; by default the cores over `threads`.
        executor: an object with `submit(task)`, such as `RayExecutor`; a given one is
            not shut down.
        store: cache of the measurements.
        seed: of the inputs and the order of the runs.
        timeout_s: seconds that each may take to compile, to run once and for its runs.
    """

    def __init__(
        self,
        module: HloModule,
        inputs: Sequence[Any] | None,
        *,
        engine: Engine,
        threads: int = 1,
        workers: int | None = None,
        executor: Any = None,
        store: Store | None = None,
        seed: int = 0,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._module = module
        self._inputs = None if inputs is None else list(inputs)
        self._store = store
        self.settings = Settings(
            engine=engine,
            baseline_engine=engine,
            threads=threads,
            seconds=_SECONDS,
            precision=_PRECISION,
            give_up_below=_GIVE_UP_BELOW,
            timeout_s=timeout_s,
            input_sets=1,
            seed=seed,
        )
        cores = len(os.sched_getaffinity(0)) // threads
        self.workers = max(1, cores) if workers is None else workers
        self._owned = LocalExecutor(self.workers) if executor is None else None
        self._executor: Any = self._owned or executor

    def control(self, *, again: int = 0) -> Control:
        """Measures the baseline against itself, without the store.

        Args:
            again: distinguishes repeated controls.

        Raises:
            HloEnvError: the baseline cannot be compiled or run.
        """
        settings = replace(self.settings, seed=self.settings.seed + 1000 + again)
        task = Task(self._module, self._module, self._inputs, settings)
        found: Measurement = self._executor.submit(task).result()
        found.check()
        return Control(found.speedup_interval, found.baseline_median_ns)

    def measure(
        self, candidates: Mapping[int, Candidate], *, until: float = math.inf
    ) -> Iterator[tuple[int, Measurement]]:
        """Yields each candidate's measurement when it is ready; stored ones first.

        Leaving the iteration ends the running measurements.

        Args:
            candidates: by any number.
            until: of the monotonic clock; what is not ready by then is ended.
        """
        running: dict[Future[Measurement], tuple[int, RecordKey]] = {}
        try:
            for number, candidate in candidates.items():
                settings = self._settings_of(candidate)
                keys = Keys(self._module, self._inputs, settings)
                key = keys.of(candidate.built.module)
                stored = self._stored(key)
                if stored is not None:
                    yield number, stored
                    continue
                running[self._submit(candidate, settings)] = number, key
            while running:
                left = None if until == math.inf else max(until - time.monotonic(), 0.0)
                done, _ = wait(running, timeout=left, return_when=FIRST_COMPLETED)
                if not done:
                    return
                for future in done:
                    number, key = running.pop(future)
                    found = _result(future, candidates[number])
                    if self._store is not None and _is_kept(found):
                        with contextlib.suppress(HloEnvError, OSError):
                            self._store.put(key, found.to_json())
                    yield number, found
        finally:
            for future in running:
                future.cancel()
            if running and self._owned is not None:
                self._owned.interrupt()

    def _stored(self, key: RecordKey) -> Measurement | None:
        with contextlib.suppress(HloEnvError, OSError):  # a damaged record
            data = None if self._store is None else self._store.get(key)
            if data is not None:
                found = Measurement.from_json(data)
                return found if _is_kept(found) else None
        return None

    def again(self, candidate: Candidate, *, round_: int) -> Measurement:
        """Measures a candidate afresh and longer, without the store.

        Random inputs are other ones.

        Args:
            candidate: what to measure.
            round_: distinguishes repeated measurements.
        """
        settings = replace(
            self._settings_of(candidate),
            seed=self.settings.seed + 1 + round_,
            seconds=4 * _SECONDS,
            precision=_PRECISION / 2,
            input_sets=2,
        )
        return _result(self._submit(candidate, settings), candidate)

    def _submit(self, candidate: Candidate, settings: Settings) -> Any:
        task = Task(candidate.built.module, self._module, self._inputs, settings)
        return self._executor.submit(task)

    def _settings_of(self, candidate: Candidate) -> Settings:
        built = candidate.built
        return replace(
            self.settings,
            finish=built.finish,
            engine=built.engine,
            options=tuple(sorted(built.options.items())),
        )

    def close(self) -> None:
        """Ends the workers; any number of calls."""
        if self._owned is not None:
            self._owned.shutdown(cancel_futures=True)

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def inputs_key(module: HloModule, inputs: Sequence[Any] | None) -> str:
    """A hash of given inputs; "random" without any."""
    given = None if inputs is None else list(inputs)
    return Keys(module, given, Settings()).inputs


def is_lost(measurement: Measurement) -> bool:
    """Whether no worker has finished it, so that it says nothing of its candidate."""
    return not measurement.baseline


def _is_kept(measurement: Measurement) -> bool:
    """Whether it is of this kind of machine, and would be the same again."""
    return measurement.is_here and measurement.is_lasting and not is_lost(measurement)


def _result(future: Any, candidate: Candidate) -> Measurement:
    """The measurement; one with an error if its worker was lost."""
    try:
        found: Measurement = future.result()
    except HloEnvError as error:
        failure = MeasureFailure(type(error).__name__, str(error))
        return Measurement(
            fingerprint=candidate.built.module.fingerprint(),
            baseline="",
            finish=candidate.built.finish,
            seed=0,
            engine=candidate.built.engine,
            error=failure,
        )
    return found
