# SPDX-License-Identifier: Apache-2.0
"""The store of results in one process, and files that are not stores."""

from __future__ import annotations

import json
import math
import os
import random
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from hloenv.errors import StoreError
from hloenv.measurement.store import Store, default_path
from support.stores import VALUE, contents, exit_code, forked, key, limit_file_sizes


def test_values_come_back_exactly(store):
    store.put(key(), VALUE)
    value = store.get(key())
    assert value == VALUE
    assert list(value) == list(VALUE)
    assert math.copysign(1, value["negative_zero"]) == -1
    assert store.get_many([key()]) == [VALUE]


def test_every_field_of_a_key_tells_records_apart(store):
    fields = ("kind", "fingerprint", "finish", "flags", "target", "machine", "variant")
    keys = [key(), *(key(**{field: "other"}) for field in fields)]
    for i, each in enumerate(keys):
        store.put(each, {"i": i})
    assert [store.get(each) for each in keys] == [{"i": i} for i in range(len(keys))]
    assert store.get(key(finish="")) is None


@pytest.mark.parametrize("text", ["'; DROP TABLE records; --", "a\0b", "é\n", "%", ""])
def test_any_text_is_a_field_of_a_key(store, text):
    store.put(key(flags=text), {"ok": True})
    assert store.get(key(flags=text)) == {"ok": True}
    assert [each for each, _, _ in store.records()] == [key(flags=text)]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_come_back(store, number):
    store.put(key(), {"x": number, "deep": [{"y": [number, 1.0]}], "text": "$float"})
    value = store.get(key())
    for each in (value["x"], value["deep"][0]["y"][0]):
        assert isinstance(each, float)
        assert each == number or (math.isnan(each) and math.isnan(number))
    assert value["text"] == "$float"


def test_bodies_are_json_for_any_reader(store, path):
    store.put(key(), {"x": math.nan})
    (body,) = sqlite3.connect(path).execute("SELECT body FROM records").fetchone()
    assert json.loads(body, parse_constant=pytest.fail) == {"x": {"$float": "nan"}}


def nested_in_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = [value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], "got list"),
        ({"a": {1: 2}}, r"value\['a'\] has the key 1"),
        ({"a": [0, {1}]}, r"value\['a'\]\[1\] is builtins.set"),
        ({"$float": 1}, "the key '\\$float'"),
        (nested_in_itself(), "contains itself"),
    ],
)
def test_values_that_json_would_change_are_rejected(store, value, said):
    with pytest.raises(StoreError, match=said):
        store.put(key(), value)
    with pytest.raises(StoreError, match=said):
        store.put_many([(key(1), {}), (key(), value)])
    assert contents(store) == []


def test_numpy_scalars_are_rejected_with_advice(store):
    import numpy as np

    with pytest.raises(StoreError, match=r"value\['n'\] is numpy.int64.*item\(\)"):
        store.put(key(), {"n": np.int64(1)})


@pytest.mark.parametrize("field", [1, None, b"x", "\ud83d"])
def test_keys_are_text(field):
    with pytest.raises(StoreError, match="must be text"):
        key(machine=field)


def test_a_key_needs_a_kind():
    with pytest.raises(StoreError, match="kind of a key is empty"):
        key(kind="")


@pytest.mark.parametrize("count", [0, 1, 299, 300, 301, 1000])
def test_get_many_keeps_the_order(store, count):
    store.put_many((key(i), {"i": i}) for i in range(0, count, 2))
    order = [*range(count), *range(count)]
    random.Random(0).shuffle(order)
    found = store.get_many(key(i) for i in order)
    assert found == [None if i % 2 else {"i": i} for i in order]


def test_the_last_writer_wins(path):
    with Store(path) as first, Store(path) as second:
        first.put(key(), {"by": "first"}, created=2.0)
        second.put(key(), {"by": "second"}, created=1.0)
        assert first.get(key()) == second.get(key()) == {"by": "second"}
        first.put_many([(key(), {"n": 1}), (key(), {"n": 2})])
        assert second.get(key()) == {"n": 2}


def test_records_outlive_the_store(path):
    with Store(path) as store:
        store.put(key(), VALUE, created=1.5)
    with Store(str(path)) as store:
        assert contents(store) == [(key(), 1.5, VALUE)]


def test_records_are_in_the_order_of_keys(store):
    keys = [key(i, kind=f"k{i % 3}", machine=f"m{i % 2}") for i in range(650)]
    random.Random(0).shuffle(keys)
    store.put_many((each, {}) for each in keys)
    assert [each for each, _, _ in store.records()] == sorted(keys)


def test_records_can_be_chosen(store):
    for i in range(500):
        error = {"kind": "CompileError"} if i % 5 == 0 else None
        chosen = key(i, kind=f"k{i % 2}", machine=f"m{i % 3}")
        store.put(chosen, {"i": i, "error": error}, created=float(i))

    def numbers(*args: Any, **kwargs: Any) -> set[int]:
        return {value["i"] for _, _, value in store.records(*args, **kwargs)}

    everything = range(500)
    assert numbers("k0") == {i for i in everything if i % 2 == 0}
    assert numbers("k1", "m2") == {i for i in everything if i % 6 == 5}
    assert numbers(machine="m0") == {i for i in everything if i % 3 == 0}
    assert numbers(fingerprint="f7") == {7}
    assert numbers(since=498.0) == {498, 499}
    assert numbers("k0", failed_only=True) == {i for i in everything if i % 10 == 0}
    assert numbers("none") == set()


def test_records_come_while_others_go(store):
    store.put_many((key(f"{i:04}"), {}) for i in range(450))
    seen = []
    for each, _, _ in store.records():
        seen.append(each)
        if len(seen) == 10:
            store.prune(kind="measurement")
    assert len(seen) == 200


def test_info_counts(store, path):
    for i in range(10):
        value = {"error": "x"} if i == 0 else {"error": None}
        store.put(key(i, kind=f"k{i % 2}"), value, created=100.0 + i)
    info = store.info()
    assert (info.path, info.schema_version) == (str(path), 2)
    assert (info.records, info.failures) == (10, 1)
    assert (info.oldest, info.newest) == (100.0, 109.0)
    first, second = info.counts
    assert (first.kind, first.machine, first.records) == ("k0", "m1", 5)
    assert (first.failures, second.failures) == (1, 0)
    assert (second.oldest, second.newest) == (101.0, 109.0)
    wal = Path(f"{path}-wal")
    assert info.size_bytes == path.stat().st_size + wal.stat().st_size


def test_info_of_an_empty_store(store):
    info = store.info()
    assert (info.records, info.failures, info.oldest, info.newest) == (0, 0, None, None)


def test_a_store_in_memory_has_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store(":memory:") as store:
        store.put(key(), VALUE)
        assert store.get(key()) == VALUE
        assert store.info().size_bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_a_closed_store_says_so(path):
    store = Store(path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get(key())


def test_the_default_path_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HLOENV_STORE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_path() == tmp_path / ".cache" / "hloenv" / "store.sqlite"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Store() as store:
        assert store.path == tmp_path / "cache" / "hloenv" / "store.sqlite"
        assert store.path.is_file()
    monkeypatch.setenv("HLOENV_STORE", "~/mine.sqlite")
    assert default_path() == tmp_path / "mine.sqlite"


def test_a_newer_schema_is_rejected(path):
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"newer hloenv.*schema 99.*update hloenv"):
        Store(path)


def test_another_programs_database_is_rejected_and_unchanged(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_that_is_not_a_database_is_rejected(path):
    path.write_text("fingerprint,duration\n" * 1000)
    with pytest.raises(StoreError, match=r"not an SQLite file.*HLOENV_STORE"):
        Store(path)


def test_a_damaged_file_is_rejected(path):
    with Store(path) as store:
        store.put_many((key(i), VALUE) for i in range(2000))
    with path.open("r+b") as file:
        for page in range(2, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 64)
    with Store(path) as store, pytest.raises(StoreError, match=r"damaged.*\.recover"):
        contents(store)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StoreError, match=r"folder of .* cannot be created.*HLOENV_STORE"
    ):
        Store(tmp_path / "file" / "store.sqlite")


def test_a_folder_is_no_store(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path)


def test_a_read_only_folder_is_an_error():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)

        def child() -> None:
            if os.geteuid() == 0:  # whom no permissions stop
                os.setuid(65534)
            with pytest.raises(StoreError, match=r"opened for writing.*HLOENV_STORE"):
                Store(Path(name) / "store.sqlite")

        assert exit_code(forked(child)) == 0


def test_a_full_disk_is_an_error_and_loses_nothing(path):
    with Store(path) as store:
        store.put(key("before"), VALUE)

        def child() -> None:
            limit_file_sizes(100_000)
            with pytest.raises(StoreError, match=r"store\.sqlite .*disk"):
                store.put(key("large"), {"text": "x" * 500_000})

        assert exit_code(forked(child)) == 0
        store.put(key("after"), VALUE)
        assert [store.get(key(name)) for name in ("before", "large", "after")] == [
            *(VALUE, None, VALUE)
        ]


def test_a_lock_that_is_never_released_is_an_error(path, monkeypatch):
    monkeypatch.setattr("hloenv.measurement.store_sqlite.BUSY_S", 0.05)
    with Store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.put(key(), VALUE)
        assert store.get(key()) is None
        other.execute("ROLLBACK")
        other.close()
        store.put(key(), VALUE)


@pytest.fixture
def aged(store: Store) -> Store:
    """Twelve records of ages 0 to 11 hours, the even ones kernels, some failed."""
    now = time.time()
    for i in range(12):
        value = {"i": i, "error": "x" if i % 3 == 0 else None}
        each = key(i, kind=("kernel", "measurement")[i % 2], machine=f"m{i % 4}")
        store.put(each, value, created=now - 3600 * i)
    return store


@pytest.mark.parametrize(
    ("criteria", "gone"),
    [
        ({"kind": "kernel"}, range(0, 12, 2)),
        ({"machine": "m3"}, range(3, 12, 4)),
        ({"older_than_s": 3600 * 8.5}, range(9, 12)),
        ({"failed_only": True}, range(0, 12, 3)),
        ({"failed_only": True, "kind": "kernel", "older_than_s": 1800}, (6,)),
        ({"kind": "none"}, ()),
        ({"all_": True}, range(12)),
    ],
)
def test_prune_removes_what_meets_every_condition(aged, criteria, gone):
    assert aged.prune(**criteria, dry_run=True) == len(gone)
    assert aged.info().records == 12
    assert aged.prune(**criteria) == len(gone)
    left = {value["i"] for _, _, value in aged.records()}
    assert left == set(range(12)) - set(gone)


@pytest.mark.parametrize(
    "criteria", [{}, {"dry_run": True}, {"all_": True, "kind": "kernel"}]
)
def test_prune_needs_conditions_or_all(aged, criteria):
    with pytest.raises(StoreError, match="not clear"):
        aged.prune(**criteria)
    assert aged.info().records == 12


@pytest.mark.parametrize("age", [-1.0, math.nan])
def test_prune_rejects_invalid_ages(aged, age):
    with pytest.raises(StoreError, match="older_than_s"):
        aged.prune(older_than_s=age)
    assert aged.info().records == 12


def test_prune_makes_the_file_smaller(store):
    store.put_many((key(i), {"text": "x" * 1000}) for i in range(500))
    before = store.info().size_bytes
    store.prune(all_=True)
    assert store.info().size_bytes < before / 5
