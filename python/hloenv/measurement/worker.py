# SPDX-License-Identifier: Apache-2.0
"""The child process behind `measure`; `hloenv.child.Child` starts it.

It answers the requests of `hloenv.child.Child` in order, each with one frame. An
exception becomes an error answer; a crash of XLA ends the process, which the parent
detects.

Requests, by "do":
    compile: compiles a module and discards it.
    baseline: compiles a module and runs it on inputs: random ones of each of the
        "seeds", or the pickled arrays of blob 1.
    load: compiles a module under "key", runs it on the baseline's inputs, and compares
        the outputs with the baseline's.
    forget: unloads all modules but the baseline.
    time: times the baseline and all "keys" by "plan"; answers with two blobs of
        durations for each, the module's and the baseline's.
    kernels: compiles a module of kernels and times each; "ns" of one run of each.
    read: reads an untrusted module, text if "is_text", and converts it to text and
        proto; with "verify", XLA's verifier and cost analysis run too.
    call: calls a "function"; blob 0 is its pickled arguments, the blob of the answer
        its pickled result.

A module is blob 0, from `HloModule.to_bytes`; "finish", "engine" and "options" are as
for `compile`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import IO, Any

import numpy as np

from .._native import core
from .._typing import Array
from ..errors import ArgumentError, HloEnvError, InvalidModuleError
from ..hlo.module import HloModule, from_own_bytes
from ..hlo.pipeline import finish
from ..hlo.reading import become_expendable, read_here
from ..process.child import limit_memory
from ..process.cpu_affinity import turn_to_time
from ..process.frames import read_frame, write_frame
from ..runtime.buffers import aligned
from ..runtime.compare import OutputComparison, compare_outputs
from ..runtime.executable import AnyExecutable, Engine, Executable, compile
from ..runtime.extreme_inputs import extreme_inputs, is_of_integers
from ..runtime.moved import compare_moved
from ..runtime.random_inputs import perturbed, random_inputs
from ..runtime.step_times import StepTimes
from ..runtime.upcast import upcast_inputs, upcast_to_float64
from .timing import Copies, Plan, time_against

_PERTURBATIONS = 3
# Lists of inputs over the range of integers.
_EXTREME_EXAMPLES = 2
# Seconds of runs on further perturbed inputs, where outputs differ.
_MOVING_S = 2.0

# Approximate time of the rounds of a batch of kernels, and limits of their number.
_KERNELS_NS = 2e8
_MIN_ROUNDS, _MAX_ROUNDS = 5, 30
_QUANTILE = 30
# Of a baseline; if it takes longer, it is not compiled again beside itself.
_MAX_COMPILE_NS = 1_000_000_000
# How often a worker checks whether its parent runs.
_PARENT_POLL_S = 1.0


class Worker:
    """State of the child process."""

    def __init__(self) -> None:
        """Without a baseline."""
        self._baseline: AnyExecutable | None = None
        # What it was compiled from.
        self._source: tuple[Any, ...] = ()
        self._copies: Copies | None = None
        self._original: HloModule | None = None
        self._examples: list[Example] = []
        self._loaded: dict[int, AnyExecutable] = {}

    def answer(
        self, request: dict[str, Any], blobs: list[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Handles one request.

        Raises:
            HloEnvError: the request failed; further requests are possible.
        """
        match request["do"]:
            case "compile":
                module = from_own_bytes(blobs[0])
                _compile(module, request)
                return {}, []
            case "baseline":
                return self._load_baseline(request, blobs), []
            case "load":
                return self._load(request, blobs[0]), []
            case "forget":
                self._loaded = {}
                return {}, []
            case "time":
                return self._time(request)
            case "kernels":
                return {"ns": _time_kernels(request, blobs[0])}, []
            case "read":
                _read(request, blobs[0])
                return {}, []
            case "call":
                return {}, [_call(request["function"], blobs[0])]
            case other:
                raise HloEnvError(f"unknown request {other!r}")

    def _load_baseline(
        self, request: dict[str, Any], blobs: list[bytes]
    ) -> dict[str, Any]:
        module = from_own_bytes(blobs[0])
        source = _source(request, blobs[0])
        if self._baseline is None or self._source != source:
            self._baseline = _compile(module, request)
            self._original, self._source = module, source
            self._copies = Copies(self._baseline)
        if len(blobs) > 1:
            # Those of pickle are not aligned, and would be copied in each run.
            given = [[aligned(each) for each in pickle.loads(blobs[1])]]
        else:
            given = [random_inputs(module, seed=seed) for seed in request["seeds"]]
            if is_of_integers(module):
                # The others are small, which shows no overflow.
                seeds = range(_EXTREME_EXAMPLES)
                given += [
                    extreme_inputs(module, seed=seed, edges=seed % 2 == 0)
                    for seed in seeds
                ]
        self._examples = [Example(self._baseline, inputs) for inputs in given]
        self._loaded = {}
        return {"compile_ns": self._baseline.compile_ns}

    def _compare(self, executable: AnyExecutable) -> OutputComparison:
        """The worst comparison over all inputs."""
        assert self._original is not None
        comparisons = [
            example.compare(executable, self._original) for example in self._examples
        ]
        worst = max(comparisons, key=lambda each: (not each.is_equal, each.excess))
        return replace(
            worst,
            is_bitwise=all(each.is_bitwise for each in comparisons),
            num_nan=min(each.num_nan for each in comparisons),
            rests_on_nan=all(each.rests_on_nan for each in comparisons),
        )

    def _load(self, request: dict[str, Any], proto: bytes) -> dict[str, Any]:
        assert self._baseline is not None
        module = from_own_bytes(proto)
        if module.input_specs() != self._baseline.input_specs:
            raise ArgumentError(
                "the module and its baseline must take the same inputs, got "
                f"{_listed(module)} and {_listed(self._baseline.module)}"
            )
        executable = self._baseline
        takes_long = executable.compile_ns > _MAX_COMPILE_NS
        if not takes_long or _source(request, proto) != self._source:
            executable = _compile(module, request)
        comparison = self._compare(executable)
        self._loaded[request["key"]] = executable
        return {"compile_ns": executable.compile_ns, "outputs": asdict(comparison)}

    def _time(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        assert self._copies is not None
        cores = sorted(os.sched_getaffinity(0))
        with turn_to_time(cores):
            timings = time_against(
                self._copies,
                [self._loaded[key] for key in request["keys"]],
                self._examples[0].inputs,
                Plan(**request["plan"]),
            )
        answer = {
            "copies": [timing.copies for timing in timings],
            "stopped": [timing.stopped for timing in timings],
            "cores": cores,
        }
        return answer, [
            np.asarray(durations, "<i8").tobytes()
            for timing in timings
            for durations in (timing.durations_ns, timing.baseline_ns)
        ]


class Example:
    """One list of inputs, with the baseline's outputs."""

    def __init__(self, baseline: AnyExecutable, inputs: list[Any]):
        self.inputs = inputs
        self._baseline = baseline
        self._expected = baseline(*inputs)
        # Outputs on perturbed inputs, to estimate the effect of rounding.
        self._perturbed_outputs = [
            baseline(*perturbed(inputs, seed=seed)) for seed in range(_PERTURBATIONS)
        ]
        self._in_float64: tuple[Any, ...] | None = None

    def compare(
        self, executable: AnyExecutable, original: HloModule
    ) -> OutputComparison:
        """Compares with the baseline's outputs.

        If they differ, also with those for moved inputs, as `hloenv.jit` does, and with
        those of float64.
        """
        outputs = executable(*self.inputs)
        comparison = compare_outputs(
            self._expected, outputs, also=self._perturbed_outputs
        )
        if comparison.is_equal:
            return comparison
        arrays = _arrays(self._expected), _arrays(outputs)
        if len(arrays[0]) == len(arrays[1]) == len(outputs):
            found = compare_moved(
                *arrays,
                moved=self._moved,
                actual_moved=lambda draw: _arrays(
                    executable(*perturbed(self.inputs, seed=draw))
                ),
                seconds=_MOVING_S,
            )
            if found.is_equal:
                return found
        if original.position is not None:
            return comparison
        if self._in_float64 is None:
            try:
                self._in_float64 = self._run_in_float64(original)
            except HloEnvError:  # cannot be upcast to float64
                self._in_float64 = ()
        if not self._in_float64:
            return comparison
        also = [*self._perturbed_outputs, self._in_float64]
        again = compare_outputs(self._expected, outputs, also=also)
        return replace(again, by_float64=True)

    def _moved(self, draw: int) -> list[Array]:
        """The baseline's outputs for inputs with other last bits."""
        if draw < len(self._perturbed_outputs):
            return _arrays(self._perturbed_outputs[draw])
        return _arrays(self._baseline(*perturbed(self.inputs, seed=draw)))

    def _run_in_float64(self, original: HloModule) -> tuple[Any, ...]:
        """The outputs computed in float64, converted to the module's types."""
        wide = upcast_to_float64(original)
        outputs = compile(wide)(*upcast_inputs(wide, self.inputs))
        return tuple(
            wide_output
            if output is None or wide_output is None
            else wide_output.astype(output.dtype)
            for output, wide_output in zip(self._expected, outputs, strict=True)
        )


def _arrays(outputs: Sequence[Array | None]) -> list[Array]:
    """Those outputs that are arrays."""
    return [each for each in outputs if each is not None]


def _source(request: dict[str, Any], module: bytes) -> tuple[Any, ...]:
    """The same for requests that compile the same code."""
    options = request.get("options") or {}
    return request["finish"], request["engine"], sorted(options.items()), module


def _compile(module: HloModule, request: dict[str, Any]) -> AnyExecutable:
    engine: Engine = request["engine"]
    return compile(
        module,
        finish=request["finish"],
        isolate=False,
        engine=engine,
        options=request.get("options"),
    )


def _time_kernels(request: dict[str, Any], proto: bytes) -> list[float]:
    """Nanoseconds of one run of each output's kernel."""
    module = finish(from_own_bytes(proto))
    executable = _compile(module, {**request, "finish": "none"})
    inputs = random_inputs(module)
    output_of = core.output_of_instruction(executable.module._core)
    with turn_to_time(sorted(os.sched_getaffinity(0))):
        first = executable.time_steps(1, inputs=inputs, warmup=1)
        round_ns = max(float(first.totals_ns[0]), 1.0)
        rounds = int(np.clip(_KERNELS_NS / round_ns, _MIN_ROUNDS, _MAX_ROUNDS))
        times = _time_warm(executable, rounds, inputs)
    # Disturbances only lengthen a run.
    steps_ns = np.percentile(times.durations_ns, _QUANTILE, axis=0)
    kernels_ns = [0.0] * len(executable.output_specs)
    for name, step_ns in zip(times.names, steps_ns, strict=True):
        if name in output_of:
            kernels_ns[output_of[name]] += float(step_ns)
    return kernels_ns[: request["count"]]


def _time_warm(
    executable: AnyExecutable, rounds: int, inputs: Sequence[Any]
) -> StepTimes:
    """With warm caches: in its module, most inputs of a kernel were just written."""
    if isinstance(executable, Executable):
        return executable.time_steps(rounds, inputs=inputs, warmup=1, is_warm=True)
    return executable.time_steps(rounds, inputs=inputs, warmup=1)


def _call(name: str, arguments: bytes) -> bytes:
    """Calls "package.module:function"; returns its pickled result."""
    place, colon, attribute = name.partition(":")
    if not colon:
        raise ArgumentError(
            f"a function must be given as 'package.module:name', got {name!r}"
        )
    args, kwargs = pickle.loads(arguments)
    result = getattr(importlib.import_module(place), attribute)(*args, **kwargs)
    data = pickle.dumps(result)
    # The parent must be able to unpickle it.
    pickle.loads(data)
    return data


def _read(request: dict[str, Any], data: bytes) -> None:
    content = data.decode() if request["is_text"] else data
    module = read_here(content, verify=request["verify"])
    try:
        text, proto = module.to_text(), module.to_proto()
    except UnicodeDecodeError as error:
        raise InvalidModuleError(
            f"module {module.name!r} has no text form: byte {error.start} is not UTF-8"
        ) from None
    if request["verify"]:
        module.fingerprint()
        module.cost()
        read_here(text, verify=True)
        read_here(proto, verify=True)


def _listed(module: HloModule) -> str:
    return ", ".join(
        f"{spec.hlo_dtype}{list(spec.shape)}" for spec in module.input_specs()
    )


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answers requests until the other side closes."""
    worker = Worker()
    write_frame(answers, {"is_up": True})
    while True:
        try:
            request, blobs = read_frame(requests)
        except EOFError:
            return
        try:
            answer, results = worker.answer(request, blobs)
        except Exception as error:
            # The process continues after any exception.
            is_ours = isinstance(error, HloEnvError)
            kind = type(error).__name__ if is_ours else "WorkerError"
            message = str(error) if is_ours else f"{type(error).__name__}: {error}"
            answer, results = {"error": kind, "message": message}, []
        write_frame(answers, answer, *results)


def end_with_parent(parent: int) -> None:
    """Ends this process after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    os._exit(1)


def main() -> None:
    """Serves on stdin and stdout; other output goes to stderr."""
    become_expendable()
    if len(sys.argv) > 1:
        limit_memory(int(sys.argv[1]))
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    serve(requests, answers)


if __name__ == "__main__":
    main()
