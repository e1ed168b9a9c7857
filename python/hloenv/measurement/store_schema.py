# SPDX-License-Identifier: Apache-2.0
"""The tables of a store's SQLite database, and their versions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError
from .store_format import KEY_FIELDS, checksum

# Version 1 had no checksums.
SCHEMA_VERSION = 2
_APPLICATION_ID = 0x686C6F65  # "hloe"
_CACHE_KIB = 16 * 1024
_MAX_IDLE_WAL_BYTES = 16 * 2**20

KEY = ", ".join(KEY_FIELDS)
PAYLOAD = "created, failed, body, checksum"
ALL = f"{KEY}, {PAYLOAD}"
PLACES = ", ".join("?" * (len(KEY_FIELDS) + 4))
COLUMNS = (
    ", ".join(f"{name} TEXT NOT NULL" for name in KEY_FIELDS)
    + ", created REAL NOT NULL, failed INTEGER NOT NULL, body TEXT NOT NULL"
    + ", checksum BLOB NOT NULL"
    + f", PRIMARY KEY ({KEY})"
)
TABLE = f"CREATE TABLE records ({COLUMNS}) WITHOUT ROWID"
# Serves `info` and most of `prune` without reading bodies.
INDEX = "CREATE INDEX records_by_origin ON records (kind, machine, failed, created)"
_SCHEMA = (
    TABLE,
    INDEX,
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# From version 1. `checksum_of` is `records.checksum`.
_ADD_CHECKSUMS = (
    "ALTER TABLE records RENAME TO old",
    "DROP INDEX records_by_origin",
    TABLE,
    INDEX,
    f"INSERT INTO records ({ALL}) SELECT {KEY}, created, failed, body, "
    f"checksum_of({KEY}, created, failed, body) FROM old",
    "DROP TABLE old",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_UPDATES = {0: _SCHEMA, 1: _ADD_CHECKSUMS}


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Sets SQLite's options, and makes or updates the tables.

    Raises:
        StoreError: the file is not a store, or of a newer hloenv.
    """
    version = schema_version(connection, path)
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
            version = schema_version(connection, path)
            for statement in _UPDATES.get(version, ()):
                connection.execute(statement)


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
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
