# SPDX-License-Identifier: Apache-2.0
"""Measuring modules: how fast, against what, and whether the outputs are right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast, overload

import numpy as np

from .arrays import OutputComparison, compare_outputs, random_inputs
from .child import Child, make_error
from .errors import ArgumentError, HloEnvError, MeasureTimeout, WorkerError
from .executable import Executable, Finish, compile
from .module import HloModule, as_module
from .place import as_tuple, decided_of

__all__ = [
    "Executable",
    "Finish",
    "MeasureFailure",
    "Measurement",
    "OutputComparison",
    "bootstrap_ratio",
    "compare_outputs",
    "compile",
    "measure",
    "random_inputs",
]

ModuleLike = HloModule | str | os.PathLike[str]

_BOOTSTRAP_SAMPLES = 2000
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeasureFailure:
    """Why a module has no timing.

    Attributes:
        kind: class of `hloenv.errors`: "CompileError", "MeasureTimeout", ...
        message: what happened and what to do.
    """

    kind: str
    message: str


@dataclass(frozen=True)
class Measurement:
    """One module timed against a baseline in one process.

    A module that fails, takes too long, or computes something else has an `error`
    instead of a speed-up.

    Attributes:
        fingerprint: of the module that was given.
        finish: what ran before XLA's backend.
        seed: of the inputs.
        durations_ns: each run of the module, in order, in nanoseconds.
        baseline_ns: each run of the baseline, which took turns with it.
        compile_ns: how long XLA's backend took.
        baseline_compile_ns: the same for the baseline.
        outputs: how the outputs compare with the baseline's on the same inputs.
        cpu: model of the processor.
        num_threads: threads that an execution may use.
        error: None when everything went well and the outputs are equal.
    """

    fingerprint: str
    finish: str
    seed: int
    durations_ns: tuple[int, ...] = ()
    baseline_ns: tuple[int, ...] = ()
    compile_ns: int = 0
    baseline_compile_ns: int = 0
    outputs: OutputComparison | None = None
    cpu: str = ""
    num_threads: int = 0
    error: MeasureFailure | None = None

    @property
    def is_ok(self) -> bool:
        """Whether there is a speed-up to speak of."""
        return self.error is None

    @property
    def median_ns(self) -> float:
        """Median duration; NaN without timings."""
        return _median(self.durations_ns)

    @property
    def baseline_median_ns(self) -> float:
        """Median duration of the baseline; NaN without timings."""
        return _median(self.baseline_ns)

    @property
    def speedup(self) -> float:
        """Baseline's median over the module's: above 1 is faster; NaN on error."""
        return self.baseline_median_ns / self.median_ns if self.is_ok else float("nan")

    @property
    def speedup_interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of `speedup`; the same for the same durations."""
        if not self.is_ok:
            return (float("nan"), float("nan"))
        return bootstrap_ratio(self.baseline_ns, self.durations_ns)

    def check(self) -> Measurement:
        """Returns itself, or raises its error by its class."""
        if self.error is not None:
            raise make_error(self.error.kind, self.error.message)
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return asdict(self)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.error.kind}: {self.error.message}"
        low, high = self.speedup_interval
        ours_us, theirs_us = self.median_ns / 1e3, self.baseline_median_ns / 1e3
        return (
            f"{ours_us:.1f} us against {theirs_us:.1f} us: {self.speedup:.3f}x "
            f"({low:.3f} to {high:.3f})"
        )


def bootstrap_ratio(
    numerator_ns: Sequence[int], denominator_ns: Sequence[int]
) -> tuple[float, float]:
    """95 % interval of the ratio of two medians, from resampled rounds.

    The two were timed in turns, so a round is drawn with both of its durations.

    Args:
        numerator_ns: [N] durations.
        denominator_ns: [N] durations of the same rounds.
    """
    above, below = np.asarray(numerator_ns), np.asarray(denominator_ns)
    rng = np.random.default_rng(0)
    rounds = rng.integers(0, len(above), (_BOOTSTRAP_SAMPLES, len(above)))
    ratios = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    tail = 100 * (1 - _CONFIDENCE) / 2
    low, high = np.percentile(ratios, [tail, 100 - tail])
    return float(low), float(high)


def _median(values: Sequence[int]) -> float:
    return float(np.median(values)) if values else float("nan")


# A string is a sequence of strings to the type checker; the first overload takes it.
@overload
def measure(  # type: ignore[overload-overlap]
    module: ModuleLike,
    *,
    baseline: ModuleLike | None = ...,
    repeats: int = ...,
    seed: int = ...,
    timeout_s: float | None = ...,
    finish: Finish = ...,
    max_memory_bytes: int | None = ...,
) -> Measurement: ...


@overload
def measure(
    module: Sequence[ModuleLike],
    *,
    baseline: ModuleLike | None = ...,
    repeats: int = ...,
    seed: int = ...,
    timeout_s: float | None = ...,
    finish: Finish = ...,
    max_memory_bytes: int | None = ...,
) -> list[Measurement]: ...


def measure(
    module: ModuleLike | Sequence[ModuleLike],
    *,
    baseline: ModuleLike | None = None,
    repeats: int = 100,
    seed: int = 0,
    timeout_s: float | None = None,
    finish: Finish = "legalize",
    max_memory_bytes: int | None = None,
) -> Measurement | list[Measurement]:
    """Times modules against a baseline in a child process.

    The baseline and the modules run in turns (A B C, B C A, ...) on the same seeded
    inputs, and the outputs of each module are compared with the baseline's. What goes
    wrong with a module is in its record, and never stops the others.

    Args:
        module: one module, or several.
        baseline: what to compare with, by default the module itself with nothing
            decided (the first, of several). It takes the rest of XLA's pipeline from
            its place on; a raw module takes all of it, XLA's default.
        repeats: timed runs of each.
        seed: of the inputs.
        timeout_s: seconds that one module may take to compile, to run once, and for
            its share of the timed runs; None for no limit.
        finish: as in `compile`, for the modules; not for the baseline.
        max_memory_bytes: what the child process may allocate.

    Returns:
        One measurement, or a list in the order of the modules.

    Raises:
        ArgumentError: `repeats` below 1, or no modules.
        HloEnvError: the baseline itself cannot be compiled or run.
    """
    if repeats < 1:
        raise ArgumentError(f"repeats is {repeats}; at least 1 run has to be timed")
    is_one = isinstance(module, (HloModule, str, os.PathLike))
    given = [module] if is_one else list(cast("Sequence[ModuleLike]", module))
    modules = [as_module(cast("ModuleLike", each)) for each in given]
    if not modules:
        raise ArgumentError("measure needs at least one module")
    if baseline is None:
        original = HloModule._wrap(modules[0]._core, place=modules[0].place)
    else:
        original = as_module(baseline)
    session = _Session(
        modules, original, repeats, seed, timeout_s, finish, max_memory_bytes
    )
    results = session.run()
    return results[0] if is_one else results


class _Session:
    """One call of `measure`: children come and go, records stay."""

    def __init__(
        self,
        modules: list[HloModule],
        baseline: HloModule,
        repeats: int,
        seed: int,
        timeout_s: float | None,
        finish: Finish,
        max_memory_bytes: int | None,
    ):
        self._modules = modules
        self._baseline = baseline
        self._repeats = repeats
        self._seed = seed
        self._timeout_s = timeout_s
        self._finish = finish
        self._max_memory_bytes = max_memory_bytes
        self._records: dict[int, dict[str, Any]] = {}
        self._baseline_record: dict[str, Any] = {}

    def run(self) -> list[Measurement]:
        self._measure(list(range(len(self._modules))))
        return [self._measurement(index) for index in range(len(self._modules))]

    def _measure(self, indices: list[int]) -> None:
        """Loads and times `indices` together, and apart where that kills the child."""
        child, loaded = self._load(indices)
        with child:
            if not loaded:
                return
            try:
                self._time(child, loaded)
                return
            except (WorkerError, MeasureTimeout) as error:
                if len(loaded) == 1:
                    self._fail(loaded[0], error)
                    return
        for index in loaded:
            self._measure([index])

    def _load(self, indices: list[int]) -> tuple[Child, list[int]]:
        """A child that holds the baseline and all of `indices` that can be loaded."""
        remaining = list(indices)
        while True:
            child = Child(max_memory_bytes=self._max_memory_bytes)
            try:
                header = self._header(self._baseline, "legalize")
                self._baseline_record, _ = child.request(
                    {"do": "baseline", "seed": self._seed, **header},
                    self._baseline.to_proto(),
                    timeout_s=self._timeout_s,
                )
                failed = self._load_each(child, remaining)
            except BaseException:
                child.close()
                raise
            if failed is None:
                return child, [i for i in remaining if "error" not in self._records[i]]
            remaining.remove(failed)

    def _load_each(self, child: Child, indices: list[int]) -> int | None:
        """Loads modules until one ends the child; returns that one."""
        for index in indices:
            if "error" in self._records.get(index, {}):
                continue
            module = self._modules[index]
            try:
                self._records[index], _ = child.request(
                    {"do": "load", "key": index, **self._header(module, self._finish)},
                    module.to_proto(),
                    timeout_s=self._timeout_s,
                )
            except (WorkerError, MeasureTimeout) as error:
                self._fail(index, error)
                return index
            except HloEnvError as error:
                self._fail(index, error)
        return None

    def _time(self, child: Child, indices: list[int]) -> None:
        timeout_s = self._timeout_s
        answer, blobs = child.request(
            {"do": "time", "keys": indices, "repeats": self._repeats},
            timeout_s=None if timeout_s is None else timeout_s * (len(indices) + 1),
        )
        baseline_ns, *durations_ns = (np.frombuffer(blob, "<i8") for blob in blobs)
        for index, durations in zip(indices, durations_ns, strict=True):
            self._records[index] |= {
                "durations_ns": tuple(durations.tolist()),
                "baseline_ns": tuple(baseline_ns.tolist()),
                "cpu": answer["cpu"],
                "num_threads": answer["num_threads"],
            }

    def _header(self, module: HloModule, finish: Finish) -> dict[str, Any]:
        return {
            "place": as_tuple(module.place),
            "decided": decided_of(module),
            "finish": finish,
        }

    def _fail(self, index: int, error: HloEnvError) -> None:
        failure = MeasureFailure(type(error).__name__, str(error))
        self._records.setdefault(index, {})["error"] = failure

    def _measurement(self, index: int) -> Measurement:
        record = self._records.get(index, {})
        error: MeasureFailure | None = record.get("error")
        outputs = None
        if "outputs" in record:
            fields = {**record["outputs"], "index": tuple(record["outputs"]["index"])}
            outputs = OutputComparison(**fields)
            if error is None and not outputs.is_equal:
                error = MeasureFailure("OutputMismatchError", str(outputs))
        return Measurement(
            fingerprint=self._modules[index].fingerprint(),
            finish=self._finish,
            seed=self._seed,
            durations_ns=record.get("durations_ns", ()),
            baseline_ns=record.get("baseline_ns", ()),
            compile_ns=record.get("compile_ns", 0),
            baseline_compile_ns=self._baseline_record.get("compile_ns", 0),
            outputs=outputs,
            cpu=record.get("cpu", ""),
            num_threads=record.get("num_threads", 0),
            error=error,
        )
