# SPDX-License-Identifier: Apache-2.0
"""The SQLite database of a store: schema, connections, queries, and error messages."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError
from .store_format import KEY_FIELDS, Row, check_rows, checksum, read_columns

# Version 1 had no checksums.
SCHEMA_VERSION = 2
_APPLICATION_ID = 0x686C6F65  # "hloe"
_MEMORY = ":memory:"
# How long to wait for the lock. Other processes hold it for milliseconds, except to
# prune or to end an import.
BUSY_S = 60.0
_CACHE_KIB = 16 * 1024
_MAX_IDLE_WAL_BYTES = 16 * 2**20

KEY = ", ".join(KEY_FIELDS)
PAYLOAD = "created, failed, body, checksum"
ALL = f"{KEY}, {PAYLOAD}"
_PLACES = ", ".join("?" * (len(KEY_FIELDS) + 4))
_COLUMNS = (
    ", ".join(f"{name} TEXT NOT NULL" for name in KEY_FIELDS)
    + ", created REAL NOT NULL, failed INTEGER NOT NULL, body TEXT NOT NULL"
    + ", checksum BLOB NOT NULL"
    + f", PRIMARY KEY ({KEY})"
)
_TABLE = f"CREATE TABLE records ({_COLUMNS}) WITHOUT ROWID"
# Serves `info` and most of `prune` without reading bodies.
_INDEX = "CREATE INDEX records_by_origin ON records (kind, machine, failed, created)"
_SCHEMA = (
    _TABLE,
    _INDEX,
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# From version 1. `checksum_of` is `records.checksum`.
_ADD_CHECKSUMS = (
    "ALTER TABLE records RENAME TO old",
    "DROP INDEX records_by_origin",
    _TABLE,
    _INDEX,
    f"INSERT INTO records ({ALL}) SELECT {KEY}, created, failed, body, "
    f"checksum_of({KEY}, created, failed, body) FROM old",
    "DROP TABLE old",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_IS_KEY = " AND ".join(f"{name} = ?" for name in KEY_FIELDS)
GET = f"SELECT {PAYLOAD} FROM records WHERE {_IS_KEY}"
PUT = f"INSERT OR REPLACE INTO records ({ALL}) VALUES ({_PLACES})"
# The result of `where` without conditions.
EVERY = "true"
_UNLESS_NEWER = (
    "ON CONFLICT DO UPDATE SET created = excluded.created, failed = excluded.failed, "
    "body = excluded.body, checksum = excluded.checksum WHERE excluded.created >"
)


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
                raise StoreError(_explain(error, self.path)) from error
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
            _prepare(connection, path)
        except BaseException as error:
            connection.close()
            # SQLite's timeout does not apply to the change to WAL.
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode not in ("wal", "memory"):
        raise StoreError(
            f"SQLite supports no write-ahead log for {path} (mode {mode}); choose a "
            "file on a local disk with HLOENV_STORE"
        )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_IDLE_WAL_BYTES}")
    if version < SCHEMA_VERSION:
        connection.create_function(
            "checksum_of", -1, lambda *columns: checksum(columns), deterministic=True
        )
        with transaction(connection):
            # Another process may have updated the schema.
            version = _version(connection, path)
            for statement in _UPDATES.get(version, ()):
                connection.execute(statement)


_UPDATES = {0: _SCHEMA, 1: _ADD_CHECKSUMS}


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version; 0 without tables. Raises StoreError if it is not a store."""
    # One statement, for a consistent snapshot.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if (application, version, tables) == (0, 0, 0):
        return 0
    if application != _APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite file of another program; choose another one with "
            "HLOENV_STORE"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer hloenv (schema {version}; this one "
            f"supports {SCHEMA_VERSION}): update hloenv, or choose another file with "
            "HLOENV_STORE"
        )
    if version < 1:
        raise StoreError(
            f"{path} is damaged: it has schema {version}, which does not exist"
        )
    return int(version)


@functools.cache
def lookup(count: int) -> str:
    """Query for `count` keys: positions of those found, and the rest of their rows."""
    key = ", ".join("?" * len(KEY_FIELDS))
    rows = ", ".join(f"({i}, {key})" for i in range(count))
    return (
        f"WITH wanted (position, {KEY}) AS (VALUES {rows}) "
        f"SELECT position, {PAYLOAD} FROM wanted CROSS JOIN records USING ({KEY})"
    )


def where(
    equal: dict[str, str | None],
    *,
    since: float | None = None,
    before: float | None = None,
    failed_only: bool = False,
) -> tuple[str, list[str | float]]:
    """A condition and its parameters; `EVERY` without conditions."""
    tests: dict[str, str | float | None] = {
        **{f"{name} = ?": value for name, value in equal.items()},
        "created >= ?": since,
        "created < ?": before,
    }
    chosen = {test: value for test, value in tests.items() if value is not None}
    conditions = [*chosen, *(["failed = 1"] if failed_only else [])]
    return " AND ".join(conditions) or EVERY, list(chosen.values())


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: str = "IMMEDIATE"
) -> Iterator[None]:
    """A transaction; IMMEDIATE waits for other writers, DEFERRED is for reading."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def merge(connection: sqlite3.Connection, rows: Iterable[Row]) -> tuple[int, int, int]:
    """Adds rows atomically; of equal keys, keeps the newest.

    Returns:
        Numbers of new, replaced and unchanged records.
    """
    # First into a temporary table, so that other processes can write meanwhile.
    connection.execute("DROP TABLE IF EXISTS temp.incoming")
    connection.execute(f"CREATE TEMP TABLE incoming ({_COLUMNS}) WITHOUT ROWID")
    try:
        with transaction(connection, "DEFERRED"):
            connection.executemany(
                f"INSERT INTO incoming ({ALL}) VALUES ({_PLACES}) "
                f"{_UNLESS_NEWER} incoming.created",
                (row.columns() for row in rows),
            )
        known = f"FROM incoming CROSS JOIN records USING ({KEY})"
        with transaction(connection):
            all_, both, newer = connection.execute(
                f"SELECT (SELECT count(*) FROM incoming), (SELECT count(*) {known}), "
                f"(SELECT count(*) {known} WHERE incoming.created > records.created)"
            ).fetchone()
            connection.execute(
                f"INSERT INTO records ({ALL}) SELECT {ALL} FROM incoming WHERE true "
                f"{_UNLESS_NEWER} records.created"
            )
    finally:
        connection.execute("DROP TABLE IF EXISTS temp.incoming")
    return all_ - both, newer, both - newer


def store_rows(path: Path) -> Iterator[Row]:
    """The rows of another store, checked."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    if not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        uri += "&immutable=1"  # a write-ahead log cannot be created, and is not needed
    try:
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        ) as connection:
            version = _version(connection, path)
            if version >= 1:
                yield from _checked_rows(connection, path, version)
    except sqlite3.Error as error:
        raise StoreError(_explain(error, path)) from error


def _checked_rows(
    connection: sqlite3.Connection, path: Path, version: int
) -> Iterator[Row]:
    if version == 1:
        connection.row_factory = sqlite3.Row
        columns = f"{KEY}, created, failed, body"
        fields = connection.execute(f"SELECT {columns} FROM records ORDER BY {KEY}")
        yield from check_rows(path, "row", map(dict, fields))
        return
    rows = connection.execute(f"SELECT {ALL} FROM records ORDER BY {KEY}")
    for number, columns in enumerate(rows, 1):
        try:
            row = read_columns(columns)
        except StoreError as error:
            raise StoreError(
                f"{path}, row {number} is damaged: {error}; nothing was imported "
                f"(`hloenv store repair --store {path}` removes damaged records)"
            ) from None
        yield row


def repair(connection: sqlite3.Connection) -> int:
    """Copies the rows with correct checksums to new tables, atomically.

    Returns:
        Number of dropped rows.
    """
    dropped = 0
    connection.execute("DROP TABLE IF EXISTS temp.incoming")
    connection.execute(f"CREATE TEMP TABLE incoming ({_COLUMNS}) WITHOUT ROWID")
    put = f"INSERT OR REPLACE INTO incoming ({ALL}) VALUES ({_PLACES})"
    try:
        with transaction(connection):
            for columns in connection.execute(f"SELECT {ALL} FROM records NOT INDEXED"):
                try:
                    row = read_columns(columns)
                except StoreError:
                    dropped += 1
                else:
                    connection.execute(put, row.columns())
            connection.execute("DROP TABLE records")
            connection.execute(_TABLE)
            connection.execute(_INDEX)
            connection.execute(
                f"INSERT INTO records ({ALL}) SELECT {ALL} FROM incoming"
            )
    finally:
        connection.execute("DROP TABLE IF EXISTS temp.incoming")
    return dropped


def _is_busy(error: BaseException) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _explain(error: sqlite3.Error, path: Path) -> str:
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
            "space"
        )
    if code == sqlite3.SQLITE_IOERR:
        return (
            f"{path} could not be read or written ({error}); no record of this call "
            "was saved; check the disk"
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
