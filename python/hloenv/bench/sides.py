# SPDX-License-Identifier: Apache-2.0
"""One module compiled by several compilers, each in its own process.

XLA reads its flags once per process, and jaxlib contains another XLA, so that two sets
of flags or two compilers need two processes. A `Side` is a forked process with a
compiled module; `side_timing` times two of them alternately on the same cores. A crash
of the process is an error here.

The process that forks must not have used XLA, since a fork does not copy its threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import CompileError, HloEnvError, MeasureTimeout, WorkerError
from ..hlo.module import HloModule
from ..measurement.timing import WARMUP_BELOW_NS
from ..measurement.worker import Example, end_with_parent
from ..process.child import last_words, make_error, signal_name
from ..process.frames import is_readable_within, read_pickle, write_pickle
from ..runtime.compare import OutputComparison
from ..runtime.executable import AnyExecutable, Executable, compile, time_runs
from .flags import use
from .task import draw_inputs

if TYPE_CHECKING:
    from ..dataset.reader import Record

Compiler = Literal["xla", "jax.jit"]
Outputs = list[Any]
_WARMUP_NS = 200_000


@dataclass(frozen=True)
class Loaded:
    """Result of `Side.load`.

    Attributes:
        fingerprint: of the final module.
        compile_ns: compile time.
        run_ns: approximate duration of one call.
    """

    fingerprint: str
    compile_ns: int
    run_ns: int


class Side:
    """A process with one compiled module.

    Args:
        compiler: the wheel's XLA through `hloenv.compile`, or `jax.jit`.
        flags: of the wheel's XLA.
        timeout_s: seconds for each request.
    """

    def __init__(
        self, compiler: Compiler, flags: str, *, timeout_s: float | None = None
    ):
        """Forks; the child inherits the CPU affinity."""
        self._timeout_s = timeout_s
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as self)
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for descriptor in (1, 2):
                os.dup2(self._stderr.fileno(), descriptor)
            os.close(self._requests)
            os.close(self._answers)
            try:
                _serve(requests, answers, compiler, flags)
            finally:
                os._exit(0)
        os.close(requests)
        os.close(answers)

    def load(
        self,
        text: str,
        record: Record | None,
        seeds: Sequence[int],
        *,
        from_python: bool,
    ) -> Loaded:
        """Compiles a module, and runs it on the inputs of the first seed.

        Args:
            text: HLO text.
            record: dataset record that specifies the inputs; None for random inputs.
            seeds: of the inputs.
            from_python: whether to time calls from Python; otherwise calls from the
                C++ loop of hloenv's measurements.

        Raises:
            HloEnvError: it cannot be compiled or run.
        """
        loaded: Loaded = self._ask("load", text, record, list(seeds), from_python)
        return loaded

    def outputs(self, index: int) -> Outputs:
        """Outputs of the module for the inputs of a seed, by position."""
        outputs: Outputs = self._ask("outputs", index)
        return outputs

    def compare(self, index: int, outputs: Outputs) -> OutputComparison:
        """Compares outputs for the inputs of a seed with those of this module."""
        comparison: OutputComparison = self._ask("compare", index, outputs)
        return comparison

    def renew(self) -> float:
        """Moves the code to another address; returns the seconds that this took."""
        started = time.monotonic()
        self._ask("renew")
        return time.monotonic() - started

    def time(self, calls: int, rounds: int) -> list[int]:
        """Duration of one call in each round of `calls` calls, in ns."""
        durations: list[int] = self._ask("time", calls, rounds)
        return durations

    def _ask(self, *request: Any) -> Any:
        try:
            _write(self._requests, request)
            kind, value = self._receive()
        except MeasureTimeout:  # also an OSError
            raise
        except (EOFError, OSError):
            raise WorkerError(self._end()) from None
        if kind == "ok":
            return value
        raise make_error(*value)

    def _receive(self) -> tuple[str, Any]:
        if not is_readable_within(self._answers, self._timeout_s):
            self.close()
            raise MeasureTimeout(f"no answer within {self._timeout_s:g} s")
        answer: tuple[str, Any] = _read(self._answers)
        return answer

    def _end(self) -> str:
        """Describes the end of the process."""
        if not self._pid:
            return "the process was closed"
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        code = os.waitstatus_to_exitcode(status)
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        words = " ".join(last_words(self._stderr).split())
        return f"the process ended with {how}: {words}"

    @property
    def is_open(self) -> bool:
        """Whether the process runs, as far as is known."""
        return bool(self._pid)

    def close(self) -> None:
        """Ends the process; any number of calls."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        for descriptor in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                if descriptor >= 0:
                    os.close(descriptor)
        self._requests = self._answers = -1
        self._stderr.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write(descriptor: int, value: object) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        write_pickle(stream, value)


def _read(descriptor: int) -> Any:
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
        return read_pickle(stream)


# --- in the process --------------------------------------------------------------


def _serve(requests: int, answers: int, compiler: Compiler, flags: str) -> None:
    use(flags if compiler == "xla" else "")
    watch = threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True)
    watch.start()
    side: _Xla | _Jax | None = None
    while True:
        try:
            name, *arguments = _read(requests)
        except EOFError:
            return
        try:
            if name == "load":
                made = _Xla if compiler == "xla" else _Jax
                side = made(*arguments)
                answer: Any = ("ok", side.loaded())
            else:
                answer = ("ok", getattr(side, name)(*arguments))
        except HloEnvError as error:
            answer = ("error", (type(error).__name__, str(error)))
        except Exception as error:
            traceback.print_exc()
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
            answer = ("error", ("WorkerError", message))
        _write(answers, answer)


class _Xla:
    """The wheel's XLA."""

    def __init__(
        self, text: str, record: Record | None, seeds: list[int], from_python: bool
    ):
        self._module = HloModule.from_text(text)
        started = time.perf_counter_ns()
        self._original = compile(self._module, finish="xla", isolate=False)
        self._compile_ns = time.perf_counter_ns() - started
        self._current: Executable = self._original
        self._inputs = [draw_inputs(self._module, record, seed) for seed in seeds]
        self._examples: dict[int, Any] = {}
        self._from_python = from_python
        self._kept: list[Executable] = []

    def loaded(self) -> Loaded:
        fingerprint = self._original.module.fingerprint()
        return Loaded(fingerprint, self._compile_ns, min(self.time(1, 2)))

    def outputs(self, index: int) -> Outputs:
        return list(self._original(*self._inputs[index]))

    def compare(self, index: int, outputs: Outputs) -> OutputComparison:
        if index not in self._examples:
            self._examples[index] = Example(self._original, self._inputs[index])
        comparison: OutputComparison = self._examples[index].compare(
            lambda *_: tuple(outputs), self._module
        )
        return comparison

    def renew(self) -> None:
        # Kept: a new copy would reuse the addresses of a freed one.
        self._kept.append(self._current)
        # Without a copy if XLA cannot export the code.
        with contextlib.suppress(CompileError):
            self._current = self._original.copy()

    def time(self, calls: int, rounds: int) -> list[int]:
        inputs = self._inputs[0]
        if self._from_python:
            executable = self._current
            return _time(lambda: executable(*inputs), calls, rounds)
        durations = time_runs(
            [self._current], [inputs], repeats=rounds, warmup=1, batch=[calls]
        )
        return [int(each) for each in durations[0]]


class _Jax:
    """jaxlib's XLA, called as through jax.jit."""

    def __init__(
        self, text: str, record: Record | None, seeds: list[int], _from_python: bool
    ):
        module = HloModule.from_text(text)
        self._inputs = [draw_inputs(module, record, seed) for seed in seeds]
        self._original = compile(module, finish="xla", isolate=False, engine="jaxlib")
        self._renewed(self._original)
        # jax's caches would give the same code again.
        self._kept = [self._original]

    def _renewed(self, executable: AnyExecutable) -> None:
        self._current = executable
        self._call = executable.call_of(self._inputs[0])

    def loaded(self) -> Loaded:
        fingerprint = self._original.module.fingerprint()
        return Loaded(fingerprint, self._original.compile_ns, min(self.time(1, 2)))

    def outputs(self, index: int) -> Outputs:
        return list(self._current(*self._inputs[index]))

    def renew(self) -> None:
        with contextlib.suppress(CompileError):
            self._renewed(self._original.copy())
            self._kept.append(self._current)

    def time(self, calls: int, rounds: int) -> list[int]:
        return _time(self._call, calls, rounds)


def _time(call: Callable[[], object], calls: int, rounds: int) -> list[int]:
    """Duration of one call in each round, after a warm-up."""
    clock = time.perf_counter_ns
    started = clock()
    call()
    first_ns = clock() - started
    if first_ns < WARMUP_BELOW_NS:
        while clock() - started < _WARMUP_NS:
            call()
    durations = []
    for _ in range(rounds):
        begin = clock()
        for _ in range(calls):
            call()
        durations.append(max((clock() - begin) // calls, 1))
    return durations
