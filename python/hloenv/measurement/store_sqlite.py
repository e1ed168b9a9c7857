# SPDX-License-Identifier: Apache-2.0
"""The connection of a process to a store's SQLite database, and its errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError
from .store_schema import prepare

_MEMORY = ":memory:"
# How long to wait for the lock. Other processes hold it for milliseconds, except to
# prune or to end an import.
BUSY_S = 60.0


class Database:
    """The connection of a process to a store's file; any thread may use it.

    Args:
        path: created with its folders if absent; ":memory:" for no file.

    Raises:
        StoreError: the file is not a store, is damaged, cannot be opened, or was
            written by a newer hloenv.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_memory = str(path) == _MEMORY
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        if not self._is_memory:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"the folder of {path} cannot be created ({error.strerror}); "
                    "choose another file with HLOENV_STORE"
                ) from error
        with _REGISTRY_LOCK:
            _REGISTRY.add(self)
        with self.use():
            pass

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; SQLite's errors become StoreError."""
        with self._lock:
            try:
                if self._is_closed:
                    raise StoreError(f"the store {self.path} is closed; open it again")
                if self._connection is None:
                    self._connection = _connect(self.path)
                elif self._connection.in_transaction:
                    # Left open by an interrupt; later changes would not be committed.
                    self._connection.rollback()
                yield self._connection
            except sqlite3.Error as error:
                raise StoreError(explain(error, self.path)) from error
            except MemoryError as error:
                raise StoreError(
                    f"{self.path} is damaged, or memory is short: a record needs more "
                    "memory than is available"
                ) from error

    def size_bytes(self) -> int:
        """Size of the file and its write-ahead log.

        Does not open the file: closing it would release SQLite's locks on it.
        """
        size = 0
        for path in () if self._is_memory else (self.path, Path(f"{self.path}-wal")):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def close(self) -> None:
        """Closes the connection; any number of calls."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def before_fork(self) -> None:
        """Waits for the other threads, and disconnects."""
        # SQLite connections must not be used or closed after a fork. Both sides connect
        # again; databases in memory are copied by the fork.
        self._lock.acquire()
        if not self._is_memory:
            self._disconnect()

    def after_fork(self) -> None:
        """Releases the lock, in both processes."""
        self._lock.release()


_REGISTRY: weakref.WeakSet[Database] = weakref.WeakSet()
_REGISTRY_LOCK = threading.RLock()
_FORKING: list[Database] = []


def _before_fork() -> None:
    _REGISTRY_LOCK.acquire()
    for database in list(_REGISTRY):
        database.before_fork()
        _FORKING.append(database)


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop().after_fork()
    _REGISTRY_LOCK.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
)


def _connect(path: Path) -> sqlite3.Connection:
    """A connection to a store, which is created if absent."""
    deadline = time.monotonic() + BUSY_S
    while True:
        connection = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            prepare(connection, path)
        except BaseException as error:
            connection.close()
            # SQLite's timeout does not apply to the change to WAL.
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return connection


def _is_busy(error: BaseException) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def explain(error: sqlite3.Error, path: Path) -> str:
    """The cause, and what to do."""
    code = _code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return (
            f"{path} is not an SQLite file, so it is not a store; move it, or choose "
            "another one with HLOENV_STORE"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return (
            f"{path} is damaged ({error}); move it together with {path.name}-wal; "
            "`sqlite3 FILE .recover` may save some records, the rest is measured again"
        )
    if code == sqlite3.SQLITE_FULL:
        return (
            f"the disk is full: no record of this call was saved in {path}; free some "
            "space, or choose a file on another disk with HLOENV_STORE"
        )
    if code == sqlite3.SQLITE_IOERR:
        return (
            f"{path} could not be read or written ({error}); no record of this call "
            "was saved; check the disk, or choose a file on another one with "
            "HLOENV_STORE"
        )
    if code in (
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH),
    ):
        return (
            f"{path} cannot be opened for writing ({error}); choose a file in a folder "
            "that you can write to with HLOENV_STORE"
        )
    if _is_busy(error):
        return (
            f"another process has locked {path} for more than {BUSY_S:.0f} s; wait for "
            "it, or end it"
        )
    return f"SQLite failed on {path}: {error} ({type(error).__name__})"
