# SPDX-License-Identifier: Apache-2.0
"""Modules that are measured together: what fails is one record, the rest goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import OutputComparison
from .child import Child
from .errors import HloEnvError, MeasureTimeout, WorkerError
from .machine import this_machine
from .measurement import MeasureFailure, Measurement
from .module import HloModule
from .settings import Keys, header

if TYPE_CHECKING:
    from .evaluate import Measurer

_RETRIES = 2


class Group:
    """Modules with one baseline. Processes come and go, records stay."""

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
        # A process that somebody kills is no fault of the modules in it.
        self._retries = _RETRIES
        self.keys = Keys(baseline, inputs, self._settings)

    def measure(self, indices: list[int]) -> list[Measurement]:
        """Measures those of the modules; one record each.

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
        """Loads and times `indices` together, and apart where that kills the child."""
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
        """Loads what can be loaded of `indices`, all into one process."""
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
                        **header(module, self._settings.finish),
                    },
                    module.to_proto(),
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
        """Raises what is not the fault of any module, while there are retries."""
        if isinstance(error, WorkerError) and error.is_kill and self._retries > 0:
            raise error

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
            baseline=self.baseline.fingerprint(),
            finish=self._settings.finish,
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
        )
