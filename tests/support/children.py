# SPDX-License-Identifier: Apache-2.0
"""Functions run in child processes, so that a dead child is a result.

A CHECK failure inside XLA ends its process. Work that may meet one runs in a child
of a small server: the server loads XLA's libraries once, then forks for each job, so
that a job costs milliseconds, not a start of Python. The server itself never calls
XLA, so it has no threads and no state that a fork could break.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

_TESTS = Path(__file__).resolve().parent.parent
_LENGTH = struct.Struct("<q")


@dataclass
class Outcome:
    """How a job ended.

    Attributes:
        index: position of the job.
        values: what the function yielded, or its one result; what came before the
            end where the child died.
        error: "" or why the child did not finish: an exception's traceback, the
            signal and the end of its stderr, or "timeout".
        seconds: wall-clock time.
    """

    index: int
    values: list[Any] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    @property
    def value(self) -> Any:
        """The one result of a function that finished."""
        if self.error:
            raise AssertionError(self.error)
        (result,) = self.values
        return result


def run_jobs(
    function: str,
    jobs: Sequence[tuple[Any, ...]],
    *,
    workers: int = 2,
    timeout: float = 120.0,
    nice: int = 0,
) -> Iterator[Outcome]:
    """Calls `function` once for each job, each call in its own process.

    Args:
        function: "package.module:name", importable from tests/; a generator function
            hands over each value as it comes.
        jobs: arguments of each call; picklable, as are the results.
        workers: calls at the same time.
        timeout: seconds for one call.
        nice: how much to lower the priority.

    Yields:
        An Outcome for each job, in the order in which they end.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "support.children"],
        cwd=_TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The child finds what this process finds, however it got there.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            # The order goes first, whole: the server reads nothing else.
            _write(server.stdin, (function, list(jobs), workers, timeout, nice))
            server.stdin.close()
            for _ in jobs:
                yield Outcome(*_read(server.stdout))
        finally:
            server.stdout.close()
            server.terminate()


def map_jobs(
    function: str, jobs: Iterable[tuple[Any, ...]], **options: Any
) -> list[Outcome]:
    """The outcomes of `run_jobs` in the order of the jobs."""
    outcomes = run_jobs(function, list(jobs), **options)
    return sorted(outcomes, key=lambda outcome: outcome.index)


def _write(stream: BinaryIO, value: object) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _read(stream: BinaryIO) -> Any:
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return pickle.loads(_read_exactly(stream, length))


def _in_child(function: Callable[..., Any], job: tuple[Any, ...], out: int) -> None:
    with os.fdopen(out, "wb") as stream:
        try:
            result = function(*job)
            for value in result if isinstance(result, Iterator) else [result]:
                _write(stream, ("value", value))
        except BaseException:
            _write(stream, ("error", traceback.format_exc()))
        else:
            _write(stream, ("done", None))


@dataclass
class _Running:
    """A child that works."""

    outcome: Outcome
    pid: int
    stream: BinaryIO
    stderr: BinaryIO
    started: float
    is_done: bool = False


def _start(function: Callable[..., Any], index: int, job: tuple[Any, ...]) -> _Running:
    reader, writer = os.pipe()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _finish)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(reader)
        os.dup2(stderr.fileno(), 2)
        # The server's own stdout carries outcomes.
        os.dup2(stderr.fileno(), 1)
        try:
            _in_child(function, job, writer)
        finally:
            os._exit(0)
    os.close(writer)
    return _Running(
        Outcome(index),
        pid,
        # Unbuffered, as select() sees the pipe only.
        os.fdopen(reader, "rb", buffering=0),  # type: ignore[arg-type]
        stderr,
        time.monotonic(),
    )


def _tail(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read()[-3000:].decode(errors="replace").strip()


def _finish(child: _Running) -> Outcome:
    """Waits for a child whose pipe is closed."""
    _, status = os.waitpid(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not child.outcome.error and not child.is_done:
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        child.outcome.error = f"the child ended with {name}\n{_tail(child.stderr)}"
    child.outcome.seconds = time.monotonic() - child.started
    child.stream.close()
    child.stderr.close()
    return child.outcome


def _take(child: _Running) -> bool:
    """Reads one message; False at the end."""
    try:
        kind, value = _read(child.stream)
    except (EOFError, pickle.UnpicklingError):
        return False
    if kind == "value":
        child.outcome.values.append(value)
    elif kind == "error":
        child.outcome.error = value
    else:
        child.is_done = True
    return kind == "value"


def _serve() -> None:
    function_name, jobs, workers, timeout, nice = _read(sys.stdin.buffer)
    os.nice(nice)
    module, name = function_name.split(":")
    function = getattr(importlib.import_module(module), name)
    waiting = list(enumerate(jobs))[::-1]
    running: dict[int, _Running] = {}

    def stop(*_: object) -> None:
        for child in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    selector = selectors.DefaultSelector()
    while waiting or running:
        while waiting and len(running) < workers:
            child = _start(function, *waiting.pop())
            running[child.pid] = child
            selector.register(child.stream, selectors.EVENT_READ, child)
        for key, _ in selector.select(timeout=1.0):
            child = key.data
            if not _take(child):
                selector.unregister(child.stream)
                del running[child.pid]
                outcome = _finish(child)
                _write(
                    sys.stdout.buffer,
                    (outcome.index, outcome.values, outcome.error, outcome.seconds),
                )
        for child in running.values():
            if not child.outcome.error and time.monotonic() - child.started > timeout:
                child.outcome.error = "timeout"
                os.kill(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
