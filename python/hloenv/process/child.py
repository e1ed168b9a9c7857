# SPDX-License-Identifier: Apache-2.0
"""Child processes that compile and run modules, to isolate crashes of XLA.

The parent exchanges frames with `hloenv.measurement.worker` over its stdin and stdout:
a JSON header and any number of binary blobs. Only `hloenv.isolated` pickles into blobs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from .. import errors
from ..errors import (
    ArgumentError,
    CompileError,
    HloEnvError,
    InvalidModuleError,
    MeasureTimeout,
    WorkerError,
)
from .frames import is_readable_within, read_frame, write_frame

_START_TIMEOUT_S = 120.0


def signal_name(number: int) -> str:
    """A signal's name, such as SIGABRT; its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def last_words(stderr: IO[bytes]) -> str:
    """XLA's last message in a file of stderr: its fatal line, or else the last lines.

    The file's position does not change.
    """
    size = os.fstat(stderr.fileno()).st_size
    start = max(0, size - 65536)
    text = os.pread(stderr.fileno(), size - start, start).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if line[0] == "F" and "] " in line]
    chosen = fatal[-1].split("] ", 1)[1] if fatal else "; ".join(lines[-2:])
    return chosen[-1000:]


# XLA and its libraries alone take half of this; a process that cannot start its threads
# hangs.
MIN_MEMORY_BYTES = 256 << 20


def check_memory(max_memory_bytes: int | None) -> None:
    """Rejects limits that leave a process too little memory.

    Raises:
        ArgumentError: less than `MIN_MEMORY_BYTES`.
    """
    if max_memory_bytes is not None and max_memory_bytes < MIN_MEMORY_BYTES:
        raise ArgumentError(
            f"a memory limit of {max_memory_bytes} bytes is too small for XLA and its "
            f"libraries; allow at least {MIN_MEMORY_BYTES >> 20} MiB"
        )


def limit_memory(max_memory_bytes: int) -> None:
    """Limits the memory that this process may allocate, permanently.

    A smaller limit, inherited from the parent, is kept.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = max_memory_bytes
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


# The module that a child runs: its `main` answers requests.
WORKER = "hloenv.measurement.worker"

# Starts Python without the current folder, or a script's folder, on its path.
PYTHON = (sys.executable, "-P")
# The variable that does the same, for the processes of a process too.
_SAFE_PATH = "PYTHONSAFEPATH"


_safe_lock = threading.Lock()
_num_safe = 0
_before_safe: str | None = None


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """As `PYTHON`, for processes that a library starts in this block, and theirs.

    Blocks of several threads may overlap.
    """
    global _num_safe, _before_safe
    with _safe_lock:
        if not _num_safe:
            _before_safe = os.environ.get(_SAFE_PATH)
        _num_safe += 1
        os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        with _safe_lock:
            _num_safe -= 1
            if not _num_safe and _before_safe is None:
                os.environ.pop(_SAFE_PATH, None)
            elif not _num_safe and _before_safe is not None:
                os.environ[_SAFE_PATH] = _before_safe


def child_environment() -> dict[str, str]:
    """Variables for a child, and its own, that imports what this process can import.

    The current folder is excluded, as it may hold files such as json.py; if hloenv
    itself is there, the folder comes last, so that it shadows nothing.
    """
    folders, here = _import_folders()
    own = str(Path(__file__).parents[2])
    if here and os.path.realpath(own) == here:
        folders.append(own)
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), _SAFE_PATH: "1"}


def _import_folders() -> tuple[list[str], str]:
    """`sys.path` without the current folder; and that folder, "" if not on the path.

    All paths are absolute.
    """
    try:
        here = os.path.realpath(Path.cwd())
    except FileNotFoundError:  # it has been removed
        here = ""
    folders: list[str] = []
    has_here = False
    for entry in sys.path:
        if not isinstance(entry, str) or os.pathsep in entry:
            continue
        if here and os.path.realpath(entry or here) == here:
            has_here = True
        elif entry and (here or Path(entry).is_absolute()):
            folders.append(str(Path(entry).absolute()))
    return folders, here if has_here else ""


class Child:
    """One worker process. Not thread-safe.

    Args:
        max_memory_bytes: memory that the process may allocate; None for no limit.
        cores: the cores that it may use; None for all.
        with_current_folder: whether the process also imports from the current folder,
            if this process does, after all other folders: for the caller's functions.

    Raises:
        ArgumentError: as `check_memory`.
    """

    def __init__(
        self,
        *,
        max_memory_bytes: int | None = None,
        cores: Sequence[int] | None = None,
        with_current_folder: bool = False,
    ):
        """Starts the process; the first request waits until it is ready."""
        check_memory(max_memory_bytes)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as self)
        # Before any import, as threads inherit the affinity of their parent thread.
        pin = "" if cores is None else f"os.sched_setaffinity(0, {sorted(cores)}); "
        # After the imports of Python itself.
        _, here = _import_folders()
        path = f"sys.path.append({here!r}); " if with_current_folder and here else ""
        limit = [] if max_memory_bytes is None else [str(max_memory_bytes)]
        self._process = subprocess.Popen(
            [
                *(*PYTHON, "-c"),
                f"import os, sys; {pin}from {WORKER} import main; {path}main()",
                *limit,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            # The child imports this same package, wherever it is installed.
            env=child_environment(),
            # The parent handles Ctrl-C and ends the child.
            start_new_session=True,
        )
        self._is_up = False
        self._parent = os.getpid()

    def request(
        self, header: dict[str, Any], *blobs: bytes, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Sends one request and waits for its answer.

        Raises:
            MeasureTimeout: no answer in time; the process was ended.
            WorkerError: the process crashed; the message holds XLA's last log lines.
            HloEnvError: the exception of the request in the child, by its class.
        """
        try:
            if not self._is_up:
                self._receive(_START_TIMEOUT_S)
                self._is_up = True
            assert self._process.stdin is not None
            try:
                write_frame(self._process.stdin, header, *blobs)
            except (BrokenPipeError, OSError):
                raise self._crash_error() from None
            answer, results = self._receive(timeout_s)
        except BaseException:
            # Such as Ctrl-C: half a frame may be left in a pipe.
            self.close()
            raise
        if "error" in answer:
            raise make_error(answer["error"], answer["message"])
        return answer, results

    def _receive(self, timeout_s: float | None) -> tuple[dict[str, Any], list[bytes]]:
        assert self._process.stdout is not None
        if not is_readable_within(self._process.stdout, timeout_s):
            raise MeasureTimeout(
                f"no answer from the worker process after {timeout_s:.3g} s; "
                "raise timeout_s or use a smaller module"
            )
        try:
            return read_frame(self._process.stdout)
        except EOFError:
            raise self._crash_error() from None

    def _crash_error(self) -> WorkerError:
        code = self._process.wait()
        how = f"exit code {code}" if code >= 0 else f"signal {signal_name(-code)}"
        last = last_words(self._stderr)
        self.close()
        error = WorkerError(
            f"the worker process crashed ({how})" + (f": {last}" if last else "")
        )
        # A crash of XLA raises other signals: SIGKILL was sent from outside.
        error.is_kill = code == -signal.SIGKILL
        return error

    def kill(self) -> None:
        """Ends the process, from any thread; a pending request raises an error."""
        if self.is_alive:
            self._process.kill()

    def close(self) -> None:
        """Ends the process; may be called repeatedly.

        In a forked process, this does not end the child of the parent.
        """
        self.kill()
        if self._is_ours():
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    @property
    def is_alive(self) -> bool:
        """Whether the process can take a request, from this process."""
        return self._is_ours() and self._process.poll() is None

    def _is_ours(self) -> bool:
        return os.getpid() == self._parent

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_error(kind: str, message: str) -> HloEnvError:
    """Makes an exception of `hloenv.errors` by its name."""
    cls = getattr(errors, kind, HloEnvError)
    if not (isinstance(cls, type) and issubclass(cls, HloEnvError)):
        cls = HloEnvError
    return cls(message)


class _Standby:
    """One long-lived process for trial compiles and reads, as starting takes 1 s."""

    def __init__(
        self, max_memory_bytes: int | None = None, idle_s: float | None = None
    ) -> None:
        """Takes limits.

        Args:
            max_memory_bytes: of the process.
            idle_s: seconds without requests after which it ends: it takes memory, and
                programs that wait for all their children wait for it too.
        """
        self._max_memory_bytes = max_memory_bytes
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._started: Child | None = None
        self._timer: threading.Timer | None = None
        self.num_requests = 0

    def forget_threads(self) -> None:
        """Replaces the lock after a fork."""
        self._lock = threading.Lock()

    def request(
        self, header: dict[str, Any], *blobs: bytes, timeout_s: float | None
    ) -> None:
        """As `Child.request`, from any thread; starts the process if necessary."""
        with self._lock:
            if self._started is None or not self._started.is_alive:
                self._started = Child(max_memory_bytes=self._max_memory_bytes)
                atexit.register(self._started.close)
            self.num_requests += 1
            try:
                self._started.request(header, *blobs, timeout_s=timeout_s)
            finally:
                self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._idle_s is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(
            self._idle_s, self._close_if_idle, [self.num_requests]
        )
        self._timer.daemon = True
        self._timer.start()

    def _close_if_idle(self, num_requests: int) -> None:
        with self._lock:
            if self._started is not None and self.num_requests == num_requests:
                atexit.unregister(self._started.close)
                self._started.close()
                self._started = None


_compiling = _Standby(idle_s=10)
# Enough for any module, but not for input that declares a huge size.
_reading = _Standby(max_memory_bytes=8 << 30)
_READ_TIMEOUT_S = 300.0


def _forget_threads() -> None:
    # A thread of the parent may hold the lock; it does not exist in this process.
    for standby in (_compiling, _reading):
        standby.forget_threads()


os.register_at_fork(after_in_child=_forget_threads)


def try_compile(
    module: bytes, finish: str, *, engine: str = "wheel", timeout_s: float | None = None
) -> None:
    """Compiles a module in a child process and discards the result.

    Args:
        module: as `HloModule.to_bytes` gives it.
        finish: as for `hloenv.compile`.
        engine: as for `hloenv.compile`.
        timeout_s: time limit of the child, in seconds.

    Raises:
        CompileError: XLA rejects the module, or crashes on it.
        MeasureTimeout: it took longer than `timeout_s`.
    """
    try:
        request = {"do": "compile", "finish": finish, "engine": engine}
        _compiling.request(request, module, timeout_s=timeout_s)
    except WorkerError as error:
        advice = (
            "; compile with finish='legalize', and decide fusions after layout "
            "assignment (run_until('fusion')), so that XLA's pipeline legalizes the "
            "module"
        )
        raise CompileError(
            f"XLA crashed when a child process compiled this module: {error}"
            f"{advice if finish == 'none' else ''}"
        ) from None


def try_load(content: str | bytes, *, verify: bool, doubt: str) -> None:
    """Reads a module in a child process.

    Args:
        content: HLO text or a serialized proto.
        verify: whether to run XLA's verifier and the usual first operations on it.
        doubt: why it is not read in this process directly.

    Raises:
        ParseError: XLA cannot parse it.
        InvalidModuleError: the verifier rejects it, or the process crashed.
        MeasureTimeout: the process did not finish.
    """
    header = {"do": "read", "is_text": isinstance(content, str), "verify": verify}
    # A str may hold unpaired surrogates, which neither UTF-8 nor HLO allows.
    data = content if isinstance(content, bytes) else content.encode(errors="replace")
    try:
        _reading.request(header, data, timeout_s=_READ_TIMEOUT_S)
    except WorkerError as error:
        raise InvalidModuleError(
            f"XLA crashed when a child process read this module ({error}); "
            f"hloenv's structure check reports: {doubt}"
        ) from None


def num_read() -> int:
    """Number of modules that a child has read first for this process."""
    return _reading.num_requests
