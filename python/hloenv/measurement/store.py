# SPDX-License-Identifier: Apache-2.0
"""The store of results: a persistent cache in an SQLite file.

Any number of processes and threads may read and write the file concurrently. Once `put`
has returned, the record survives a crash of the process. A crash of the machine may
lose the latest records, but does not corrupt the file. (WAL with `synchronous = NORMAL`
syncs only at checkpoints. FULL would sync each record, which takes three times as long
on a fast disk and milliseconds on a slow one.)

Every record has a checksum of its key and value. Reading a record with a wrong checksum
is an error; `Store.repair` removes such records, so that they are measured again.

The file must be on a local disk: locks do not work reliably on network file systems.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import StoreError
from .store_format import (
    KEY_FIELDS,
    RecordKey,
    Row,
    decode,
    key_row,
    number_columns,
    read_columns,
    read_rows,
    write_rows,
)
from .store_queries import (
    EVERY,
    GET,
    PUT,
    lookup,
    merge,
    repair,
    store_rows,
    where,
)
from .store_schema import ALL, KEY, transaction
from .store_sqlite import Database

__all__ = [
    "Imported",
    "RecordKey",
    "Store",
    "StoreCount",
    "StoreInfo",
    "default_path",
]

_LOOKUP_KEYS = 300  # SQLite takes 32,766 parameters in a statement
_PAGE_ROWS = 200
_REPAIR = "`hloenv store repair` removes damaged records"


@dataclass(frozen=True)
class StoreCount:
    """Records of one kind from one machine.

    Attributes:
        kind: as in `RecordKey`.
        machine: as in `RecordKey`.
        records: number of records.
        failures: number of these with an "error" that is not None.
        oldest: time of the first record, in seconds since the epoch.
        newest: time of the last record.
    """

    kind: str
    machine: str
    records: int
    failures: int
    oldest: float
    newest: float


@dataclass(frozen=True)
class StoreInfo:
    """Contents of a store.

    Attributes:
        path: of the file; ":memory:" for none.
        schema_version: of the file's tables.
        size_bytes: of the file and of its write-ahead log.
        counts: by kind and machine, sorted.
    """

    path: str
    schema_version: int
    size_bytes: int
    counts: tuple[StoreCount, ...]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(count.records for count in self.counts)

    @property
    def failures(self) -> int:
        """Number of records with an error instead of a result."""
        return sum(count.failures for count in self.counts)

    @property
    def oldest(self) -> float | None:
        """Time of the first record, in seconds since the epoch, or None."""
        return min((count.oldest for count in self.counts), default=None)

    @property
    def newest(self) -> float | None:
        """Time of the last record, in seconds since the epoch, or None."""
        return max((count.newest for count in self.counts), default=None)


class Imported(NamedTuple):
    """Result of an import: numbers of records."""

    added: int
    replaced: int
    unchanged: int


def default_path() -> Path:
    """The default file: $HLOENV_STORE, or hloenv/store.sqlite in the cache folder.

    The cache folder is $XDG_CACHE_HOME, by default ~/.cache.
    """
    if chosen := os.environ.get("HLOENV_STORE"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = Path(cache) if cache else Path.home() / ".cache"
    return folder / "hloenv" / "store.sqlite"


class Store:
    """Records by key, in an SQLite file.

    Threads may share an object; each process opens the path itself. After a fork, both
    processes may use the object.

    Args:
        path: of the file, created with its folders if absent; by default
            `default_path()`. ":memory:" keeps the records in this process.

    Raises:
        StoreError: the file is not a store, is damaged, cannot be opened, or was
            written by a newer hloenv. Every method raises it if SQLite fails.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = default_path() if path is None else Path(path)
        self._database = Database(self.path)

    def get(self, key: RecordKey) -> dict[str, Any] | None:
        """The record's value, or None.

        Raises:
            StoreError: the record is damaged.
        """
        with self._database.use() as connection:
            row = connection.execute(GET, key_row(key)).fetchone()
        return None if row is None else self._value((*key_row(key), *row))

    def get_many(self, keys: Iterable[RecordKey]) -> list[dict[str, Any] | None]:
        """The value for each key, in order, or None.

        Raises:
            StoreError: one of the records is damaged.
        """
        keys = list(keys)
        values: list[dict[str, Any] | None] = [None] * len(keys)
        for start in range(0, len(keys), _LOOKUP_KEYS):
            some = keys[start : start + _LOOKUP_KEYS]
            parameters = [field for key in some for field in key_row(key)]
            with self._database.use() as connection:
                found = connection.execute(lookup(len(some)), parameters).fetchall()
            for i, *payload in found:
                values[start + i] = self._value((*key_row(some[i]), *payload))
        return values

    def put(
        self, key: RecordKey, value: dict[str, Any], *, created: float | None = None
    ) -> None:
        """Saves a record; replaces an existing one with the same key.

        Args:
            key: what the value depends on.
            value: JSON values, also NaN, infinities and integers of any size; tuples
                become lists.
            created: seconds since the epoch; by default now.
        """
        row = Row.of(key, value, time.time() if created is None else created)
        with self._database.use() as connection:
            connection.execute(PUT, row.columns())

    def put_many(
        self,
        items: Iterable[tuple[RecordKey, dict[str, Any]]],
        *,
        created: float | None = None,
    ) -> None:
        """Saves records, all or none of them; of equal keys the last wins."""
        created = time.time() if created is None else created
        rows = [Row.of(key, value, created).columns() for key, value in items]
        with self._database.use() as connection, transaction(connection):
            connection.executemany(PUT, rows)

    def records(
        self,
        kind: str | None = None,
        machine: str | None = None,
        *,
        fingerprint: str | None = None,
        since: float | None = None,
        failed_only: bool = False,
    ) -> Iterator[tuple[RecordKey, float, dict[str, Any]]]:
        """Keys, times and values, in the order of the keys.

        Reads in pages: may or may not include records that are saved meanwhile.

        Args:
            kind: of the key.
            machine: of the key.
            fingerprint: of the key.
            since: minimum time of the record, in seconds since the epoch.
            failed_only: only records with an error.

        Raises:
            StoreError: a record is damaged, or the file is.
        """
        equal = {"kind": kind, "machine": machine, "fingerprint": fingerprint}
        condition, parameters = where(equal, since=since, failed_only=failed_only)
        # With a fixed kind, SQLite finds the next page by the other columns alone.
        paged = KEY_FIELDS if kind is None else KEY_FIELDS[1:]
        next_page = f"({', '.join(paged)}) > ({', '.join('?' * len(paged))})"
        after: list[str] = []
        last: RecordKey | None = None
        while True:
            with self._database.use() as connection:
                rows = connection.execute(
                    f"SELECT {ALL} FROM records WHERE {condition}"
                    + f" AND {next_page}" * bool(after)
                    + f" ORDER BY {KEY} LIMIT {_PAGE_ROWS}",
                    [*parameters, *after],
                ).fetchall()
            for columns in rows:
                row = self._row(columns)
                # A damaged B-tree may contain a cycle.
                if last is not None and not last < row.key:
                    raise StoreError(
                        f"{self.path} is damaged: its records are out of order; "
                        f"{_REPAIR}"
                    )
                last = row.key
                yield row.key, row.created, self._value(columns)
            if len(rows) < _PAGE_ROWS:
                return
            after = list(rows[-1][len(KEY_FIELDS) - len(paged) : len(KEY_FIELDS)])

    def info(self) -> StoreInfo:
        """Counts by kind and machine, and the size of the file."""
        with self._database.use() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            rows = connection.execute(
                "SELECT kind, machine, count(*), sum(failed), min(created), "
                "max(created) FROM records GROUP BY kind, machine ORDER BY 1, 2"
            ).fetchall()
        counts = tuple(StoreCount(*row) for row in rows)
        size = self._database.size_bytes()
        return StoreInfo(str(self.path), version, size, counts)

    def export(self, path: str | os.PathLike[str]) -> int:
        """Writes all records to a file, which is created atomically.

        A .jsonl file has an object in each line: the fields of the key, `created` and
        `value`. A .parquet file has columns for the key, `created`, `body` (the value
        as JSON), and for each number at the top level of values. NaN and infinities
        are `{"$float": "nan"}` in JSON.

        Returns:
            The number of records.

        Raises:
            StoreError: unknown file type.
            OSError: the file cannot be written.
            ImportError: Parquet without pyarrow.
        """
        path = _known_file(path, ".parquet", ".jsonl")
        if path.exists() and self.path.exists() and path.samefile(self.path):
            raise StoreError(f"{path} is the store itself; export to another file")
        query = f"SELECT {ALL} FROM records ORDER BY {KEY}"
        with self._database.use() as connection, transaction(connection, "DEFERRED"):
            numbers = {}
            if path.suffix == ".parquet":
                columns = connection.execute(query)
                numbers = number_columns(map(self._value, columns))
            rows = map(self._row, connection.execute(query))
            return write_rows(path, rows, numbers)

    def import_(self, path: str | os.PathLike[str]) -> Imported:
        """Adds the records of an exported file or of another store.

        An existing record is replaced if the file's is newer. Atomic: a malformed file
        changes nothing.

        Returns:
            Numbers of added, replaced and unchanged records.

        Raises:
            StoreError: unknown file type, or a malformed row; names the row.
            OSError: the file cannot be read.
            ImportError: Parquet without pyarrow.
        """
        path = _known_file(path, ".parquet", ".jsonl", ".sqlite")
        path.stat()
        rows = store_rows(path) if path.suffix == ".sqlite" else read_rows(path)
        with self._database.use() as connection:
            return Imported(*merge(connection, rows))

    def prune(
        self,
        *,
        kind: str | None = None,
        machine: str | None = None,
        older_than_s: float | None = None,
        failed_only: bool = False,
        all_: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Removes the records that meet all conditions, and compacts the file.

        Args:
            kind: of the key.
            machine: of the key.
            older_than_s: minimum age of the record, in seconds.
            failed_only: only records with an error.
            all_: remove all records; without conditions.
            dry_run: only count.

        Returns:
            Number of removed records, or with `dry_run`, of those to remove.

        Raises:
            StoreError: neither a condition nor `all_`, or both.
        """
        before = None if older_than_s is None else time.time() - older_than_s
        equal = {"kind": kind, "machine": machine}
        condition, parameters = where(equal, before=before, failed_only=failed_only)
        if older_than_s is not None and not older_than_s >= 0:
            raise StoreError(f"older_than_s must be >= 0, got {older_than_s!r}")
        if all_ == (condition != EVERY):
            raise StoreError(
                "the records to remove are not clear; give either conditions (kind, "
                "machine, age, failed) or all_, not both"
            )
        with self._database.use() as connection:
            if dry_run:
                count: int = connection.execute(
                    f"SELECT count(*) FROM records WHERE {condition}", parameters
                ).fetchone()[0]
                return count
            count = connection.execute(
                f"DELETE FROM records WHERE {condition}", parameters
            ).rowcount
            if count:
                # Fails on a full disk; the file then reuses the space later.
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("VACUUM")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def repair(self) -> int:
        """Removes the records whose checksums do not match; keeps all others.

        Returns:
            Number of removed records.

        Raises:
            StoreError: SQLite cannot read the file.
        """
        with self._database.use() as connection:
            return repair(connection)

    def close(self) -> None:
        """Closes the file; any number of calls."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _row(self, columns: Sequence[Any]) -> Row:
        try:
            return read_columns(columns)
        except StoreError as error:
            key = dict(zip(KEY_FIELDS, columns, strict=False))
            raise StoreError(
                f"{self.path} is damaged: the record with {key}: {error}; {_REPAIR}"
            ) from None

    def _value(self, columns: Sequence[Any]) -> dict[str, Any]:
        return decode(self._row(columns).body)


def _known_file(path: str | os.PathLike[str], *suffixes: str) -> Path:
    path = Path(path)
    if path.suffix not in suffixes:
        raise StoreError(f"{path} must end in one of {', '.join(suffixes)}")
    return path
