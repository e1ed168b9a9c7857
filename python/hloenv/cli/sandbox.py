# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a child process, so that a crash of XLA is an exit code.

The process forks before XLA is initialized, which costs milliseconds. The child runs
the command; the parent waits, forwards signals, and reports how the child ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from ..process.child import last_words, limit_memory, signal_name
from ..process.parent import end_with
from .numbers import above_zero, size_bytes
from .output import print_error, printable

# Time limit for reading a file.
READING_LIMIT_S = 120
_EXIT_FAILURE = 1
# How long a command may take to end.
_GRACE_S = 5.0
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SENT_BY_KERNEL = 0x80  # si_code of what a terminal sends to all of its processes

_is_isolated = False


def add_isolation(parser: argparse.ArgumentParser) -> None:
    """Adds --no-isolate, --time-limit and --memory-limit."""
    parser.add_argument(
        "--no-isolate",
        action="store_true",
        help="do not run in a child process (which reports a crash of XLA as an error "
        "message)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=above_zero,
        help="end the command after so many seconds",
    )
    parser.add_argument(
        "--memory-limit",
        metavar="BYTES",
        type=size_bytes,
        help="memory that the command may allocate, as 4G or 500M",
    )


def isolated(
    command: Callable[[], int],
    *,
    time_limit_s: float | None = None,
    memory_limit: int | None = None,
    script: str | None = None,
    files: Sequence[str] = (),
) -> int:
    """Runs `command` in a child of this process.

    In the child, this returns what `command` returned, and the program goes on.

    Args:
        command: returns an exit code.
        time_limit_s: time limit of the child.
        memory_limit: bytes that the child may allocate.
        script: what else than XLA may crash; what it writes to stderr is then shown
            at once.
        files: Python files of the user that the command imports.

    Returns:
        The exit code; 1 if the child crashed, after one line on stderr.
    """
    global _is_isolated
    heard = tempfile.TemporaryFile()  # noqa: SIM115 (both processes use it)
    watched = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    with warnings.catch_warnings():
        # fork warns about the threads that numpy has started.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        end_with(parent)
        _is_isolated = True
        if script is None:
            _listen(heard)
        if memory_limit is not None:
            limit_memory(memory_limit)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return command()
    try:
        status = _wait(child, watched, time_limit_s)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with heard:
        if status is None:
            return _fail(f"the command reached its limit of {time_limit_s:g} s")
        return _exit_code(os.waitstatus_to_exitcode(status), heard, script, files)


def _listen(heard: IO[bytes]) -> None:
    """Redirects XLA's stderr to a file, and leaves Python's."""
    stream = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    sys.stderr = stream
    os.dup2(heard.fileno(), 2)


def _wait(
    child: int, watched: set[signal.Signals], time_limit_s: float | None
) -> int | None:
    """The child's status; None if it reached the time limit."""
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return status
        if deadline is None:
            received = signal.sigwaitinfo(watched)
        else:
            left = max(0.0, deadline - time.monotonic())
            found = signal.sigtimedwait(watched, left)
            if found is None:
                _end(child)
                return None
            received = found
        number = received.si_signo
        if number in _PASSED_ON and received.si_code != _SENT_BY_KERNEL:
            os.kill(child, number)


def _end(child: int) -> None:
    """Ends the child, which may first remove its temporary files."""
    os.kill(child, signal.SIGTERM)
    signal.sigtimedwait({signal.SIGCHLD}, _GRACE_S)
    os.kill(child, signal.SIGKILL)  # until waitpid, its number is not another's
    os.waitpid(child, 0)


def _exit_code(
    code: int, heard: IO[bytes], script: str | None, files: Sequence[str]
) -> int:
    if code >= 0:
        heard.seek(0)
        os.write(2, printable(heard.read().decode(errors="replace")).encode())
        return code
    if -code in _PASSED_ON:
        return 128 - code
    if -code == signal.SIGALRM and script is None:
        return _fail(
            f"XLA did not finish reading the module in {READING_LIMIT_S} s, and was "
            "ended; --no-isolate removes this limit"
        )
    said = last_words(heard)
    if -code == signal.SIGKILL and not said:
        said = "the process was killed, possibly for lack of memory"
    elif script is not None:
        said = "nothing is tuned; --verbose shows where, --run-seconds ends it before"
    crash = f"crashed ({signal_name(-code)})"
    if script is not None:
        crash = f"{script} {crash}"
    elif files:
        crash = f"the command {crash}, in XLA or in what {', '.join(files)} calls"
    else:
        crash = f"XLA {crash}"
    return _fail(crash + (f": {said}" * bool(said)))


def _fail(message: str) -> int:
    print_error("error", message)
    return _EXIT_FAILURE


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Ends an isolated process in which XLA reads a module for too long.

    XLA cannot be interrupted: only a signal without a handler ends it.
    """
    if not _is_isolated:
        yield
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(READING_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
