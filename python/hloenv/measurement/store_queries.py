# SPDX-License-Identifier: Apache-2.0
"""What a store asks of its SQLite database."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError
from .store_format import KEY_FIELDS, Row, check_rows, read_columns
from .store_schema import (
    ALL,
    COLUMNS,
    INDEX,
    KEY,
    PAYLOAD,
    PLACES,
    TABLE,
    schema_version,
    transaction,
)
from .store_sqlite import BUSY_S, explain

_IS_KEY = " AND ".join(f"{name} = ?" for name in KEY_FIELDS)
GET = f"SELECT {PAYLOAD} FROM records WHERE {_IS_KEY}"
PUT = f"INSERT OR REPLACE INTO records ({ALL}) VALUES ({PLACES})"
# The result of `where` without conditions.
EVERY = "true"
_UNLESS_NEWER = (
    "ON CONFLICT DO UPDATE SET created = excluded.created, failed = excluded.failed, "
    "body = excluded.body, checksum = excluded.checksum WHERE excluded.created >"
)


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


def merge(connection: sqlite3.Connection, rows: Iterable[Row]) -> tuple[int, int, int]:
    """Adds rows atomically; of equal keys, keeps the newest.

    Returns:
        Numbers of new, replaced and unchanged records.
    """
    # First into a temporary table, so that other processes can write meanwhile.
    with _incoming(connection):
        with transaction(connection, "DEFERRED"):
            connection.executemany(
                f"INSERT INTO incoming ({ALL}) VALUES ({PLACES}) "
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
    return all_ - both, newer, both - newer


def repair(connection: sqlite3.Connection) -> int:
    """Copies the rows with correct checksums to new tables, atomically.

    Returns:
        Number of dropped rows.
    """
    dropped = 0
    put = f"INSERT OR REPLACE INTO incoming ({ALL}) VALUES ({PLACES})"
    with _incoming(connection), transaction(connection):
        for columns in connection.execute(f"SELECT {ALL} FROM records NOT INDEXED"):
            try:
                row = read_columns(columns)
            except StoreError:
                dropped += 1
            else:
                connection.execute(put, row.columns())
        connection.execute("DROP TABLE records")
        connection.execute(TABLE)
        connection.execute(INDEX)
        connection.execute(f"INSERT INTO records ({ALL}) SELECT {ALL} FROM incoming")
    return dropped


@contextmanager
def _incoming(connection: sqlite3.Connection) -> Iterator[None]:
    """A temporary table `incoming` with the columns of `records`."""
    connection.execute("DROP TABLE IF EXISTS temp.incoming")
    connection.execute(f"CREATE TEMP TABLE incoming ({COLUMNS}) WITHOUT ROWID")
    try:
        yield
    finally:
        connection.execute("DROP TABLE IF EXISTS temp.incoming")


def store_rows(path: Path) -> Iterator[Row]:
    """The rows of another store, checked."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    if not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        uri += "&immutable=1"  # a write-ahead log cannot be created, and is not needed
    try:
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        ) as connection:
            version = schema_version(connection, path)
            if version >= 1:
                yield from _checked_rows(connection, path, version)
    except sqlite3.Error as error:
        raise StoreError(explain(error, path)) from error


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
