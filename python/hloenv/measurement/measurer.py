# SPDX-License-Identifier: Apache-2.0
"""Measures modules: times against a baseline, and comparisons of outputs."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable, Sequence
from typing import Any, cast, overload

import numpy as np

from ..errors import (
    ArgumentError,
    ArgumentTypeError,
    HloEnvError,
    MeasureTimeout,
    WorkerError,
)
from ..hlo.module import HloModule, ModuleLike, as_module
from ..process.child import Child
from ..process.cpu_affinity import CoreLease
from ..runtime.compare import OutputComparison
from ..runtime.inputs import as_inputs
from ..runtime.machine import this_machine
from .config import Keys, Settings
from .record import MeasureFailure, Measurement
from .store import Store

_RETRIES = 2

Inputs = Sequence[Any] | str | os.PathLike[str]


# A string is a sequence of strings to the type checker; the first overload takes it.
@overload
def measure(
    module: ModuleLike,
    *,
    baseline: ModuleLike | None = ...,
    inputs: Inputs | None = ...,
    store: Store | None = ...,
    again: bool = ...,
    **settings: Any,
) -> Measurement: ...


@overload
def measure(
    module: Sequence[ModuleLike],
    *,
    baseline: ModuleLike | None = ...,
    inputs: Inputs | None = ...,
    store: Store | None = ...,
    again: bool = ...,
    **settings: Any,
) -> list[Measurement]: ...


def measure(
    module: ModuleLike | Sequence[ModuleLike],
    *,
    baseline: ModuleLike | None = None,
    inputs: Inputs | None = None,
    store: Store | None = None,
    again: bool = False,
    **settings: Any,
) -> Measurement | list[Measurement]:
    """Times modules against a baseline in a child process.

    The baseline and the modules run in rounds, in a random order in each, pinned to
    one core (`threads`), as several copies of their code. They run until the speed-up
    is known to 1 % (`precision`) or the module is clearly slower. The outputs of each
    module are compared with the baseline's on two sets of inputs. The error of a module
    is in its record, and does not affect the others.

    Args:
        module: one module, or several.
        baseline: the module to compare with, by default the (first) module itself
            without decisions. The rest of XLA's pipeline from its position runs on it;
            for a raw module, the whole pipeline: XLA's default.
        inputs: one array for each flat leaf of the parameters, or a .npz or
            .safetensors file of them (`hloenv.runtime.inputs.load_inputs`); by default
            random ones.
        store: cache of the measurements.
        again: measure again what the store holds.
        **settings: any of `Settings`: `repeats=100`, `timeout_s=10`, `threads=2`, ...

    Returns:
        One measurement, or a list in the order of the modules.

    Raises:
        ArgumentError: a setting is out of range, there are no modules, or the inputs
            do not match the module.
        HloEnvError: the baseline itself cannot be compiled or run.
    """
    is_one = isinstance(module, (HloModule, str, os.PathLike))
    if isinstance(module, bytes) or not (is_one or isinstance(module, Iterable)):
        raise ArgumentTypeError(
            "measure needs a module, HLO text, a path, or several of them, got "
            f"{type(module).__name__}"
        )
    given = [module] if is_one else list(cast("Sequence[ModuleLike]", module))
    modules = [as_module(cast("ModuleLike", each)) for each in given]
    if not modules:
        raise ArgumentError("measure needs at least one module, got none")
    with Measurer(Settings(**settings), store=store, again=again) as measurer:
        results = measurer.measure(modules, baseline=baseline, inputs=inputs)
    return results[0] if is_one else results


class Measurer:
    """Measures groups of modules in one long-lived child process.

    Attributes:
        settings: of all measurements.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        again: bool = False,
    ):
        """Leases its cores; the process starts with the first measurement.

        Args:
            settings: of all measurements.
            store: cache of the measurements.
            again: measure again what the store holds.

        Raises:
            ArgumentError: the process has fewer cores than `threads`.
        """
        self.settings = settings or Settings()
        self._store = store
        self._again = again
        self._lease = CoreLease(self.settings.threads)
        self._child: Child | None = None
        # State of the process: the baseline's identity and its compile time.
        self._held = ""
        self._baseline_compile_ns = 0
        self._is_interrupted = False

    def measure(
        self,
        modules: Sequence[HloModule],
        *,
        baseline: ModuleLike | None = None,
        inputs: Inputs | None = None,
    ) -> list[Measurement]:
        """As `hloenv.measure`, for several modules.

        Raises:
            ArgumentError: the inputs do not match the baseline.
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        self._is_interrupted = False
        if baseline is None:
            first = modules[0]
            original = HloModule._wrap(first._core, position=first.position)
        else:
            original = as_module(baseline)
        group = _Group(self, list(modules), original, as_inputs(inputs, original))
        if self._store is None:
            return group.measure(list(range(len(modules))))
        keys = [group.keys.of(module) for module in modules]
        found = [None] * len(keys) if self._again else self._store.get_many(keys)
        missing = [i for i, value in enumerate(found) if value is None]
        measured = group.measure(missing) if missing else []
        self._store.put_many(
            [
                (keys[i], result.to_json())
                for i, result in zip(missing, measured, strict=True)
                if result.is_lasting
            ]
        )
        results = dict(zip(missing, measured, strict=True))
        return [
            results[i] if value is None else Measurement.from_json(value)
            for i, value in enumerate(found)
        ]

    def child_with(self, group: _Group) -> Child:
        """The process, with the group's baseline in it.

        Raises:
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        settings = self.settings
        if self._child is None or not self._child.is_alive:
            self._child = Child(
                max_memory_bytes=settings.max_memory_bytes, cores=self._lease.cores
            )
            self._held = ""
        held = f"{settings.engine_of_baseline} {group.keys.identity}"
        if self._held != held:
            request = {
                "do": "baseline",
                "seeds": list(
                    range(settings.seed, settings.seed + settings.input_sets)
                ),
                "finish": "legalize",
                "engine": settings.engine_of_baseline,
            }
            blobs = [group.baseline.to_bytes()]
            if group.inputs is not None:
                blobs.append(pickle.dumps(group.inputs))
            answer, _ = self._child.request(
                request, *blobs, timeout_s=settings.timeout_s
            )
            self._held = held
            self._baseline_compile_ns = answer["compile_ns"]
        return self._child

    @property
    def cores(self) -> tuple[int, ...]:
        """Numbers of the cores that compile and run."""
        return self._lease.cores

    @property
    def is_interrupted(self) -> bool:
        """Whether the running measurement is to end."""
        return self._is_interrupted

    @property
    def baseline_compile_ns(self) -> int:
        """Time of XLA's backend for the baseline."""
        return self._baseline_compile_ns

    def interrupt(self) -> None:
        """Ends the running measurement, from any thread: it raises WorkerError.

        The next call starts a new process.
        """
        self._is_interrupted = True
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """Ends the process and releases its cores; any number of calls."""
        if self._child is not None:
            self._child.close()
        self._lease.release()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Group:
    """Modules with one baseline. Records outlive the processes."""

    def __init__(
        self,
        measurer: Measurer,
        modules: list[HloModule],
        baseline: HloModule,
        inputs: list[Any] | None,
    ):
        self._measurer = measurer
        self._settings = measurer.settings
        self._modules = modules
        self.baseline = baseline
        self.inputs = inputs
        self._records: dict[int, dict[str, Any]] = {}
        # Retries after another process has killed the child.
        self._retries = _RETRIES
        self.keys = Keys(baseline, inputs, self._settings)

    def measure(self, indices: list[int]) -> list[Measurement]:
        """Measures the modules at `indices`; one record each.

        Raises:
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        while True:
            try:
                self._measure(indices)
                break
            except WorkerError as error:
                if (
                    not error.is_kill
                    or self._retries == 0
                    or self._measurer.is_interrupted
                ):
                    raise
                self._retries -= 1
                self._records.clear()
        return [self._measurement(index) for index in indices]

    def _measure(self, indices: list[int]) -> None:
        """Loads and times `indices` together; separately if that ends the child."""
        loaded = self._load(indices)
        if not loaded:
            return
        try:
            self._time(loaded)
        except (WorkerError, MeasureTimeout) as error:
            self._check_kill(error)
            if len(loaded) == 1:
                self._fail(loaded[0], error)
                return
            for index in loaded:
                self._measure([index])

    def _load(self, indices: list[int]) -> list[int]:
        """Loads `indices` into one process; returns those that did not fail."""
        remaining = list(indices)
        while True:
            child = self._measurer.child_with(self)
            failed = self._load_each(child, remaining)
            if failed is None:
                return [i for i in remaining if "error" not in self._records[i]]
            remaining.remove(failed)

    def _load_each(self, child: Child, indices: list[int]) -> int | None:
        """Loads modules until one ends the child; returns that one."""
        child.request({"do": "forget"})
        for index in indices:
            if "error" in self._records.get(index, {}):
                continue
            module = self._modules[index]
            try:
                self._records[index], _ = child.request(
                    {
                        "do": "load",
                        "key": index,
                        "finish": self._settings.finish,
                        "engine": self._settings.engine,
                        "options": dict(self._settings.options),
                    },
                    module.to_bytes(),
                    timeout_s=self._settings.timeout_s,
                )
            except (WorkerError, MeasureTimeout) as error:
                self._check_kill(error)
                self._fail(index, error)
                return index
            except HloEnvError as error:
                self._fail(index, error)
        return None

    def _time(self, indices: list[int]) -> None:
        settings = self._settings
        limit_s = settings.timeout_s
        answer, blobs = self._measurer.child_with(self).request(
            {"do": "time", "keys": indices, "plan": vars(settings.plan)},
            timeout_s=None if limit_s is None else limit_s * (len(indices) + 1),
        )
        for position, index in enumerate(indices):
            ours, theirs = blobs[2 * position : 2 * position + 2]
            self._records[index] |= {
                "durations_ns": tuple(np.frombuffer(ours, "<i8").tolist()),
                "baseline_ns": tuple(np.frombuffer(theirs, "<i8").tolist()),
                "copies": tuple(answer["copies"][position]),
                "stopped": answer["stopped"][position],
            }

    def _check_kill(self, error: HloEnvError) -> None:
        """Raises an error that no module caused, if retries are left."""
        if isinstance(error, WorkerError) and error.is_kill and self._retries > 0:
            raise error

    def _fail(self, index: int, error: HloEnvError) -> None:
        failure = MeasureFailure(type(error).__name__, str(error))
        self._records.setdefault(index, {})["error"] = failure

    def _measurement(self, index: int) -> Measurement:
        record = self._records.get(index, {})
        error: MeasureFailure | None = record.get("error")
        baseline = self.baseline.fingerprint()
        outputs = None
        if "outputs" in record:
            fields = {**record["outputs"], "index": tuple(record["outputs"]["index"])}
            outputs = OutputComparison(**fields)
            is_baseline = self._modules[index].fingerprint() == baseline
            if error is None and not outputs.is_equal:
                error = MeasureFailure("OutputMismatchError", str(outputs))
            elif error is None and outputs.rests_on_nan and not is_baseline:
                error = MeasureFailure(
                    "NotComparedError",
                    f"{outputs}; give inputs on which the original has values",
                )
        return Measurement(
            fingerprint=self._modules[index].fingerprint(),
            baseline=baseline,
            finish=self._settings.finish,
            engine=self._settings.engine,
            seed=self._settings.seed,
            inputs=self.keys.inputs,
            durations_ns=record.get("durations_ns", ()),
            baseline_ns=record.get("baseline_ns", ()),
            copies=record.get("copies", ()),
            stopped=record.get("stopped", ""),
            compile_ns=record.get("compile_ns", 0),
            baseline_compile_ns=self._measurer.baseline_compile_ns,
            outputs=outputs,
            threads=self._settings.threads,
            machine=this_machine().to_json(),
            error=error,
            time=time.time(),
        )
