# SPDX-License-Identifier: Apache-2.0
"""Runs functions in child processes and reports crashes as results.

A CHECK failure inside XLA ends its process. Work that may crash runs in a child of a
server, which loads XLA's libraries once and forks for each job, in milliseconds. The
server itself never calls XLA, so it has no threads or state that a fork could break.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, overload

from .child import PYTHON, child_environment, last_words, limit_memory, signal_name
from .frames import read_pickle, write_pickle
from .parent import end_with

TIMEOUT = "timeout"


@dataclass
class Outcome:
    """The result of a job.

    Attributes:
        index: position of the job.
        values: the values that the function yielded, or its one result; after a crash,
            the values before it.
        error: "" or why the child did not finish: an exception's traceback, the
            signal and XLA's last log lines, or "timeout".
        seconds: wall-clock time.
        note: the function's last note, see `note`.
        started: the last part of the work that began, see `starts`; "" if none did.
    """

    index: int
    values: list[Any] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    note: str = ""
    started: str = ""

    @property
    def value(self) -> Any:
        """The result of a function that finished."""
        if self.error:
            raise AssertionError(self.error)
        (result,) = self.values
        return result

    @property
    def last_line(self) -> str:
        """The last line of the error: an exception, or what XLA logged last."""
        return next(iter(reversed(self.error.strip().splitlines())), "")


@dataclass(frozen=True)
class Job:
    """One call of a function in a child process.

    Attributes:
        function: "package.module:name"; a generator function sends each value when it
            yields it.
        arguments: picklable, as are the results.
        timeout_s: seconds for the call.
        max_memory_bytes: memory that the child may allocate; None for no limit.
        is_timed_by_value: `timeout_s` applies to each value of a generator function.
    """

    function: str
    arguments: tuple[Any, ...]
    timeout_s: float = 120.0
    max_memory_bytes: int | None = None
    is_timed_by_value: bool = False


class Pool:
    """A server and its children.

    Args:
        workers: number of concurrent children.
        nice: how much to lower their priority.
    """

    def __init__(self, *, workers: int = 2, nice: int = 0) -> None:
        self._server = subprocess.Popen(
            [*PYTHON, "-m", __name__, str(workers), str(nice)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The child has the import path of this process.
            env=child_environment(),
            start_new_session=True,
        )
        self._num_submitted = 0
        self._found: dict[int, Outcome] = {}
        self._queue: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_all, daemon=True)
        self._reader.start()

    def _read_all(self) -> None:
        assert self._server.stdout is not None
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                self._queue.put(Outcome(*read_pickle(self._server.stdout)))
        self._queue.put(None)

    def submit(self, job: Job) -> int:
        """Queues a job and returns its index."""
        assert self._server.stdin is not None
        write_pickle(self._server.stdin, (self._num_submitted, job))
        self._num_submitted += 1
        return self._num_submitted - 1

    @overload
    def next(self) -> Outcome: ...
    @overload
    def next(self, *, timeout_s: float) -> Outcome | None: ...
    def next(self, *, timeout_s: float | None = None) -> Outcome | None:
        """Waits until any job ends.

        Args:
            timeout_s: maximum time to wait; None is returned after it.
        """
        if self._found:
            return self._found.pop(next(iter(self._found)))
        try:
            return self._wait(timeout_s)
        except queue.Empty:
            return None

    def run(self, job: Job) -> Outcome:
        """Submits a job and waits for it; outcomes of other jobs are queued."""
        index = self.submit(job)
        while (outcome := self._wait()).index != index:
            self._found[outcome.index] = outcome
        return outcome

    def _wait(self, timeout_s: float | None = None) -> Outcome:
        if timeout_s is None:
            outcome = self._queue.get()
        else:
            outcome = self._queue.get(timeout=max(0.0, timeout_s))
        if outcome is None:
            raise RuntimeError("the server of child processes has ended")
        return outcome

    def close(self) -> None:
        """Ends the server and its children."""
        self._server.terminate()
        self._server.wait()
        self._reader.join()
        for stream in (self._server.stdin, self._server.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_jobs(
    function: str,
    jobs: Sequence[tuple[Any, ...]],
    *,
    workers: int = 2,
    timeout: float = 120.0,
    nice: int = 0,
    is_timed_by_value: bool = False,
) -> Iterator[Outcome]:
    """Calls `function` once for each job, each call in its own process.

    Args:
        function: as in `Job`.
        jobs: arguments of each call.
        workers: number of concurrent calls.
        timeout: seconds for one call.
        nice: how much to lower the priority.
        is_timed_by_value: as in `Job`.

    Yields:
        An Outcome for each job, in the order in which they end.
    """
    with Pool(workers=workers, nice=nice) as pool:
        for arguments in jobs:
            job = Job(function, arguments, timeout, is_timed_by_value=is_timed_by_value)
            pool.submit(job)
        for _ in jobs:
            yield pool.next()


# The pipe to the server; only set in children.
_out: IO[bytes] | None = None


def note(text: str) -> None:
    """Records the next operation, to explain a crash of the child."""
    if _out is not None:
        write_pickle(_out, ("note", text))


def starts(name: str) -> None:
    """Records the start of a part of the work, after its preparation."""
    if _out is not None:
        write_pickle(_out, ("starts", name))


# --- the server ---------------------------------------------------------------


@dataclass
class _Running:
    """A running child."""

    outcome: Outcome
    pid: int
    stream: IO[bytes]
    stderr: IO[bytes]
    started: float
    clock_from: float
    job: Job
    is_done: bool = False


def _find(name: str) -> Callable[..., Any]:
    place, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(place), attribute)
    return function


def _in_child(job: Job, out: int) -> None:
    global _out
    with os.fdopen(out, "wb") as stream:
        _out = stream
        try:
            result = _find(job.function)(*job.arguments)
            for value in result if isinstance(result, Iterator) else [result]:
                write_pickle(stream, ("value", value))
        except BaseException:
            write_pickle(stream, ("error", traceback.format_exc()))
        else:
            write_pickle(stream, ("done", None))


def _start(index: int, job: Job, inherited: list[int]) -> _Running:
    reader, writer = os.pipe()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _finish)
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        # It holds the server's pipes, whose other end would wait for it.
        end_with(server)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for each in (reader, *inherited):
            os.close(each)
        os.dup2(stderr.fileno(), 2)
        # The server's own stdout carries outcomes.
        os.dup2(stderr.fileno(), 1)
        if job.max_memory_bytes is not None:
            limit_memory(job.max_memory_bytes)
        try:
            _in_child(job, writer)
        finally:
            os._exit(0)
    os.close(writer)
    return _Running(
        Outcome(index),
        pid,
        # Unbuffered, as select() does not see buffered data.
        os.fdopen(reader, "rb", buffering=0),
        stderr,
        time.monotonic(),
        time.monotonic(),
        job,
    )


def _finish(child: _Running) -> Outcome:
    """Waits for a child whose pipe is closed."""
    _, status = os.waitpid(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not child.outcome.error and not child.is_done:
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        child.outcome.error = f"the child ended with {how}\n{last_words(child.stderr)}"
    child.outcome.seconds = time.monotonic() - child.started
    child.stream.close()
    child.stderr.close()
    return child.outcome


def _take(child: _Running) -> bool:
    """Reads one message; False at the end."""
    try:
        kind, value = read_pickle(child.stream)
    except (EOFError, pickle.UnpicklingError):
        return False
    if kind == "value":
        child.outcome.values.append(value)
        if child.job.is_timed_by_value:
            child.clock_from = time.monotonic()
    elif kind == "note":
        child.outcome.note = value
    elif kind == "starts":
        child.outcome.started = value
    elif kind == "error":
        child.outcome.error = value
    else:
        child.is_done = True
    return kind in ("value", "note", "starts")


class _Server:
    """Reads jobs from stdin, writes outcomes to stdout."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.waiting: list[tuple[int, Job]] = []
        self.running: dict[int, _Running] = {}
        self.selector = selectors.DefaultSelector()
        self.jobs = os.fdopen(os.dup(0), "rb", buffering=0)
        self.outcomes = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def stop(self, *_: object) -> None:
        for child in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        os._exit(1)

    def serve(self) -> None:
        self.selector.register(self.jobs, selectors.EVENT_READ, None)
        while True:
            while self.waiting and len(self.running) < self.workers:
                index, job = self.waiting.pop(0)
                # Imported before the fork, so that children share it.
                with contextlib.suppress(Exception):
                    _find(job.function)
                inherited = [each.stream.fileno() for each in self.running.values()]
                child = _start(index, job, inherited)
                self.running[child.pid] = child
                self.selector.register(child.stream, selectors.EVENT_READ, child)
            for key, _ in self.selector.select(timeout=1.0):
                self._take_job() if key.data is None else self._listen(key.data)
            self._end_late()

    def _take_job(self) -> None:
        try:
            self.waiting.append(read_pickle(self.jobs))
        except EOFError:
            self.stop()  # the parent has closed the pipe

    def _listen(self, child: _Running) -> None:
        if _take(child):
            return
        self.selector.unregister(child.stream)
        del self.running[child.pid]
        outcome = _finish(child)
        fields = (outcome.index, outcome.values, outcome.error, outcome.seconds)
        write_pickle(self.outcomes, (*fields, outcome.note, outcome.started))

    def _end_late(self) -> None:
        now = time.monotonic()
        for child in self.running.values():
            is_late = now - child.clock_from > child.job.timeout_s
            if is_late and not child.outcome.error:
                child.outcome.error = TIMEOUT
                os.kill(child.pid, signal.SIGKILL)


def _lower_priority(nice: int) -> None:
    """Lowers the priority of this session against other sessions too."""
    os.nice(nice)
    # Linux shares the cores by session first, and `os.nice` counts within one.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def main() -> None:
    """Serves the process that started this one."""
    importlib.import_module("hloenv")  # children share its libraries

    workers, nice = (int(each) for each in sys.argv[1:])
    _lower_priority(nice)
    # Forks are safe: only libraries that support forks have started threads.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=__name__)
    # Pickled jobs refer to this module by its name.
    sys.modules["hloenv.process.forkserver"] = sys.modules["__main__"]
    server = _Server(workers)
    signal.signal(signal.SIGTERM, server.stop)
    try:
        server.serve()
    except BrokenPipeError:  # the parent no longer reads outcomes
        server.stop()


if __name__ == "__main__":
    main()
