# SPDX-License-Identifier: Apache-2.0
"""Which cores a process works on, and whose turn it is to time there.

Locks are files that the kernel unlocks when their process ends, so that whatever dies
leaves nothing locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from .errors import ArgumentError


class CoreLease:
    """Cores that no other process of hloenv takes, as long as there are enough.

    Attributes:
        cores: their numbers.
    """

    def __init__(self, threads: int):
        """Takes `threads` cores, those with the highest numbers that are free.

        Raises:
            ArgumentError: this process may not use so many cores.
        """
        usable = sorted(os.sched_getaffinity(0), reverse=True)
        if not 1 <= threads <= len(usable):
            raise ArgumentError(
                f"threads is {threads}; this process may use 1 to {len(usable)} cores"
            )
        self._files: list[IO[bytes]] = []
        free: list[int] = []
        for core in usable:
            file = _lock_file(f"core-{core}.lease")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self._files.append(file)
            free.append(core)
            if len(free) == threads:
                break
        taken = [core for core in usable if core not in free]
        self.cores = tuple(sorted((free + taken)[:threads]))

    def release(self) -> None:
        """Gives the cores back; any number of calls."""
        for file in self._files:
            file.close()
        self._files = []


@contextlib.contextmanager
def turn_to_time(cores: Sequence[int]) -> Iterator[None]:
    """Waits until no other process of hloenv times on any of these cores."""
    with contextlib.ExitStack() as stack:
        # In order, so that two processes never wait for each other.
        for core in sorted(cores):
            file = stack.enter_context(_lock_file(f"core-{core}.timing"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def as_if_on(threads: int) -> Iterator[None]:
    """XLA's passes, run by this thread, prepare for so many threads.

    XLA splits work between the cores that the thread which compiles may use.
    """
    before = os.sched_getaffinity(0)
    if len(before) > threads:
        os.sched_setaffinity(0, sorted(before)[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lock_file(name: str) -> IO[bytes]:
    folder = Path(tempfile.gettempdir()) / f"hloenv-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return (folder / name).open("wb")
