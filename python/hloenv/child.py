# SPDX-License-Identifier: Apache-2.0
"""Child processes that compile and run modules, so that no module can end ours.

The parent talks to `hloenv.worker` in frames over its stdin and stdout: a
JSON header and any number of binary blobs. Only `hloenv.isolated` pickles into blobs.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Any

from . import errors
from .errors import (
    ArgumentError,
    CompileError,
    HloEnvError,
    MeasureTimeout,
    WorkerError,
)

_LENGTH = struct.Struct("<Q")
_START_TIMEOUT_S = 120.0


def write_frame(stream: IO[bytes], header: dict[str, Any], *blobs: bytes) -> None:
    """Writes one frame and flushes."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    stream.write(b"".join((_LENGTH.pack(len(text)), text, *blobs)))
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Reads one frame.

    Raises:
        EOFError: the other side has gone.
    """
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    header: dict[str, Any] = json.loads(_read_exactly(stream, length))
    return header, [_read_exactly(stream, size) for size in header.pop("blobs")]


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other process has closed the connection")
    return data


def signal_name(number: int) -> str:
    """A signal's name, as SIGABRT; its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def last_words(stderr: IO[bytes]) -> str:
    """XLA's last message in a file of stderr: its fatal line, or else the last lines.

    The file's position stays where it is.
    """
    size = os.fstat(stderr.fileno()).st_size
    start = max(0, size - 65536)
    text = os.pread(stderr.fileno(), size - start, start).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if line[0] == "F" and "] " in line]
    chosen = fatal[-1].split("] ", 1)[1] if fatal else "; ".join(lines[-2:])
    return chosen[-1000:]


# XLA and its libraries alone take half of this; a process that cannot even start its
# threads hangs.
LEAST_MEMORY_BYTES = 256 << 20


def check_memory(max_memory_bytes: int | None) -> None:
    """Refuses limits that leave a process no memory to work with.

    Raises:
        ArgumentError: less than `LEAST_MEMORY_BYTES`.
    """
    if max_memory_bytes is not None and max_memory_bytes < LEAST_MEMORY_BYTES:
        raise ArgumentError(
            f"a limit of {max_memory_bytes} bytes of memory is too little for XLA and "
            f"its libraries: allow at least {LEAST_MEMORY_BYTES >> 20} MiB"
        )


class Child:
    """One worker process. Not for several threads at the same time.

    Args:
        max_memory_bytes: how much memory the process may allocate; None for no limit.
        cores: the only ones that it works on; None for all.

    Raises:
        ArgumentError: as `check_memory`.
    """

    def __init__(
        self,
        *,
        max_memory_bytes: int | None = None,
        cores: Sequence[int] | None = None,
    ):
        """Starts the process; the first request waits until it is up."""
        check_memory(max_memory_bytes)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as self)
        # The child imports this very package, wherever it came from.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path))
        }
        # Before anything is loaded: threads take over the cores of their makers.
        pin = "" if cores is None else f"os.sched_setaffinity(0, {sorted(cores)}); "
        limit = [] if max_memory_bytes is None else [str(max_memory_bytes)]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c"),
                f"import os; {pin}from hloenv.worker import main; main()",
                *limit,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            # Ctrl-C is for the parent, which then ends the child.
            start_new_session=True,
        )
        self._is_up = False

    def request(
        self, header: dict[str, Any], *blobs: bytes, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Sends one request and waits for its answer.

        Raises:
            MeasureTimeout: no answer in time; the process has been ended.
            WorkerError: the process died; the message holds XLA's last words.
            HloEnvError: what the request itself raised in the child, by its class.
        """
        if not self._is_up:
            self._receive(_START_TIMEOUT_S)
            self._is_up = True
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin, header, *blobs)
        except (BrokenPipeError, OSError):
            raise self._death() from None
        answer, results = self._receive(timeout_s)
        if "error" in answer:
            raise make_error(answer["error"], answer["message"])
        return answer, results

    def _receive(self, timeout_s: float | None) -> tuple[dict[str, Any], list[bytes]]:
        assert self._process.stdout is not None
        try:
            ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        except BaseException:  # Ctrl-C: what the child computes is for nobody
            self.close()
            raise
        if not ready:
            self.close()
            raise MeasureTimeout(
                f"no answer from the worker process after {timeout_s:.3g} s; "
                "give it more time (timeout_s) or a smaller module"
            )
        try:
            return read_frame(self._process.stdout)
        except EOFError:
            raise self._death() from None

    def _death(self) -> WorkerError:
        code = self._process.wait()
        how = f"exit code {code}" if code >= 0 else f"signal {signal_name(-code)}"
        last = last_words(self._stderr)
        self.close()
        error = WorkerError(
            f"the worker process died ({how})" + (f": {last}" if last else "")
        )
        # XLA dies of other signals: this one came from outside.
        error.is_kill = code == -signal.SIGKILL
        return error

    def kill(self) -> None:
        """Ends the process, from any thread; who waits for its answer gets an error."""
        if self._process.poll() is None:
            self._process.kill()

    def close(self) -> None:
        """Ends the process; any number of calls."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    @property
    def is_alive(self) -> bool:
        """Whether the process can take a request."""
        return self._process.poll() is None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_error(kind: str, message: str) -> HloEnvError:
    """An exception of `hloenv.errors` by its name."""
    cls = getattr(errors, kind, HloEnvError)
    if not (isinstance(cls, type) and issubclass(cls, HloEnvError)):
        cls = HloEnvError
    return cls(message)


# One process waits for modules that have to be tried out, since starting one takes
# a second.
_lock = threading.Lock()
_shared: tuple[int, Child] | None = None


def try_compile(
    proto: bytes, how: dict[str, Any], *, timeout_s: float | None = None
) -> None:
    """Compiles a module in a child process and throws the result away.

    Args:
        proto: the module.
        how: its place, what has been decided, and the finish.
        timeout_s: how long the child may take, in seconds.

    Raises:
        CompileError: XLA refuses the module, or dies of it.
        MeasureTimeout: it took longer than `timeout_s`.
    """
    global _shared
    with _lock:
        # A process that was forked off does not share its parent's child.
        if _shared is None or _shared[0] != os.getpid() or not _shared[1].is_alive:
            _shared = os.getpid(), Child()
            atexit.register(_shared[1].close)
        try:
            _shared[1].request({"do": "compile", **how}, proto, timeout_s=timeout_s)
        except WorkerError as error:
            raise CompileError(
                "XLA cannot take this module, and ended the process in which it was "
                f"tried: {error}; compile with finish='legalize', and decide fusions "
                "after layout assignment (run_until('fusion')), so that XLA's "
                "pipeline makes the module legal"
            ) from None
