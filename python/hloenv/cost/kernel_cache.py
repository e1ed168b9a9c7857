# SPDX-License-Identifier: Apache-2.0
"""Estimates modules as sums of their kernels, each of which is compiled and timed once.

A decision changes only a few kernels. Splitting a module into kernels takes
milliseconds and compiling it takes seconds, so a search with estimates evaluates far
more candidates than one that compiles every module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import HloEnvError, MeasureTimeout, WorkerError
from ..hlo.module import HloModule
from ..measurement.config import engine_key
from ..measurement.store import RecordKey, Store
from ..process.child import Child
from ..process.cpu_affinity import CoreLease
from ..runtime.executable import Engine, check_engine
from ..runtime.machine import this_machine
from .base import Estimate
from .kernels import KernelSplit

# Kernels per compile: enough for its fixed cost, few enough for short rounds. In
# jaxlib a kernel cannot run twice in a row, so that few have to share the caches.
_BATCH: dict[Engine, int] = {"wheel": 64, "jaxlib": 8}
_TIMEOUT_S = 120.0
# The timing method, which is part of the store keys.
_METHOD = "warm"


class KernelCache:
    """Cache of kernel times, and estimates of modules as sums of their kernels.

    Kernels are timed in a child process pinned to its own core. The estimate of a
    module is the sum of its kernels, times the trip counts of loops (16 if unknown, so
    that versions of one module are comparable), and `KernelSplit.total_s`.

    Attributes:
        threads: cores that the modules will run on.
        engine: the XLA that runs the kernels.
        num_timed: kernels timed so far.
        timing_s: time that this took, including compiles, in seconds.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        store: Store | None = None,
        max_memory_bytes: int | None = None,
        engine: Engine = "wheel",
    ):
        """Leases its cores; the process starts with the first new kernel.

        Args:
            threads: cores that the modules will run on.
            store: cache of the times.
            max_memory_bytes: memory limit of the child process.
            engine: the XLA that compiles and runs the kernels, as in `hloenv.compile`;
                what the kernels are, the wheel's pipeline decides in any case.

        Raises:
            ArgumentError: the process has fewer cores than `threads`, or `engine` is
                not an engine.
        """
        check_engine(engine)
        self.engine: Engine = engine
        self.threads = threads
        self.num_timed = 0
        self.timing_s = 0.0
        self._store = store
        self._max_memory_bytes = max_memory_bytes
        self._lease = CoreLease(threads)
        self._child: Child | None = None
        # By fingerprint: nanoseconds, or why there are none.
        self._known: dict[str, float | str] = {}

    def estimate(self, module: HloModule) -> Estimate:
        """Estimated time of one run of `module`; times its new kernels."""
        return self.estimate_many([module])[0]

    def estimate_many(self, modules: Sequence[HloModule]) -> list[Estimate]:
        """One estimate for each module; a failure is the error of its estimate."""
        return [self._estimate(module) for module in modules]

    def _estimate(self, module: HloModule) -> Estimate:
        try:
            split = KernelSplit(module, threads=self.threads)
        except HloEnvError as error:
            return Estimate(math.nan, error=str(error))
        before = self.num_timed
        times = self.times(split)
        num_timed = self.num_timed - before
        for name, time_ in zip(split.names, times, strict=True):
            if isinstance(time_, str):
                why = f"kernel {name!r} cannot be timed: {time_}"
                return Estimate(math.nan, len(split), num_timed, why)
        seconds = split.total_s([float(each) for each in times])
        return Estimate(seconds, len(split), num_timed)

    def times(
        self, split: KernelSplit, kernels: Sequence[int] | None = None
    ) -> list[float | str]:
        """Times the kernels of a module that are not known yet.

        Args:
            split: the module.
            kernels: indices of the kernels; all by default.

        Returns:
            Seconds of each of `kernels`, or why there are none.
        """
        wanted = range(len(split)) if kernels is None else kernels
        fingerprints = [split.fingerprints[i] for i in wanted]
        missing = [wanted[i] for i in self._look_up(fingerprints)]
        if missing:
            started = time.perf_counter()
            self._time(split, missing)
            self.timing_s += time.perf_counter() - started
        known = (self._known[each] for each in fingerprints)
        return [each if isinstance(each, str) else each * 1e-9 for each in known]

    def kernels(self, module: HloModule) -> list[dict[str, Any]]:
        """The kernels in the estimate of `module`, the most expensive first.

        Returns:
            For each kernel its "name" (of one instruction), "opcode", "fingerprint",
            "runs" in one run of the module, and "seconds" of each.
        """
        split = KernelSplit(module, threads=self.threads)
        rows = []
        columns = (split.names, split.opcodes, split.fingerprints, split.num_runs)
        times = self.times(split)
        for name, opcode, fingerprint, runs, time_ in zip(*columns, times, strict=True):
            rows.append(
                {
                    "name": name,
                    "opcode": opcode,
                    "fingerprint": fingerprint,
                    "runs": float(runs),
                    "seconds": math.nan if isinstance(time_, str) else time_,
                }
            )
        return sorted(
            rows, key=lambda row: -row["runs"] * np.nan_to_num(row["seconds"])
        )

    def _look_up(self, fingerprints: Sequence[str]) -> list[int]:
        """Indices of the kernels without a known time."""
        unknown = [i for i, each in enumerate(fingerprints) if each not in self._known]
        if self._store is None or not unknown:
            return unknown
        keys = [self._key(fingerprints[i]) for i in unknown]
        for i, record in zip(unknown, self._store.get_many(keys), strict=True):
            if record is not None:
                error = record["error"]
                self._known[fingerprints[i]] = record["ns"] if error is None else error
        return [i for i in unknown if fingerprints[i] not in self._known]

    def _time(self, split: KernelSplit, missing: list[int]) -> None:
        """Times kernels in batches."""
        size = _BATCH[self.engine]
        batches = [missing[i : i + size] for i in range(0, len(missing), size)]
        while batches:
            batch = batches.pop()
            results: list[float | str]
            is_lasting = True
            try:
                results = list(self._time_batch(split, batch))
            except HloEnvError as error:
                if len(batch) > 1:
                    # Bisects to find the kernel that fails.
                    middle = len(batch) // 2
                    batches += [batch[:middle], batch[middle:]]
                    continue
                results = [f"{type(error).__name__}: {error}"]
                # What the machine may be to blame for is tried again by others.
                is_lasting = not isinstance(error, MeasureTimeout) and not (
                    isinstance(error, WorkerError) and error.is_kill
                )
            names = [split.fingerprints[i] for i in batch]
            self._keep(names, results, is_stored=is_lasting)

    def _time_batch(self, split: KernelSplit, batch: list[int]) -> list[float]:
        if self._child is None or not self._child.is_alive:
            self._child = Child(
                max_memory_bytes=self._max_memory_bytes, cores=self._lease.cores
            )
        answer, _ = self._child.request(
            {"do": "kernels", "count": len(batch), "engine": self.engine},
            split.extract(batch).to_bytes(),
            timeout_s=_TIMEOUT_S,
        )
        return [float(each) for each in answer["ns"]]

    def _keep(
        self, fingerprints: list[str], results: list[float | str], *, is_stored: bool
    ) -> None:
        self.num_timed += len(results)
        self._known.update(zip(fingerprints, results, strict=True))
        if self._store is None or not is_stored:
            return
        self._store.put_many(
            (
                self._key(fingerprint),
                {"ns": None, "error": result}
                if isinstance(result, str)
                else {"ns": result, "error": None},
            )
            for fingerprint, result in zip(fingerprints, results, strict=True)
        )

    def _key(self, fingerprint: str) -> RecordKey:
        machine = this_machine()
        return RecordKey(
            kind="kernel",
            fingerprint=fingerprint,
            finish="",
            flags=machine.flags,
            target="cpu",
            machine=machine.id,
            variant=", ".join(
                [_METHOD, f"threads {self.threads}", *engine_key(self.engine)]
            ),
        )

    def close(self) -> None:
        """Ends the process and releases its cores; any number of calls."""
        if self._child is not None:
            self._child.close()
        self._lease.release()

    def __enter__(self) -> KernelCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
