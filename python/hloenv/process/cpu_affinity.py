# SPDX-License-Identifier: Apache-2.0
"""CPU cores of a process, and exclusive access to them for timings.

Locks are files that the kernel unlocks when their process ends, also after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from ..errors import ArgumentError, LockError

_PRIVATE = 0o700
_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def check_threads(threads: int) -> None:
    """Checks that this process may use so many cores.

    Raises:
        ArgumentError: it may not.
    """
    usable = len(os.sched_getaffinity(0))
    if not 1 <= threads <= usable:
        raise ArgumentError(
            f"threads must be between 1 and {usable}, the cores of this process, got "
            f"{threads}"
        )


class CoreLease:
    """Cores that no other process of hloenv leases, if there are enough.

    Attributes:
        cores: their numbers.
    """

    def __init__(self, threads: int):
        """Leases `threads` cores: the free ones with the highest numbers.

        Raises:
            ArgumentError: this process may not use so many cores.
            LockError: there is no usable folder for lock files.
        """
        check_threads(threads)
        usable = sorted(os.sched_getaffinity(0), reverse=True)
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
        """Releases the cores; may be called repeatedly."""
        for file in self._files:
            file.close()
        self._files = []


@contextlib.contextmanager
def turn_to_time(cores: Sequence[int]) -> Iterator[None]:
    """Waits until no other process of hloenv times modules on any of these cores."""
    with contextlib.ExitStack() as stack:
        # Locked in ascending order, to avoid deadlocks.
        for core in sorted(cores):
            file = stack.enter_context(_lock_file(f"core-{core}.timing"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def as_if_on(threads: int) -> Iterator[None]:
    """Lets XLA's passes in this thread parallelize for `threads` threads.

    XLA partitions work by the number of cores that the compiling thread may use.
    """
    before = os.sched_getaffinity(0)
    if len(before) > threads:
        os.sched_setaffinity(0, sorted(before)[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lock_file(name: str) -> IO[bytes]:
    """Opens a lock file, created if absent; its content does not change.

    Only this user can write to the folder: others could lock the files, or create links
    there.

    Raises:
        LockError: the folder does not exist and cannot be created.
    """
    path = Path(tempfile.gettempdir()) / f"hloenv-{os.getuid()}"
    folder = _private_folder(path)
    try:
        descriptor = os.open(name, _FILE, 0o600, dir_fd=folder)
    except OSError as error:
        raise LockError(
            f"{path / name} cannot be opened as a lock file ({error.strerror}): remove "
            "it, or choose another folder for temporary files with TMPDIR"
        ) from None
    finally:
        os.close(folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
        os.close(descriptor)
        raise LockError(
            f"{path / name} is not a regular file of this user, so it cannot be a lock "
            "file: remove it"
        )
    return os.fdopen(descriptor, "r+b", buffering=0)


def _private_folder(path: Path) -> int:
    """A descriptor of a folder with mode 0700 that belongs to this user."""
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_PRIVATE)
        folder = os.open(
            path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError as error:
        raise LockError(
            f"{path} cannot be used as the folder of lock files ({error.strerror}): "
            "remove it, or choose another folder for temporary files with TMPDIR"
        ) from None
    found = os.fstat(folder)
    if found.st_uid != os.getuid():
        os.close(folder)
        raise LockError(
            f"{path}, the folder of lock files, belongs to another user (uid "
            f"{found.st_uid}): have it removed, or choose another folder for temporary "
            "files with TMPDIR"
        )
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        os.fchmod(folder, _PRIVATE)
    return folder
