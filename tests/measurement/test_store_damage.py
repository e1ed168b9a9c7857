# SPDX-License-Identifier: Apache-2.0
"""Damaged stores give the saved records or an error."""

from __future__ import annotations

import contextlib
import math
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hloenv.errors import StoreError
from hloenv.measurement.store import RecordKey, Store
from support.stores import VALUE, contents, filled, key


def _execute(path: Path, statement: str, *parameters: Any) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, parameters)
    connection.close()


_READERS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get(key(3, kind="k1")),
    "get_many": lambda store: store.get_many([key(0, kind="k0"), key(3, kind="k1")]),
    "records": lambda store: list(store.records()),
    "export": lambda store: store.export(store.path.with_suffix(".jsonl")),
    "import": lambda store: Store(":memory:").import_(store.path),
}


@pytest.mark.parametrize("reader", _READERS)
@pytest.mark.parametrize(
    "change",
    [
        "body = replace(body, '7', '8')",
        "body = '{'",
        "body = x'7b7d'",
        "created = created + 1",
        "created = 'then'",
        "failed = 1",
        "failed = 'no'",
        "checksum = x'0011223344556677'",
        "checksum = ''",
    ],
)
def test_a_changed_row_is_an_error(path: Path, reader: str, change: str) -> None:
    filled(path).close()
    _execute(path, f"UPDATE records SET {change} WHERE fingerprint = 'f3'")
    with Store(path) as store:
        with pytest.raises(StoreError, match="damaged"):
            _READERS[reader](store)
        assert store.get(key(4, kind="k0"))["i"] == 4


@pytest.mark.parametrize("field", RecordKey.__dataclass_fields__)
def test_a_row_under_another_key_is_an_error(path: Path, field: str) -> None:
    filled(path).close()
    _execute(path, f"UPDATE records SET {field} = 'other' WHERE fingerprint = 'f3'")
    changed = {"name": 3, "kind": "k1", field: "other"}
    if field == "fingerprint":
        del changed["fingerprint"]
        changed["name"] = "3"
    with Store(path) as store:
        if field != "fingerprint":
            with pytest.raises(StoreError, match="checksum"):
                store.get(key(**changed))
        with pytest.raises(StoreError, match="checksum"):
            contents(store)


def test_a_damaged_record_can_be_replaced(path: Path) -> None:
    filled(path).close()
    _execute(path, "UPDATE records SET body = '{}' WHERE fingerprint = 'f3'")
    with Store(path) as store:
        store.put(key(3, kind="k1"), {"i": "again"})
        assert store.get(key(3, kind="k1")) == {"i": "again"}
        assert len(contents(store)) == 30


def test_repair_removes_what_is_damaged_and_keeps_the_rest(path: Path) -> None:
    with filled(path) as store:
        before = {each: repr(value) for each, _, value in store.records()}
    _execute(path, "UPDATE records SET body = '{}' WHERE fingerprint IN ('f3', 'f8')")
    _execute(path, "UPDATE records SET machine = 'm2' WHERE fingerprint = 'f9'")
    with Store(path) as store:
        assert store.repair() == 3
        assert store.repair() == 0
        left = {each: repr(value) for each, _, value in store.records()}
        assert store.info().records == 27
    for name in (3, 8, 9):
        del before[key(name, kind=f"k{name % 2}")]
    assert left == before


def _make_version_1(path: Path) -> None:
    """Turns a store into what it was before there were checksums."""
    columns = ", ".join([*RecordKey.__dataclass_fields__, "created", "failed", "body"])
    texts = ", ".join(
        f"{name} TEXT NOT NULL" for name in RecordKey.__dataclass_fields__
    )
    with sqlite3.connect(path, isolation_level=None) as connection:
        for statement in (
            "DROP INDEX records_by_origin",
            "ALTER TABLE records RENAME TO newer",
            f"CREATE TABLE records ({texts}, created REAL NOT NULL, failed INTEGER NOT "
            "NULL, body TEXT NOT NULL, PRIMARY KEY "
            f"({', '.join(RecordKey.__dataclass_fields__)})) WITHOUT ROWID",
            f"INSERT INTO records SELECT {columns} FROM newer",
            "DROP TABLE newer",
            "CREATE INDEX records_by_origin ON records "
            "(kind, machine, failed, created)",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
    connection.close()


def test_a_store_without_checksums_gets_them(path: Path) -> None:
    with filled(path) as store:
        before = repr(contents(store))
    _make_version_1(path)
    with Store(path) as store, Store(path) as other:
        assert store.info().schema_version == 2
        assert repr(contents(store)) == repr(contents(other)) == before
    _execute(path, "UPDATE records SET body = '{}' WHERE fingerprint = 'f3'")
    with Store(path) as store, pytest.raises(StoreError, match="checksum"):
        contents(store)


def test_a_store_without_checksums_can_be_imported(path: Path) -> None:
    with filled(path) as store:
        before = repr(contents(store))
    _make_version_1(path)
    with Store(":memory:") as store:
        assert store.import_(path) == (30, 0, 0)
        assert repr(contents(store)) == before
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def test_records_in_no_order_are_an_error(path: Path) -> None:
    """Else a tree that leads back to itself would be read for ever."""
    with Store(path) as store:
        store.put_many((key(f"{i:04}"), {"marker": "m" * 300}) for i in range(400))
    data = path.read_bytes()
    pages = [data[i : i + 4096] for i in range(0, len(data), 4096)]
    # 10: a leaf of a tree without row numbers, here of the table by its bodies.
    leaves = [i for i, page in enumerate(pages) if page[0] == 10 and b"mmm" in page]
    pages[leaves[2]], pages[leaves[-2]] = pages[leaves[-2]], pages[leaves[2]]
    path.write_bytes(b"".join(pages))
    with Store(path) as store, pytest.raises(StoreError, match="out of order"):
        contents(store)


def _damaged(sound: bytes, seed: int) -> bytes:
    """One flipped bit, some other bytes, a page of another place, or a lost end."""
    rng = random.Random(seed)
    data = bytearray(sound)
    place = rng.randrange(len(data))
    kind = rng.choice(("bit", "bit", "bit", "bytes", "page", "end"))
    if kind == "bit":
        data[place] ^= 1 << rng.randrange(8)
    elif kind == "bytes":
        data[place : place + 8] = rng.randbytes(8)[: len(data) - place]
    elif kind == "page":
        pages = len(data) // 4096
        source, target = (4096 * rng.randrange(pages) for _ in range(2))
        data[target : target + 4096] = sound[source : source + 4096]
    else:
        del data[place:]
    return bytes(data)


def _read(path: Path, keys: list[RecordKey]) -> Iterator[tuple[RecordKey, float, Any]]:
    """All that can be read of a store, in each way; errors are counted as `None`."""
    try:
        store = Store(path)
    except StoreError:
        return
    with store:
        for read in (store.records, lambda: store.records(kind="k1")):
            with contextlib.suppress(StoreError):
                yield from read()
        for each in keys:
            for get in (store.get, lambda name: store.get_many([name])[0]):
                try:
                    value = get(each)
                except StoreError:
                    continue
                if value is not None:
                    yield each, math.nan, value


def test_150_damaged_files_give_no_wrong_record(path: Path, tmp_path: Path) -> None:
    with filled(path) as store:
        for i in range(30):
            value = {**VALUE, "durations_ns": list(range(1000 + i, 1100 + i))}
            store.put(key(f"long-{i}", kind="k1"), value, created=2e9 + i)
        saved = {each: (created, value) for each, created, value in store.records()}
    sound = path.read_bytes()
    copy = tmp_path / "copy.sqlite"
    num_records = num_files_with_errors = 0
    for seed in range(150):
        copy.write_bytes(_damaged(sound, seed))
        wrong = []
        found = 0
        for each, created, value in _read(copy, list(saved)):
            found += 1
            expected_created, expected = saved.get(each, (None, None))
            is_time_right = math.isnan(created) or created == expected_created
            if not is_time_right or repr(value) != repr(expected):
                wrong.append(each)
        assert not wrong, f"seed {seed}: {wrong[:3]}"
        num_records += found
        num_files_with_errors += found < 60 + 45 + 120
        for file in tmp_path.glob("copy.sqlite-*"):
            file.unlink()
    # The damage is felt, and does not make everything unreadable: `get` and `get_many`
    # give some 7,600 records each.
    assert num_files_with_errors > 50
    assert num_records > 20_000
